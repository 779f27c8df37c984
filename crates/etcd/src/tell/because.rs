//! Why something is done: the fact that each action of a plan rests on, as a sentence that follows "because".

use evenkeel::{Action, Explained, Plan};

use super::words::{Words, span};
use super::{rolling, view, why};
use crate::decide::{Etcd, dead};
use crate::facts::{Amiss, Facts, Object, Start, Storage};
use crate::identity::{Change, Intent};
use crate::names::Serial;
use crate::observe::Found;
use crate::plan::{Apply, Create, Mark, Step};
use crate::view::{Data, Member, View};

/// What a plan comes to, for the log of decisions.
pub fn explain(found: &Found, facts: &Facts, plan: &Plan<Etcd>) -> Explained {
    let (words, view) = (Words::of(found, facts), view(facts));
    let mut reasons: Vec<String> = Vec::new();
    for action in plan.actions() {
        let why = because(&words, view.as_ref(), &action);
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    }
    let waits = plan.status.waits.iter();
    Explained {
        does: plan.actions().map(|action| words.action(&action)).collect(),
        because: reasons,
        waits_for: waits.map(|wait| words.wait(facts, view.as_ref(), wait)).collect(),
    }
}

/// What each action of a plan does, and why.
pub fn each(found: &Found, facts: &Facts, plan: &Plan<Etcd>) -> Vec<(String, String)> {
    let (words, view) = (Words::of(found, facts), view(facts));
    plan.actions().map(|action| (words.action(&action), because(&words, view.as_ref(), &action))).collect()
}

/// How a cluster is when a plan does nothing, in a few words, and what is waited for.
pub fn at_rest(found: &Found, facts: &Facts, plan: &Plan<Etcd>) -> (String, Vec<String>) {
    let (words, view) = (Words::of(found, facts), view(facts));
    let waits = plan.status.waits.iter().map(|wait| words.wait(facts, view.as_ref(), wait));
    (words.phrase(facts, view.as_ref(), plan), waits.collect())
}

/// Why the main thing of a plan is done, the one that [`Words::doing`] names; nothing if it does nothing.
pub(super) fn main(words: &Words<'_>, view: Option<&View<'_>>, plan: &Plan<Etcd>) -> String {
    let step = plan.step.as_ref().map(Action::Step);
    let create = plan.create.first().map(Action::Create);
    let apply = plan.apply.first().map(Action::Apply);
    let action = step.or(create).or(apply).or(plan.mark.first().map(Action::Mark));
    action.map(|action| because(words, view, &action)).unwrap_or_default()
}

/// Why one thing is done.
pub(super) fn because(words: &Words<'_>, view: Option<&View<'_>>, action: &Action<'_, Etcd>) -> String {
    match action {
        Action::Create(create) => created(words, create),
        Action::Mark(mark) => marked(view, mark).to_owned(),
        Action::Apply(Apply::Object(object)) => amiss(words, view, *object),
        Action::Apply(Apply::Budget { min, .. }) => {
            let voters = view.map_or(0, View::votes);
            format!("of {voters} with a vote, evictions must leave {min}")
        }
        Action::Step(Step::Call { intent, .. }) => {
            view.map(|view| called(words, view, intent)).unwrap_or_default()
        }
        Action::Step(Step::Restart { serial, spared, .. }) => {
            view.map(|view| rolling::why(view, *serial, *spared)).unwrap_or_default()
        }
        Action::Step(step) => why(step).to_owned(),
    }
}

fn created(words: &Words<'_>, create: &Create) -> String {
    match create {
        Create::Identity(identity) if identity.next > Serial(1) => {
            "it was gone, and volumes and pods tell what it was".to_owned()
        }
        Create::Identity(_) => "the resource is new".to_owned(),
        Create::Claim { serial, .. } => {
            format!("{} is to join, and has no volume yet", words.member(*serial))
        }
        Create::Pod { serial, start: Start::OwnData, .. } => {
            format!("the pod of {} is gone, and its data is there", words.member(*serial))
        }
        Create::Pod { serial, .. } => format!("{} is to join", words.member(*serial)),
    }
}

fn marked(view: Option<&View<'_>>, mark: &Mark) -> &'static str {
    let votes = |uid| {
        let mut voters = view.into_iter().flat_map(View::voters);
        voters.any(|voter| voter.pod.is_some_and(|pod| pod.uid == uid))
    };
    match mark {
        Mark::Start { to: Start::Found, .. } => "it is the first member",
        Mark::Start { to: Start::Join(_), .. } => "etcd lists it, and it must know who the others are",
        Mark::Start { .. } => "it has joined before",
        Mark::JoinedOn { .. } | Mark::Turn { .. } => {
            "it has joined, and is to start on nothing but its own data from now on"
        }
        Mark::Route { .. } => "it has a vote, and serves",
        Mark::Unroute { pod } if votes(*pod) => "it is to be removed",
        Mark::Unroute { .. } => "it has no vote",
        Mark::Removed { at: Some(_), .. } => "its member was removed, and its data is kept for a while",
        Mark::Removed { at: None, .. } => "etcd lists its member",
        Mark::Version { .. } => "it may rewrite the data, so that nothing older can read it",
        Mark::Inputs { .. } => "an earlier operator has built it, which did not say so",
        Mark::Grow { .. } => "it is smaller than the spec says",
        Mark::Accept => "it was accepted, and stays in force should the next one be refused",
        Mark::Own { .. } => "what goes with the resource is to belong to it, and nothing else",
    }
}

fn amiss(words: &Words<'_>, view: Option<&View<'_>>, object: Object) -> String {
    let how = view.and_then(|view| view.facts.amiss.get(&object));
    let how = if how == Some(&Amiss::Missing) { "is missing" } else { "is not as it should be" };
    format!("{} {how}", words.object(object))
}

fn called(words: &Words<'_>, view: &View<'_>, intent: &Intent) -> String {
    let (there, wanted) = (view.registered().count(), view.facts.cluster.members);
    let well = view.voters().filter(|member| member.serves()).count();
    match intent.change {
        Change::Add(_) => {
            format!("{there} of {wanted} members are there, and everyone with a vote serves")
        }
        Change::Promote(_) => {
            format!("it serves and has caught up, and {well} of {} with a vote are well", view.votes())
        }
        Change::Expel(_) => {
            let after = span(view.facts.cluster.replace_after);
            format!("it is none of ours, and has not started within {after}")
        }
        Change::Remove(serial) => match view.members.get(&serial) {
            Some(member) => removed(words, view, member),
            None => "it was begun".to_owned(),
        },
    }
}

fn removed(words: &Words<'_>, view: &View<'_>, member: &Member<'_>) -> String {
    let (there, wanted) = (view.registered().count(), view.facts.cluster.members);
    let after = span(view.facts.cluster.replace_after);
    if member.data == Data::Gone {
        return lost(view, member).to_owned();
    }
    if !member.is_voter() && view.keeps_a_voter_out(member) {
        return format!(
            "it has the place that a member with a vote must come back to ({})",
            kept_out(words, view, member)
        );
    }
    let kept_away = member.claim.is_some_and(|claim| claim.misplaced);
    if member.is_newcomer() && (view.must_be_replaced(member) || kept_away) {
        return "it waits for a volume that is no longer wanted, and another one gets the one that is"
            .to_owned();
    }
    if dead::crashes(view, member) {
        return format!("its etcd has ended at every start for {after}, while others run on the same image");
    }
    if dead::is_out_of_reach(view, member) {
        return format!(
            "for {after} neither the operator nor the leader has heard it, and its pod is not Ready"
        );
    }
    if there > usize::from(wanted) {
        return format!("there are {there} members, and {wanted} are wanted");
    }
    "it was begun".to_owned()
}

/// How a member's data is gone.
fn lost(view: &View<'_>, member: &Member<'_>) -> &'static str {
    match (view.facts.cluster.storage, member.claim) {
        (Storage::Ephemeral, _) => "its pod is gone, and its data with it",
        (_, None) => "its claim is gone, and its data with it",
        (_, Some(claim)) if claim.lost => "its volume was on a node that is no more",
        (_, Some(claim)) if claim.joined_on.is_some() => {
            "its claim or its volume is not the one it joined on: what is there is other data"
        }
        (_, Some(_)) => "nothing tells on which volume it joined",
    }
}

fn kept_out(words: &Words<'_>, view: &View<'_>, member: &Member<'_>) -> String {
    let waits = view.voters().find(|voter| view.has_the_place_of(member, voter));
    waits.map(|voter| words.member(voter.serial)).unwrap_or_default()
}

#[cfg(test)]
#[path = "because_tests.rs"]
mod tests;
