//! What an etcd SRE would do now. Rules are asked in a fixed order, each a function of the facts; the first that wants
//! something wins, and the others say what they wait for.

mod add;
mod begin;
pub(crate) mod dead;
mod epoch;
mod grow;
mod intent;
mod join;
mod objects;
mod place;
mod promote;
mod quorum;
mod recreate;
mod renew;
mod roll;
mod route;
mod seal;
mod shrink;
mod strangers;
mod tidy;

use std::time::Duration;

use evenkeel::{Engine, Plan, Time, Wake};
use serde::{Deserialize, Serialize};

use crate::facts::{Facts, GoesWith};
use crate::identity::{Change, Identity, Intent};
use crate::names::Serial;
use crate::plan::{Apply, Create, Mark, Step, Turn, Wait};
use crate::view::View;

/// etcd, as an engine of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etcd;

/// What people are told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What is waited for, most important first.
    pub waits: Vec<Wait>,
}

/// What a rule says.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// This is to be done now; no later rule is asked.
    Want(Box<Want>),
    /// It would do something, but not yet. Later rules may act meanwhile.
    Wait(Wait),
    /// Nothing is safe to be done until this ends.
    Halt(Wait),
    /// This is to be done now; later rules may create and mark beside it, and take no step.
    Beside(Box<Step>),
    /// This is to be created, and may be refused for ever (by a quota, say): later rules are asked as if it were there soon.
    Along(Vec<Create>),
    /// It is content.
    Pass,
}

/// What a rule wants done.
#[derive(Debug, Default)]
pub(crate) struct Want {
    create: Vec<Create>,
    mark: Vec<Mark>,
    apply: Vec<Apply>,
    step: Option<Step>,
}

impl Verdict {
    fn step(step: Step) -> Self {
        Self::Want(Box::new(Want { step: Some(step), ..Want::default() }))
    }

    fn mark(mark: Mark) -> Self {
        Self::Want(Box::new(Want { mark: vec![mark], ..Want::default() }))
    }

    fn create(create: Vec<Create>) -> Self {
        Self::Want(Box::new(Want { create, ..Want::default() }))
    }

    /// Swaps the identity for what `change` makes of it.
    fn turn(identity: &Identity, why: Turn, change: impl FnOnce(&mut Identity)) -> Self {
        let mut to = identity.clone();
        change(&mut to);
        Self::step(Step::Identity { from: identity.clone(), to, why })
    }

    /// Asks etcd for a change of the membership.
    fn call(view: &View<'_>, change: Change) -> Self {
        Self::intend(view, intent_to(view, change))
    }

    /// Asks etcd to remove a member that might have come back.
    fn replace(view: &View<'_>, member: Serial) -> Self {
        Self::intend(view, Intent { replaces: true, ..intent_to(view, Change::Remove(member)) })
    }

    /// Asks etcd for what was intended.
    fn intend(view: &View<'_>, intent: Intent) -> Self {
        let heir = match intent.change {
            Change::Remove(serial) => view.heir_of(serial),
            Change::Add(_) | Change::Promote(_) | Change::Expel(_) => None,
        };
        Self::step(Step::Call { from: view.identity.clone(), intent, heir })
    }
}

fn intent_to(view: &View<'_>, change: Change) -> Intent {
    let intent = Intent::to(change, view.voter_list(), view.facts.now);
    Intent { strangers: view.strange_voters(), ..intent }
}

type Rule = fn(&View<'_>) -> Verdict;

/// The order in which rules are asked, once there is an identity.
const RULES: [Rule; 21] = [
    objects::needed,
    epoch::clear,
    begin::start_seed,
    place::make_way,
    recreate::pods,
    recreate::ended,
    roll::idle,
    quorum::check,
    intent::settle,
    begin::note_cluster,
    strangers::expel,
    dead::remove,
    place::give_back,
    tidy::leavers,
    join::resume,
    promote::learner,
    add::member,
    seal::epoch,
    shrink::member,
    roll::serving,
    renew::logs,
];

impl Engine for Etcd {
    type Facts = Facts;
    type Create = Create;
    type Apply = Apply;
    type Mark = Mark;
    type Step = Step;
    type Status = Status;

    fn decide(facts: &Facts) -> Plan<Self> {
        let mut draft = Draft::default();
        draft.ask(facts);
        draft.finish(facts)
    }
}

/// A plan in the making.
#[derive(Debug, Default)]
struct Draft {
    want: Want,
    waits: Vec<Wait>,
    beside: Option<Step>,
    along: Vec<Create>,
    /// When something is due that nobody waits for.
    until: Option<Time>,
    /// Whether somebody is up by Kubernetes' word, and is yet to be heard.
    unheard: bool,
}

impl Draft {
    fn ask(&mut self, facts: &Facts) {
        let view = match epoch::identify(facts) {
            Ok(view) => view,
            Err(verdict) => {
                self.take(verdict);
                return;
            }
        };
        for rule in RULES {
            if self.take(rule(&view)) {
                break;
            }
        }
        if let Some(step) = self.beside.take() {
            self.want.step = Some(step);
        }
        self.want.create.splice(..0, std::mem::take(&mut self.along));
        // What disturbs nobody waits for nobody.
        begin::prepare(&view, &mut self.want);
        self.want.mark.extend(join::gates(&view));
        self.want.mark.extend(join::versions(&view));
        self.want.mark.extend(join::inputs(&view));
        self.want.mark.extend(grow::claims(&view));
        self.want.mark.extend(route::clients(&view));
        self.want.mark.extend(tidy::removed(&view));
        self.unheard = view
            .registered()
            .any(|member| member.pod.is_some_and(|pod| pod.ready && !pod.deleting) && !member.serves());
        self.until = next_due(&view);
        objects::keep(&view, &mut self.want);
    }

    /// Notes a verdict; says whether it was the last.
    fn take(&mut self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Want(want) => {
                self.want = *want;
                true
            }
            Verdict::Halt(wait) => {
                self.waits.push(wait);
                true
            }
            Verdict::Wait(wait) => {
                if !self.waits.contains(&wait) {
                    self.waits.push(wait);
                }
                false
            }
            Verdict::Beside(step) => {
                self.beside = Some(*step);
                false
            }
            Verdict::Along(create) => {
                self.along.extend(create);
                false
            }
            Verdict::Pass => false,
        }
    }

    fn finish(self, facts: &Facts) -> Plan<Etcd> {
        let stays = facts.identity_goes != GoesWith::Former;
        let sealed = stays && facts.identity.present().is_some_and(|identity| identity.sealed);
        // Whether clients are served is seen by asking only.
        let unasked = self.unheard || (sealed && !facts.served.is_present());
        let asked = if unasked { Wake::Soon } else { Wake::OnChange };
        // Nobody tells when a secret changes.
        let looked = facts.secrets_again.map_or(Wake::OnChange, Wake::At);
        let due = self.until.map_or(Wake::OnChange, Wake::At);
        let wake = self.waits.iter().fold(asked.or(looked).or(due), |wake, wait| wake.or(wait.wake(facts)));
        let Want { create, mark, apply, step } = self.want;
        Plan { create, mark, apply, step, status: Status { waits: self.waits }, wake }
    }
}

/// When something is due of which only the clock tells.
pub(crate) fn due(facts: &Facts, plan: &Plan<Etcd>) -> Option<Time> {
    let next = epoch::identify(facts).ok().as_ref().and_then(next_due);
    // What people must put right is only looked at again.
    let by_hand = |wait: &Wait| {
        matches!(wait, Wait::Reading(_) | Wait::NameTaken(_) | Wait::AuthorityLost(_) | Wait::FormerGoes(_))
    };
    let waits = plan.status.waits.iter().filter(|wait| !by_hand(wait));
    let waits = waits.filter_map(|wait| match wait.wake(facts) {
        Wake::At(time) => Some(time),
        Wake::OnChange | Wake::Soon => None,
    });
    waits.chain(next).filter(|time| *time > facts.now).min()
}

/// When the next thing is due that nobody waits for.
fn next_due(view: &View<'_>) -> Option<Time> {
    let waited_for = dead::waited_for(view).map(|(_, at)| at);
    let silent = begin::silent_until(view).filter(|until| *until > view.facts.now);
    tidy::next(view).into_iter().chain(waited_for).chain(silent).min()
}

impl Wait {
    /// When to look again, beside on any change.
    fn wake(&self, facts: &Facts) -> Wake {
        match self {
            Self::Patience(until) => Wake::At(*until),
            // Nobody tells that it takes too long.
            Self::FormerGoes(until) if *until > facts.now => Wake::At(*until),
            Self::FormerGoes(_) => Wake::OnChange,
            Self::Settling(intent) => Wake::At(intent.since.after(intent::VOID_AFTER)),
            // Secrets are not watched: whether one that is in the way has gone is seen by looking.
            Self::Reading(_) | Self::NameTaken(_) | Self::AuthorityLost(_) => {
                Wake::At(facts.now.after(Duration::from_secs(10)))
            }
            Self::Strangers(strangers) => {
                let unstarted = strangers.iter().filter(|stranger| !stranger.started);
                let first = unstarted.map(|stranger| stranger.since.after(facts.cluster.replace_after)).min();
                first.map_or(Wake::OnChange, Wake::At)
            }
            Self::Enough(_, until) | Self::Window(until) => Wake::At(*until),
            // etcd's own state changes without an event in Kubernetes.
            Self::SeedStarts(_)
            | Self::Joining(_)
            | Self::CatchingUp(_)
            | Self::AddUnsafe
            | Self::Replacing(_)
            | Self::Unwell(_)
            | Self::NotRenewed(_) => Wake::Soon,
            // The prober asks from time to time, and tells when an answer changes.
            Self::Paused
            | Self::Contradiction
            | Self::NothingLeft(_)
            | Self::OldEpochGoes
            | Self::NoQuorum
            | Self::TooFew
            | Self::Growing(_)
            | Self::Misnamed(..) => Wake::OnChange,
        }
    }
}

#[cfg(test)]
#[path = "begin_tests.rs"]
mod begin_tests;

#[cfg(test)]
#[path = "heal_tests.rs"]
mod heal_tests;

#[cfg(test)]
#[path = "place_tests.rs"]
mod place_tests;

#[cfg(test)]
#[path = "roll_tests.rs"]
mod roll_tests;
