//! Why something is done: the fact that each action of a plan rests on, as a sentence that follows "because".

use evenkeel_runtime::{Action, Explanation, Plan};

use super::messages::{Messages, format_duration};
use super::{reason_for, rollout, view};
use crate::decide::{Etcd, replace};
use crate::facts::{Drift, EtcdFacts, OwnedObject, StartMode, StorageKind};
use crate::identity::{Intent, MembershipChange};
use crate::names::Serial;
use crate::observe::ObservedCluster;
use crate::plan::{EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch};
use crate::view::{ClusterView, DataState, MemberView};

/// What a plan comes to, for the log of decisions.
pub fn explain(observed: &ObservedCluster, facts: &EtcdFacts, plan: &Plan<Etcd>) -> Explanation {
    let (words, view) = (Messages::of(observed, facts), view(facts));
    let mut reasons: Vec<String> = Vec::new();
    for action in plan.actions() {
        let why = because(&words, view.as_ref(), &action);
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    }
    let waits = plan.waits.iter();
    Explanation {
        actions: plan.actions().map(|action| words.action(&action)).collect(),
        reasons,
        waits: waits
            .map(|wait| words.wait(facts, view.as_ref(), wait))
            .collect(),
    }
}

/// What each action of a plan does, and why.
pub fn each(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
) -> Vec<(String, String)> {
    let (words, view) = (Messages::of(observed, facts), view(facts));
    plan.actions()
        .map(|action| {
            (
                words.action(&action),
                because(&words, view.as_ref(), &action),
            )
        })
        .collect()
}

/// How a cluster is when a plan does nothing, in a few words, and what is waited for.
pub fn at_rest(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
) -> (String, Vec<String>) {
    let (words, view) = (Messages::of(observed, facts), view(facts));
    let waits = plan
        .waits
        .iter()
        .map(|wait| words.wait(facts, view.as_ref(), wait));
    (words.summary(facts, view.as_ref(), plan), waits.collect())
}

/// Why the main thing of a plan is done, the one that [`Words::doing`] names; nothing if it does nothing.
pub(super) fn main(
    words: &Messages<'_>,
    view: Option<&ClusterView<'_>>,
    plan: &Plan<Etcd>,
) -> String {
    let step = plan.disruption.as_ref().map(Action::Disruption);
    let create = plan.create.first().map(Action::Create);
    let apply = plan.apply.first().map(Action::Apply);
    let action = step
        .or(create)
        .or(apply)
        .or(plan.patch.first().map(Action::Patch));
    action
        .map(|action| because(words, view, &action))
        .unwrap_or_default()
}

/// Why one thing is done.
pub(super) fn because(
    words: &Messages<'_>,
    view: Option<&ClusterView<'_>>,
    action: &Action<'_, Etcd>,
) -> String {
    match action {
        Action::Create(create) => created(words, create),
        Action::Patch(mark) => marked(view, mark).to_owned(),
        Action::Apply(EtcdApply::Object(object)) => amiss(words, view, *object),
        Action::Apply(EtcdApply::PodDisruptionBudget { min, .. }) => {
            let voters = view.map_or(0, ClusterView::votes);
            format!("of {voters} with a vote, evictions must leave {min}")
        }
        Action::Disruption(EtcdDisruption::ChangeMembership { intent, .. }) => view
            .map(|view| called(words, view, intent))
            .unwrap_or_default(),
        Action::Disruption(EtcdDisruption::RestartMember { serial, spared, .. }) => view
            .map(|view| rollout::why(view, *serial, *spared))
            .unwrap_or_default(),
        Action::Disruption(step) => reason_for(step).to_owned(),
    }
}

fn created(words: &Messages<'_>, create: &EtcdCreate) -> String {
    match create {
        EtcdCreate::Identity(identity) if identity.next_serial > Serial(1) => {
            "it was gone, and volumes and pods tell what it was".to_owned()
        }
        EtcdCreate::Identity(_) => "the resource is new".to_owned(),
        EtcdCreate::Claim { serial, .. } => {
            format!(
                "{} is to join, and has no volume yet",
                words.member(*serial)
            )
        }
        EtcdCreate::Pod {
            serial,
            start_mode: StartMode::ExistingData,
            ..
        } => {
            format!(
                "the pod of {} is gone, and its data is there",
                words.member(*serial)
            )
        }
        EtcdCreate::Pod { serial, .. } => format!("{} is to join", words.member(*serial)),
    }
}

fn marked(view: Option<&ClusterView<'_>>, mark: &EtcdPatch) -> &'static str {
    let votes = |uid| {
        let mut voters = view.into_iter().flat_map(ClusterView::voters);
        voters.any(|voter| voter.pod.is_some_and(|pod| pod.uid == uid))
    };
    match mark {
        EtcdPatch::SetStartMode {
            to: StartMode::Bootstrap,
            ..
        } => "it is the first member",
        EtcdPatch::SetStartMode {
            to: StartMode::Join(_),
            ..
        } => "etcd lists it, and it must know who the others are",
        EtcdPatch::SetStartMode { .. } => "it has joined before",
        EtcdPatch::RecordJoinedVolume { .. } | EtcdPatch::MarkJoined { .. } => {
            "it has joined, and is to start on nothing but its own data from now on"
        }
        EtcdPatch::AttachClients { .. } => "it has a vote, and serves",
        EtcdPatch::DetachClients { pod } if votes(*pod) => "it is to be removed",
        EtcdPatch::DetachClients { .. } => "it has no vote",
        EtcdPatch::RecordRemoval { at: Some(_), .. } => {
            "its member was removed, and its data is kept for a while"
        }
        EtcdPatch::RecordRemoval { at: None, .. } => "etcd lists its member",
        EtcdPatch::RecordVersion { .. } => {
            "it may rewrite the data, so that nothing older can read it"
        }
        EtcdPatch::RecordTemplateHash { .. } => {
            "an earlier operator has built it, which did not say so"
        }
        EtcdPatch::ResizeVolume { .. } => "it is smaller than the spec says",
        EtcdPatch::RecordSpec => {
            "it was accepted, and stays in force should the next one be refused"
        }
        EtcdPatch::SetOwner { .. } => {
            "what goes with the resource is to belong to it, and nothing else"
        }
    }
}

fn amiss(words: &Messages<'_>, view: Option<&ClusterView<'_>>, object: OwnedObject) -> String {
    let how = view.and_then(|view| view.facts.drift.get(&object));
    let how = if how == Some(&Drift::Missing) {
        "is missing"
    } else {
        "is not as it should be"
    };
    format!("{} {how}", words.object(object))
}

fn called(words: &Messages<'_>, view: &ClusterView<'_>, intent: &Intent) -> String {
    let (there, desired) = (view.listed().count(), view.facts.cluster.members);
    let well = view.voters().filter(|member| member.is_serving()).count();
    match intent.change {
        MembershipChange::Add(_) => {
            format!("{there} of {desired} members are there, and everyone with a vote serves")
        }
        MembershipChange::Promote(_) => {
            format!(
                "it serves and has caught up, and {well} of {} with a vote are well",
                view.votes()
            )
        }
        MembershipChange::RemoveUnknown(_) => {
            let after = format_duration(view.facts.cluster.replace_after);
            format!("it is none of ours, and has not started within {after}")
        }
        MembershipChange::Remove(serial) => match view.members.get(&serial) {
            Some(member) => removed(words, view, member),
            None => "it was begun".to_owned(),
        },
    }
}

fn removed(words: &Messages<'_>, view: &ClusterView<'_>, member: &MemberView<'_>) -> String {
    let (there, desired) = (view.listed().count(), view.facts.cluster.members);
    let after = format_duration(view.facts.cluster.replace_after);
    if member.data == DataState::Lost {
        return lost(view, member).to_owned();
    }
    if !member.is_voter() && view.blocks_a_voter(member) {
        return format!(
            "it has the place that a member with a vote must come back to ({})",
            kept_out(words, view, member)
        );
    }
    let kept_away = member.claim.is_some_and(|claim| claim.is_misplaced);
    if member.is_unstarted_learner() && (view.must_be_replaced(member) || kept_away) {
        return "it waits for a volume that is no longer wanted, and another one gets the one that is"
            .to_owned();
    }
    if replace::is_crashing(view, member) {
        return format!(
            "its etcd has ended at every start for {after}, while others run on the same image"
        );
    }
    if replace::is_unreachable(view, member) {
        return format!(
            "for {after} neither the operator nor the leader has heard it, and its pod is not Ready"
        );
    }
    if there > usize::from(desired) {
        return format!("there are {there} members, and {desired} are wanted");
    }
    "it was begun".to_owned()
}

/// How a member's data is gone.
fn lost(view: &ClusterView<'_>, member: &MemberView<'_>) -> &'static str {
    match (view.facts.cluster.storage, member.claim) {
        (StorageKind::Ephemeral, _) => "its pod is gone, and its data with it",
        (_, None) => "its claim is gone, and its data with it",
        (_, Some(claim)) if claim.is_lost => "its volume was on a node that is no more",
        (_, Some(claim)) if claim.joined_on.is_some() => {
            "its claim or its volume is not the one it joined on: what is there is other data"
        }
        (_, Some(_)) => "nothing tells on which volume it joined",
    }
}

fn kept_out(words: &Messages<'_>, view: &ClusterView<'_>, member: &MemberView<'_>) -> String {
    let waits = view
        .voters()
        .find(|voter| view.occupies_node_of(member, voter));
    waits
        .map(|voter| words.member(voter.serial))
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "reasons_tests.rs"]
mod tests;
