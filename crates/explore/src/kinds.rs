//! What kinds of things can be decided, by name. A kind that no exploration ever decides is out of reach: dead code, or a
//! world too kind. The matches are exhaustive, so that a new kind cannot be forgotten here.

use evenkeel::Plan;
use evenkeel_etcd::Etcd;
use evenkeel_etcd::identity::Change;
use evenkeel_etcd::plan::{Apply, Create, Leaving, Mark, Step, Turn, Wait};

/// All kinds, those first that the explored world brings about by itself, then those that take somebody who meddles.
pub const ALL: [&str; 60] = [
    "create an identity",
    "create a claim",
    "create a pod",
    "mark how to start",
    "mark what was joined on",
    "mark as turned",
    "mark for routing",
    "mark for no routing",
    "mark as owned",
    "apply the budget",
    "turn: seed starts",
    "turn: formed",
    "turn: seal",
    "turn: settle",
    "turn: seed lost",
    "turn: seed moves",
    "turn: resource replaced",
    "turn: adopt",
    "turn: pass over",
    "call: add",
    "call: promote",
    "call: remove",
    "call: hand over and remove",
    "call: replace",
    "call: expel",
    "delete a pod: old epoch",
    "delete a pod: not a member",
    "delete a pod: finished",
    "delete a pod: makes way",
    "delete a pod: outdated",
    "restart: evict",
    "restart: hand over and evict",
    "restart: delete",
    "wait: unwell",
    "delete a claim: old epoch",
    "delete a claim: not a member",
    "wait: reading",
    "wait: old epoch goes",
    "wait: former goes",
    "wait: seed starts",
    "wait: no quorum",
    "wait: settling",
    "wait: joining",
    "wait: catching up",
    "wait: add unsafe",
    "wait: patience",
    "wait: replacing",
    "apply an object",
    "wait: paused",
    "wait: contradiction",
    "wait: nothing left",
    "wait: name taken",
    "wait: authority lost",
    "wait: strangers",
    "wait: enough",
    "mark as removed",
    "mark as accepted",
    "mark the version",
    "wait: window",
    "wait: too few",
];

/// The kinds of all that a plan decides, and waits for.
pub fn kinds(plan: &Plan<Etcd>) -> Vec<&'static str> {
    let creates = plan.create.iter().map(|create| match create {
        Create::Identity(_) => "create an identity",
        Create::Claim { .. } => "create a claim",
        Create::Pod { .. } => "create a pod",
    });
    let marks = plan.mark.iter().map(|mark| match mark {
        Mark::Start { .. } => "mark how to start",
        Mark::JoinedOn { .. } => "mark what was joined on",
        Mark::Turn { .. } => "mark as turned",
        Mark::Route { .. } => "mark for routing",
        Mark::Unroute { .. } => "mark for no routing",
        Mark::Own { .. } => "mark as owned",
        Mark::Version { .. } => "mark the version",
        Mark::Inputs { .. } => "mark the inputs",
        Mark::Grow { .. } => "grow a claim",
        Mark::Accept => "mark as accepted",
        Mark::Removed { .. } => "mark as removed",
    });
    let waits = plan.status.waits.iter().map(wait);
    let applied = plan.apply.iter().map(|apply| match apply {
        Apply::Object(_) => "apply an object",
        Apply::Budget { .. } => "apply the budget",
    });
    creates.chain(marks).chain(applied).chain(plan.step.iter().map(step)).chain(waits).collect()
}

fn step(step: &Step) -> &'static str {
    match step {
        Step::Identity { why, .. } => match why {
            Turn::SeedStarts => "turn: seed starts",
            Turn::Formed(_) => "turn: formed",
            Turn::Seal => "turn: seal",
            Turn::Settle => "turn: settle",
            Turn::SeedLost => "turn: seed lost",
            Turn::SeedMoves => "turn: seed moves",
            Turn::ResourceReplaced => "turn: resource replaced",
            Turn::Adopt => "turn: adopt",
            Turn::PassOver => "turn: pass over",
        },
        Step::Call { intent, heir, .. } => match intent.change {
            Change::Add(_) => "call: add",
            Change::Promote(_) => "call: promote",
            Change::Expel(_) => "call: expel",
            Change::Remove(_) if intent.replaces => "call: replace",
            Change::Remove(_) if heir.is_some() => "call: hand over and remove",
            Change::Remove(_) => "call: remove",
        },
        Step::Renew { .. } => "renew the logs",
        Step::Restart { spared: false, .. } => "restart: delete",
        Step::Restart { heir: Some(_), .. } => "restart: hand over and evict",
        Step::Restart { .. } => "restart: evict",
        Step::DeletePod { why, .. } => match why {
            Leaving::OldEpoch => "delete a pod: old epoch",
            Leaving::NotAMember => "delete a pod: not a member",
            Leaving::Finished => "delete a pod: finished",
            Leaving::MakesWay => "delete a pod: makes way",
            Leaving::Outdated => "delete a pod: outdated",
        },
        Step::DeleteClaim { why, .. } => match why {
            Leaving::OldEpoch => "delete a claim: old epoch",
            Leaving::NotAMember => "delete a claim: not a member",
            Leaving::Finished | Leaving::MakesWay | Leaving::Outdated => "delete a claim: for no reason",
        },
    }
}

fn wait(wait: &Wait) -> &'static str {
    match wait {
        Wait::Reading(_) => "wait: reading",
        Wait::Paused => "wait: paused",
        Wait::Contradiction => "wait: contradiction",
        Wait::NothingLeft(_) => "wait: nothing left",
        Wait::OldEpochGoes => "wait: old epoch goes",
        Wait::FormerGoes(_) => "wait: former goes",
        Wait::SeedStarts(_) => "wait: seed starts",
        Wait::NoQuorum => "wait: no quorum",
        Wait::Settling(_) => "wait: settling",
        Wait::Joining(_) => "wait: joining",
        Wait::CatchingUp(_) => "wait: catching up",
        Wait::AddUnsafe => "wait: add unsafe",
        Wait::Patience(_) => "wait: patience",
        Wait::NameTaken(_) => "wait: name taken",
        Wait::AuthorityLost(_) => "wait: authority lost",
        Wait::Strangers(_) => "wait: strangers",
        Wait::Replacing(_) => "wait: replacing",
        Wait::Enough(..) => "wait: enough",
        Wait::Window(_) => "wait: window",
        Wait::Unwell(_) => "wait: unwell",
        Wait::TooFew => "wait: too few",
        Wait::Misnamed(..) => "wait: misnamed",
        Wait::Growing(_) => "wait: growing",
        Wait::NotRenewed(_) => "wait: not renewed",
    }
}
