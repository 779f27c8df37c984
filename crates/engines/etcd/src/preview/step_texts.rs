//! The texts and reasons of the steps of a preview.

use super::template_changes::{format_size, template_changes};
use crate::actions::ActionContext;
use crate::availability::count;
use crate::facts::StorageKind;
use crate::identity::Uid;
use crate::names::Serial;
use crate::view::{DataState, MemberView};

/// The number of objects up to which a step names each of them.
const MAX_NAMED_OBJECTS: usize = 2;

/// Returns kinds and names of a few objects, and how many of each kind of many.
pub(super) fn counted_objects(objects: &[String]) -> String {
    if objects.len() <= MAX_NAMED_OBJECTS {
        return objects.join(" and ");
    }
    let mut counts = Vec::<(&str, usize)>::new();
    for object in objects {
        let kind = object.split(' ').next().unwrap_or_default();
        match counts.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((kind, 1)),
        }
    }
    let counts = counts.into_iter().map(|(kind, number)| count(number, kind));
    join_words(&counts.collect::<Vec<_>>())
}

/// Joins words with commas and "and".
pub(super) fn join_words(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns kind and name of a claim.
pub(super) fn volume(context: &ActionContext<'_>, claim: Uid) -> String {
    format!("PersistentVolumeClaim {}", context.claim_member(claim))
}

pub(super) fn resize_reason(context: &ActionContext<'_>, claim: Uid, to: u64) -> String {
    let mut claims = context.facts.claims.present().into_iter().flatten();
    let from = claims.find(|other| other.uid == claim);
    let from = from.map_or(0, |claim| claim.requested_size);
    format!("size {} → {}", format_size(from), format_size(to))
}

/// Describes the restart of a member with its role.
pub(super) fn restart(
    context: &ActionContext<'_>,
    serial: Serial,
    transfer_to: Option<Serial>,
) -> String {
    let name = context.member(serial);
    let voters = context.view.map_or(0, |view| view.voters().count());
    match transfer_to {
        Some(leader) => format!(
            "restart {name} (leader) after leadership moves to {}",
            context.member(leader)
        ),
        None if voters == 1 => format!("restart {name} (the only member)"),
        None => format!("restart {name} (follower)"),
    }
}

/// Returns the changed inputs of a member's pod.
pub(super) fn restart_reason(context: &ActionContext<'_>, serial: Serial) -> String {
    let member = context.view.and_then(|view| view.members.get(&serial));
    let changes = member.and_then(|member| member.pod).map(|pod| {
        let changes = template_changes(context.observed, context.facts, pod);
        changes.join("; ")
    });
    changes.unwrap_or_default()
}

/// Returns why a member is added that takes no removed member's place.
pub(super) fn addition_reason(context: &ActionContext<'_>) -> String {
    let desired = context.facts.cluster.members;
    let surges = context
        .view
        .is_some_and(|view| view.target_members() > usize::from(desired));
    if surges {
        "joins before an outdated member is removed".to_owned()
    } else {
        format!("spec.members is {desired}")
    }
}

/// Returns why a member is removed because of the spec; `None` if the reason is its failure.
pub(super) fn removal_reason(context: &ActionContext<'_>, serial: Serial) -> Option<String> {
    let view = context.view?;
    let member: &MemberView<'_> = view.members.get(&serial)?;
    let desired = usize::from(context.facts.cluster.members);
    if member.data == DataState::Lost || !member.is_serving() {
        return None;
    }
    if !view.must_be_replaced(member) {
        let is_surplus = view.listed().count() > desired;
        return is_surplus.then(|| format!("spec.members is {desired}"));
    }
    Some(match context.facts.cluster.storage {
        StorageKind::Ephemeral => restart_reason(context, serial),
        StorageKind::Persistent if member.claim.is_some_and(|claim| claim.has_wrong_class) => {
            "its volume does not have spec.storage.class".to_owned()
        }
        StorageKind::Persistent => {
            "its volume is on a node that spec.scheduling.nodeSelector excludes".to_owned()
        }
    })
}

/// Returns a number of times in words: "once", "twice", "3 times".
pub(super) fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}
