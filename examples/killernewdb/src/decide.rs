//! What is to be done: a pure function of the facts. The rules are asked in order, and the first that wants something wins.

use evenkeel_runtime::{Observed, Plan, Presence, Requeue, SimpleReconciler};

use crate::facts::{Deed, Facts, Ledger, Member};
use crate::member::{List, majority};
use crate::operator::Operator;
use crate::resource::Status;

/// What a rule comes to: something to do, nothing, or what it waits for.
type Next = Result<Option<Deed>, String>;

/// Decides what to do now.
pub fn decide(facts: &Facts) -> Plan<SimpleReconciler<Operator>> {
    let (disruption, waits) = match next(facts) {
        Ok(action) => (action, Vec::new()),
        Err(wait) => (None, vec![wait]),
    };
    Plan {
        create: creates(facts),
        apply: (!facts.service)
            .then_some(Deed::Service)
            .into_iter()
            .collect(),
        // Members start, and learn of lists, without an event in Kubernetes.
        requeue: if waits.is_empty() {
            Requeue::OnChange
        } else {
            Requeue::Poll
        },
        disruption,
        waits,
        ..Plan::default()
    }
}

/// Returns the status that users see.
pub fn status(facts: &Facts, plan: &Plan<SimpleReconciler<Operator>>) -> Status {
    let listed = facts.latest().map_or(&[][..], |list| &list.members);
    let ready = listed.iter().filter(|name| facts.answers(name)).count();
    let phrase = match (&plan.disruption, plan.waits.first()) {
        (Some(action), _) => format!("About to {action}"),
        (None, Some(wait)) => format!("Waiting for {wait}"),
        (None, None) => "Healthy".to_owned(),
    };
    Status {
        members: listed.len(),
        ready: format!("{ready}/{}", facts.wanted),
        phrase,
        waiting_for: plan.waits.first().cloned(),
    }
}

/// What must exist: the ledger before all else, a claim for who is being brought in, and a pod on every claim.
fn creates(facts: &Facts) -> Vec<Deed> {
    let Some(ledger) = &facts.ledger else {
        let first = Ledger {
            next: 1,
            founded: false,
            joining: Some(format!("{}-0", facts.name)),
        };
        return facts
            .members
            .is_empty()
            .then_some(Deed::Ledger(first))
            .into_iter()
            .collect();
    };
    let claimless =
        |name: &String| facts.is_new(name) && facts.member(name).claim == Presence::Absent;
    let claim = ledger.joining.clone().filter(claimless).map(Deed::Claim);
    let podless = facts.members.iter().filter(|(name, member)| {
        (member.claim, member.pod) == (Presence::Present, Presence::Absent)
            && !facts.is_left_over(name)
    });
    claim
        .into_iter()
        .chain(podless.map(|(name, _)| Deed::Pod(name.clone())))
        .collect()
}

/// The one step that may disturb.
fn next(facts: &Facts) -> Next {
    let Some(ledger) = &facts.ledger else {
        let gone = "somebody: there are members, but the ledger is gone; restore it from a backup";
        return if facts.members.is_empty() {
            Ok(None)
        } else {
            Err(gone.to_owned())
        };
    };
    // In the way of another: one that has ended, or that was created when its volume was about to go.
    let in_the_way = facts.members.iter().find(|(name, member)| {
        let baseless = (member.claim, member.pod) == (Presence::Absent, Presence::Present);
        member.finished || baseless && !facts.is_new(name)
    });
    match (in_the_way, facts.in_force(), facts.latest()) {
        (Some((name, _)), _, _) => Ok(Some(Deed::DeletePod(name.clone()))),
        _ if !ledger.founded => found(facts, ledger),
        (_, Some(list), _) => keep(facts, ledger, list),
        (_, None, Some(list)) => take_over(facts, list),
        _ if facts.members.keys().all(|name| facts.is_lost(name)) => {
            Err("somebody: all data is gone; delete the resource to begin anew".to_owned())
        }
        _ => Err("a member to answer".to_owned()),
    }
}

/// Before the database was founded nothing can be lost: it is tried until it is seen to be done.
fn found(facts: &Facts, ledger: &Ledger) -> Next {
    let seed = ledger.joining.clone().unwrap_or_default();
    match facts.member(&seed).list {
        Observed::Absent => Ok(Some(Deed::Found(seed))),
        Observed::Present(_) => swap(
            ledger,
            Ledger {
                founded: true,
                joining: None,
                ..ledger.clone()
            },
        ),
        Observed::Unknown => Err(format!("{seed} to answer")),
    }
}

/// The primary does not tell of its list: if it is gone for good, the next in the list takes its place.
fn take_over(facts: &Facts, list: &List) -> Next {
    let left: Vec<_> = list
        .members
        .iter()
        .filter(|name| !facts.is_lost(name))
        .cloned()
        .collect();
    if left.first() == list.members.first() {
        return Err(format!(
            "the primary to answer, which is {}",
            left.join(" of ")
        ));
    }
    let (of, answer) = (
        list.members.len(),
        left.iter().filter(|name| facts.answers(name)).count(),
    );
    // One of every majority must be among those that answer: answer + majority > of.
    if answer + majority(of) <= of || !left.first().is_some_and(|heir| facts.answers(heir)) {
        return Err(format!(
            "more of {} to answer: the primary's data is gone",
            left.join(", ")
        ));
    }
    change(facts, list, left)
}

/// The list is in force: the lost leave it, what was begun is finished, and it becomes as long as wanted.
fn keep(facts: &Facts, ledger: &Ledger, list: &List) -> Next {
    let here: Vec<_> = list
        .members
        .iter()
        .filter(|name| !facts.is_lost(name))
        .cloned()
        .collect();
    // Everybody must hear of a change, or no write is taken: none is begun while somebody is silent.
    let silent = |name: &&String| !facts.is_lost(name) && !facts.answers(name);
    if let Some(silent) = list.members.iter().chain(&list.former).find(silent) {
        return Err(format!("{silent} to answer"));
    }
    // The founder's list takes no writes: the next one of the same members does.
    if here != list.members || !list.settled || list.version == 1 {
        return change(facts, list, here);
    }
    let left_over = facts
        .members
        .iter()
        .find(|(name, _)| facts.is_left_over(name));
    match (ledger.joining.clone(), left_over) {
        (Some(joined), _) if here.contains(&joined) => swap(
            ledger,
            Ledger {
                joining: None,
                ..ledger.clone()
            },
        ),
        (Some(joins), _) if facts.member(&joins).list.is_unknown() => {
            Err(format!("{joins} to start"))
        }
        (Some(joins), _) => change(facts, list, [here, vec![joins]].concat()),
        (
            None,
            Some((
                name,
                Member {
                    pod: Presence::Present,
                    ..
                },
            )),
        ) => Ok(Some(Deed::DeletePod(name.clone()))),
        (
            None,
            Some((
                name,
                Member {
                    pod: Presence::Absent,
                    claim: Presence::Present,
                    ..
                },
            )),
        ) => Ok(Some(Deed::DeleteClaim(name.clone()))),
        (None, Some((name, _))) => Err(format!("what is left of {name} to go")),
        (None, None) if here.len() < usize::from(facts.wanted) => {
            let joining = Some(format!("{}-{}", facts.name, ledger.next));
            swap(
                ledger,
                Ledger {
                    next: ledger.next + 1,
                    joining,
                    ..ledger.clone()
                },
            )
        }
        // The primary is the first, and stays.
        (None, None) if here.len() > usize::from(facts.wanted) => {
            change(facts, list, here[..here.len() - 1].to_vec())
        }
        (None, None) => Ok(None),
    }
}

fn swap(from: &Ledger, to: Ledger) -> Next {
    Ok(Some(Deed::Swap {
        from: from.clone(),
        to,
    }))
}

fn change(facts: &Facts, list: &List, members: Vec<String>) -> Next {
    let known = list.members.iter().chain(&list.former).cloned();
    let lost = known.filter(|name| facts.is_lost(name)).collect();
    Ok(Some(Deed::Change {
        version: list.version,
        members,
        lost,
    }))
}

impl Facts {
    fn member(&self, name: &str) -> Member {
        self.members.get(name).cloned().unwrap_or_default()
    }

    /// Whether a member's data is gone for good: its volume, with nobody left who runs on it, or what was on it. That somebody
    /// does not answer says nothing.
    fn is_lost(&self, name: &str) -> bool {
        let Member {
            claim, pod, list, ..
        } = self.member(name);
        (claim, pod) == (Presence::Absent, Presence::Absent) || list.is_absent()
    }

    fn answers(&self, name: &str) -> bool {
        self.member(name).list.is_present()
    }

    /// The latest list that anybody tells of.
    fn latest(&self) -> Option<&List> {
        self.members
            .values()
            .filter_map(|member| member.list.present())
            .max_by_key(|list| list.version)
    }

    /// The list, told by its own primary: only then is it known to be in force.
    fn in_force(&self) -> Option<&List> {
        let latest = self.latest()?;
        let primary = self.members.get(latest.members.first()?)?;
        primary
            .list
            .present()
            .filter(|own| own.version == latest.version)
    }

    fn joins(&self, name: &String) -> bool {
        self.ledger
            .as_ref()
            .is_some_and(|ledger| ledger.joining.as_ref() == Some(name))
    }

    /// Whether a member is known to be on its way in, and not listed yet: it has nothing to lose.
    fn is_new(&self, name: &String) -> bool {
        let founded = self.ledger.as_ref().is_some_and(|ledger| ledger.founded);
        self.joins(name)
            && self
                .in_force()
                .map_or(!founded, |list| !list.members.contains(name))
    }

    /// Whether something is known to be of nobody: not listed, not on its way in, and everybody knows.
    fn is_left_over(&self, name: &String) -> bool {
        !self.joins(name)
            && self
                .in_force()
                .is_some_and(|list| list.settled && !list.members.contains(name))
    }
}
