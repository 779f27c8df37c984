//! The decisions of single situations. The explorer covers their combinations.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use evenkeel_runtime::{Observed, Presence};
use killernewdb::decide::{decide, status};
use killernewdb::facts::{DbAction, DbFacts, DbLedger, MemberFacts};
use killernewdb::member::MemberList;

fn list(version: u64, members: &[&str]) -> MemberList {
    let members = members.iter().map(ToString::to_string).collect();
    MemberList {
        version,
        members,
        settled: true,
        former: Vec::new(),
    }
}

/// Returns a healthy member with this list.
fn healthy(list: &MemberList) -> MemberFacts {
    let list = Observed::Present(list.clone());
    MemberFacts {
        claim: Presence::Present,
        pod: Presence::Present,
        is_finished: false,
        list,
    }
}

fn ledger(next: u16, joining: Option<&str>) -> DbLedger {
    DbLedger {
        next,
        bootstrapped: true,
        joining: joining.map(str::to_owned),
    }
}

/// Returns three healthy members.
fn three() -> DbFacts {
    let list = list(5, &["d-0", "d-1", "d-2"]);
    let members = list
        .members
        .iter()
        .map(|name| (name.clone(), healthy(&list)))
        .collect();
    DbFacts {
        name: "d".to_owned(),
        desired: 3,
        has_service: true,
        ledger: Some(ledger(3, None)),
        members,
    }
}

fn member<'f>(facts: &'f mut DbFacts, name: &str) -> &'f mut MemberFacts {
    facts.members.get_mut(name).unwrap()
}

fn change(version: u64, members: &[&str], lost: &[&str]) -> DbAction {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    DbAction::ChangeMembers {
        version,
        members: names(members),
        lost: names(lost),
    }
}

#[test]
fn a_healthy_database_needs_no_action() {
    let plan = decide(&three());
    assert!(plan.is_noop());
    let status = status(&three(), &plan);
    assert_eq!(
        (status.summary.as_str(), status.ready.as_str()),
        ("Healthy", "3/3")
    );
}

#[test]
fn the_ledger_is_created_only_without_any_members() {
    let nothing = DbFacts {
        name: "d".to_owned(),
        desired: 1,
        ..DbFacts::default()
    };
    let first = DbLedger {
        next: 1,
        bootstrapped: false,
        joining: Some("d-0".to_owned()),
    };
    assert_eq!(decide(&nothing).create, [DbAction::CreateLedger(first)]);
    let plan = decide(&DbFacts {
        ledger: None,
        ..three()
    });
    assert!(plan.is_noop() && plan.waits[0].contains("the ledger is missing"));
}

#[test]
fn a_deleted_pod_is_recreated_on_its_volume() {
    let mut facts = three();
    *member(&mut facts, "d-1") = MemberFacts {
        claim: Presence::Present,
        ..MemberFacts::default()
    };
    let plan = decide(&facts);
    assert_eq!(plan.create, [DbAction::CreatePod("d-1".to_owned())]);
    assert_eq!(plan.disruption, None, "the member stays in the list");
}

#[test]
fn an_unreachable_member_is_not_replaced() {
    let mut facts = three();
    member(&mut facts, "d-1").list = Observed::Unknown;
    let plan = decide(&facts);
    assert!(plan.is_noop());
    assert_eq!(plan.waits, ["d-1 to answer"]);
}

#[test]
fn a_member_without_volume_is_replaced_by_a_new_one() {
    let mut facts = three();
    facts.members.remove("d-1");
    assert_eq!(
        decide(&facts).disruption,
        Some(change(5, &["d-0", "d-2"], &["d-1"]))
    );
    let two = list(6, &["d-0", "d-2"]);
    let members = ["d-0", "d-2"].map(|name| (name.to_owned(), healthy(&two)));
    let facts = DbFacts {
        members: members.into(),
        ..three()
    };
    let reserve = DbAction::UpdateLedger {
        from: ledger(3, None),
        to: ledger(4, Some("d-3")),
    };
    assert_eq!(
        decide(&facts).disruption,
        Some(reserve),
        "with a name that was never used"
    );
}

#[test]
fn a_wiped_volume_is_lost() {
    let mut facts = three();
    member(&mut facts, "d-2").list = Observed::Absent;
    assert_eq!(
        decide(&facts).disruption,
        Some(change(5, &["d-0", "d-1"], &["d-2"]))
    );
}

#[test]
fn a_lost_primary_is_replaced_by_the_next_if_enough_are_reachable() {
    let mut facts = three();
    facts.members.remove("d-0");
    assert_eq!(
        decide(&facts).disruption,
        Some(change(5, &["d-1", "d-2"], &["d-0"]))
    );
    member(&mut facts, "d-2").list = Observed::Unknown;
    let plan = decide(&facts);
    assert!(
        plan.is_noop(),
        "d-1 may miss a write that d-0 and d-2 acknowledged"
    );
    assert!(plan.waits[0].starts_with("more of d-1, d-2 to answer"));
}

#[test]
fn an_unreachable_primary_is_not_lost() {
    let mut facts = three();
    member(&mut facts, "d-0").list = Observed::Unknown;
    let plan = decide(&facts);
    assert!(plan.is_noop() && plan.waits[0].starts_with("the primary to answer"));
}

#[test]
fn lost_data_is_reported_and_the_database_is_not_bootstrapped_again() {
    let mut facts = three();
    facts
        .members
        .values_mut()
        .for_each(|member| member.list = Observed::Absent);
    let plan = decide(&facts);
    assert!(plan.is_noop() && plan.waits[0].contains("all data is lost"));
}

#[test]
fn a_surplus_member_leaves_the_list_before_its_pod_and_its_volume_are_deleted() {
    let fewer = DbFacts {
        desired: 2,
        ..three()
    };
    assert_eq!(
        decide(&fewer).disruption,
        Some(change(5, &["d-0", "d-1"], &[]))
    );
    let two = list(6, &["d-0", "d-1"]);
    let members = ["d-0", "d-1", "d-2"].map(|name| (name.to_owned(), healthy(&two)));
    let mut facts = DbFacts {
        members: members.into(),
        ..fewer
    };
    assert_eq!(
        decide(&facts).disruption,
        Some(DbAction::DeletePod("d-2".to_owned()))
    );
    *member(&mut facts, "d-2") = MemberFacts {
        claim: Presence::Present,
        ..MemberFacts::default()
    };
    let plan = decide(&facts);
    assert_eq!(
        (plan.create, plan.disruption),
        (vec![], Some(DbAction::DeleteClaim("d-2".to_owned())))
    );
    let unsettled = Observed::Present(MemberList {
        settled: false,
        former: vec!["d-2".to_owned()],
        ..two
    });
    member(&mut facts, "d-0").list = unsettled;
    assert_eq!(
        decide(&facts).disruption,
        None,
        "d-2 does not have the list yet: its Pod is recreated first"
    );
}

#[test]
fn a_finished_pod_is_deleted() {
    let mut facts = three();
    let finished = member(&mut facts, "d-2");
    finished.is_finished = true;
    finished.list = Observed::Unknown;
    assert_eq!(
        decide(&facts).disruption,
        Some(DbAction::DeletePod("d-2".to_owned()))
    );
}
