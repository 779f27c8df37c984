//! The decision: a pure function from facts to a plan. The rules are asked in order, and the first that acts or blocks
//! wins.

use evenkeel_kit::rules::{self, PlanBuilder};
use evenkeel_runtime::{Observed, Plan, Presence, Requeue, SimpleReconciler};

use crate::facts::{DbAction, DbFacts, DbLedger, MemberFacts};
use crate::member::{MemberList, majority};
use crate::operator::KillerNewDbEngine;
use crate::resource::KillerNewDbStatus;

/// The result of a rule: actions, a wait, or nothing.
type RuleResult = rules::RuleResult<SimpleReconciler<KillerNewDbEngine>>;

/// The facts of a database that has a ledger.
type View<'f> = (&'f DbFacts, &'f DbLedger);

/// The rules in the order in which they are asked.
const RULES: [fn(&View<'_>) -> RuleResult; 6] = [
    create_members,
    delete_obsolete_pods,
    bootstrap,
    find_list,
    replace_primary,
    maintain,
];

/// Returns the plan for these facts.
pub fn decide(facts: &DbFacts) -> Plan<SimpleReconciler<KillerNewDbEngine>> {
    let mut builder = PlanBuilder::default();
    match &facts.ledger {
        Some(ledger) => builder.ask(&(facts, ledger), &RULES),
        None => {
            builder.add(create_ledger(facts));
        }
    }
    if !facts.has_service {
        builder.actions().apply.push(DbAction::CreateService);
    }
    // Members start and receive lists without an event in Kubernetes.
    builder.finish(|_| Requeue::Poll)
}

/// Returns the status that users see.
pub fn status(
    facts: &DbFacts,
    plan: &Plan<SimpleReconciler<KillerNewDbEngine>>,
) -> KillerNewDbStatus {
    let listed = facts.latest().map_or(&[][..], |list| &list.members);
    let ready = listed
        .iter()
        .filter(|name| facts.is_reachable(name))
        .count();
    let summary = match (&plan.disruption, plan.waits.first()) {
        (Some(action), _) => format!("About to {action}"),
        (None, Some(wait)) => format!("Waiting for {wait}"),
        (None, None) => "Healthy".to_owned(),
    };
    KillerNewDbStatus {
        members: listed.len(),
        ready: format!("{ready}/{}", facts.desired),
        summary,
        waiting_for: plan.waits.first().cloned(),
    }
}

/// Creates the ledger of a new database.
fn create_ledger(facts: &DbFacts) -> RuleResult {
    if !facts.members.is_empty() {
        let missing = "the ledger: members exist, but the ledger is missing. Restore the ConfigMap from a backup";
        return RuleResult::Block(missing.to_owned());
    }
    RuleResult::create(vec![DbAction::CreateLedger(DbLedger {
        next: 1,
        bootstrapped: false,
        joining: Some(format!("{}-0", facts.name)),
    })])
}

/// Creates a PersistentVolumeClaim for the joining member, and a Pod for every PersistentVolumeClaim.
fn create_members(&(facts, ledger): &View<'_>) -> RuleResult {
    let needs_claim =
        |name: &String| facts.is_new(name) && facts.member(name).claim == Presence::Absent;
    let claim = ledger
        .joining
        .clone()
        .filter(needs_claim)
        .map(DbAction::CreateClaim);
    let without_pod = facts.members.iter().filter(|(name, member)| {
        (member.claim, member.pod) == (Presence::Present, Presence::Absent)
            && !facts.is_leftover(name)
    });
    let pods = without_pod.map(|(name, _)| DbAction::CreatePod(name.clone()));
    RuleResult::CreateAndContinue(claim.into_iter().chain(pods).collect())
}

/// Deletes a Pod that has finished, or that was created while its PersistentVolumeClaim was Terminating.
fn delete_obsolete_pods(&(facts, _): &View<'_>) -> RuleResult {
    let obsolete = facts.members.iter().find(|(name, member)| {
        let has_no_volume = (member.claim, member.pod) == (Presence::Absent, Presence::Present);
        member.is_finished || has_no_volume && !facts.is_new(name)
    });
    match obsolete {
        Some((name, _)) => RuleResult::disruption(DbAction::DeletePod(name.clone())),
        None => RuleResult::Pass,
    }
}

/// Bootstraps the database. Before the bootstrap there is no data to lose, so it is repeated until it is observed.
fn bootstrap(&(facts, ledger): &View<'_>) -> RuleResult {
    if ledger.bootstrapped {
        return RuleResult::Pass;
    }
    let seed = ledger.joining.clone().unwrap_or_default();
    match facts.member(&seed).list {
        Observed::Absent => RuleResult::disruption(DbAction::Bootstrap(seed)),
        Observed::Present(_) => update_ledger(
            ledger,
            DbLedger {
                bootstrapped: true,
                joining: None,
                ..ledger.clone()
            },
        ),
        Observed::Unknown => RuleResult::Block(format!("{seed} to answer")),
    }
}

/// Blocks the rules that need a member list.
fn find_list(&(facts, _): &View<'_>) -> RuleResult {
    if facts.latest().is_some() {
        return RuleResult::Pass;
    }
    let all_lost = facts.members.keys().all(|name| facts.is_lost(name));
    RuleResult::Block(if all_lost {
        "a person: all data is lost. Delete the resource to start again".to_owned()
    } else {
        "a member to answer".to_owned()
    })
}

/// Handles a primary that does not report its list: if its data is lost, the next member in the list replaces it.
fn replace_primary(&(facts, _): &View<'_>) -> RuleResult {
    let Some(list) = facts.latest().filter(|_| facts.in_force().is_none()) else {
        return RuleResult::Pass;
    };
    let left: Vec<_> = list
        .members
        .iter()
        .filter(|name| !facts.is_lost(name))
        .cloned()
        .collect();
    if left.first() == list.members.first() {
        return RuleResult::Block(format!(
            "the primary to answer, which is {}",
            left.join(" of ")
        ));
    }
    let (total, reachable) = (
        list.members.len(),
        left.iter().filter(|name| facts.is_reachable(name)).count(),
    );
    // Every majority must contain a reachable member: reachable + majority > total.
    if reachable + majority(total) <= total
        || !left.first().is_some_and(|name| facts.is_reachable(name))
    {
        return RuleResult::Block(format!(
            "more of {} to answer: the data of the primary is lost",
            left.join(", ")
        ));
    }
    change(facts, list, left)
}

/// Maintains a list that is in force: removes lost members, finishes changes in progress, and scales.
fn maintain(&(facts, ledger): &View<'_>) -> RuleResult {
    let Some(list) = facts.in_force() else {
        return RuleResult::Pass;
    };
    let here: Vec<_> = list
        .members
        .iter()
        .filter(|name| !facts.is_lost(name))
        .cloned()
        .collect();
    // Writes wait until every member has a new list, so no change starts while a member is unreachable.
    let is_unreachable = |name: &&String| !facts.is_lost(name) && !facts.is_reachable(name);
    if let Some(name) = list.members.iter().chain(&list.former).find(is_unreachable) {
        return RuleResult::Wait(format!("{name} to answer"));
    }
    // The bootstrap list accepts no writes; the next list of the same members does.
    if here != list.members || !list.settled || list.version == 1 {
        return change(facts, list, here);
    }
    let leftover = facts
        .members
        .iter()
        .find(|(name, _)| facts.is_leftover(name));
    match (ledger.joining.clone(), leftover) {
        (Some(joined), _) if here.contains(&joined) => update_ledger(
            ledger,
            DbLedger {
                joining: None,
                ..ledger.clone()
            },
        ),
        (Some(new), _) if facts.member(&new).list.is_unknown() => {
            RuleResult::Wait(format!("{new} to start"))
        }
        (Some(new), _) => change(facts, list, [here, vec![new]].concat()),
        (
            None,
            Some((
                name,
                MemberFacts {
                    pod: Presence::Present,
                    ..
                },
            )),
        ) => RuleResult::disruption(DbAction::DeletePod(name.clone())),
        (
            None,
            Some((
                name,
                MemberFacts {
                    pod: Presence::Absent,
                    claim: Presence::Present,
                    ..
                },
            )),
        ) => RuleResult::disruption(DbAction::DeleteClaim(name.clone())),
        (None, Some((name, _))) => RuleResult::Wait(format!("the objects of {name} to be deleted")),
        (None, None) if here.len() < usize::from(facts.desired) => {
            let joining = Some(format!("{}-{}", facts.name, ledger.next));
            update_ledger(
                ledger,
                DbLedger {
                    next: ledger.next + 1,
                    joining,
                    ..ledger.clone()
                },
            )
        }
        // The primary is the first in the list, and stays.
        (None, None) if here.len() > usize::from(facts.desired) => {
            change(facts, list, here[..here.len() - 1].to_vec())
        }
        (None, None) => RuleResult::Pass,
    }
}

fn update_ledger(from: &DbLedger, to: DbLedger) -> RuleResult {
    RuleResult::disruption(DbAction::UpdateLedger {
        from: from.clone(),
        to,
    })
}

fn change(facts: &DbFacts, list: &MemberList, members: Vec<String>) -> RuleResult {
    let known = list.members.iter().chain(&list.former).cloned();
    let lost = known.filter(|name| facts.is_lost(name)).collect();
    RuleResult::disruption(DbAction::ChangeMembers {
        version: list.version,
        members,
        lost,
    })
}

impl DbFacts {
    fn member(&self, name: &str) -> MemberFacts {
        self.members.get(name).cloned().unwrap_or_default()
    }

    /// Returns true if the data of a member is lost: its PersistentVolumeClaim and its Pod are gone, or the member reports
    /// that it has no data. An unreachable member is no evidence.
    fn is_lost(&self, name: &str) -> bool {
        let MemberFacts {
            claim, pod, list, ..
        } = self.member(name);
        (claim, pod) == (Presence::Absent, Presence::Absent) || list.is_absent()
    }

    fn is_reachable(&self, name: &str) -> bool {
        self.member(name).list.is_present()
    }

    /// Returns the latest list that a member reports.
    fn latest(&self) -> Option<&MemberList> {
        self.members
            .values()
            .filter_map(|member| member.list.present())
            .max_by_key(|list| list.version)
    }

    /// Returns the latest list, if its own primary reports it: only then is the list known to be in force.
    fn in_force(&self) -> Option<&MemberList> {
        let latest = self.latest()?;
        let primary = self.members.get(latest.members.first()?)?;
        primary
            .list
            .present()
            .filter(|own| own.version == latest.version)
    }

    fn is_joining(&self, name: &String) -> bool {
        self.ledger
            .as_ref()
            .is_some_and(|ledger| ledger.joining.as_ref() == Some(name))
    }

    /// Returns true if a member joins and is not listed yet: it has no data to lose.
    fn is_new(&self, name: &String) -> bool {
        let bootstrapped = self
            .ledger
            .as_ref()
            .is_some_and(|ledger| ledger.bootstrapped);
        self.is_joining(name)
            && self
                .in_force()
                .map_or(!bootstrapped, |list| !list.members.contains(name))
    }

    /// Returns true if a member has left: it neither joins nor is listed, and every member has the list.
    fn is_leftover(&self, name: &String) -> bool {
        !self.is_joining(name)
            && self
                .in_force()
                .is_some_and(|list| list.settled && !list.members.contains(name))
    }
}
