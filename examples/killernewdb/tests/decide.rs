//! What is decided, one situation at a time. Everything at once is the explorer's.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use evenkeel_runtime::{Observed, Presence};
use killernewdb::decide::{decide, status};
use killernewdb::facts::{Deed, Facts, Ledger, Member};
use killernewdb::member::List;

fn list(version: u64, members: &[&str]) -> List {
    let members = members.iter().map(ToString::to_string).collect();
    List {
        version,
        members,
        settled: true,
        former: Vec::new(),
    }
}

/// A member that is well and has this list.
fn well(list: &List) -> Member {
    let list = Observed::Present(list.clone());
    Member {
        claim: Presence::Present,
        pod: Presence::Present,
        finished: false,
        list,
    }
}

fn ledger(next: u16, joining: Option<&str>) -> Ledger {
    Ledger {
        next,
        founded: true,
        joining: joining.map(str::to_owned),
    }
}

/// Three members that are well.
fn three() -> Facts {
    let list = list(5, &["d-0", "d-1", "d-2"]);
    let members = list
        .members
        .iter()
        .map(|name| (name.clone(), well(&list)))
        .collect();
    Facts {
        name: "d".to_owned(),
        wanted: 3,
        service: true,
        ledger: Some(ledger(3, None)),
        members,
    }
}

fn member<'f>(facts: &'f mut Facts, name: &str) -> &'f mut Member {
    facts.members.get_mut(name).unwrap()
}

fn change(version: u64, members: &[&str], lost: &[&str]) -> Deed {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Deed::Change {
        version,
        members: names(members),
        lost: names(lost),
    }
}

#[test]
fn what_is_well_is_left_alone() {
    let plan = decide(&three());
    assert!(plan.is_noop());
    let status = status(&three(), &plan);
    assert_eq!(
        (status.phrase.as_str(), status.ready.as_str()),
        ("Healthy", "3/3")
    );
}

#[test]
fn the_ledger_is_opened_only_where_there_is_nothing_at_all() {
    let nothing = Facts {
        name: "d".to_owned(),
        wanted: 1,
        ..Facts::default()
    };
    let first = Ledger {
        next: 1,
        founded: false,
        joining: Some("d-0".to_owned()),
    };
    assert_eq!(decide(&nothing).create, [Deed::Ledger(first)]);
    let plan = decide(&Facts {
        ledger: None,
        ..three()
    });
    assert!(plan.is_noop() && plan.waits[0].contains("the ledger is gone"));
}

#[test]
fn a_pod_that_is_gone_comes_back_on_its_volume() {
    let mut facts = three();
    *member(&mut facts, "d-1") = Member {
        claim: Presence::Present,
        ..Member::default()
    };
    let plan = decide(&facts);
    assert_eq!(plan.create, [Deed::Pod("d-1".to_owned())]);
    assert_eq!(plan.disruption, None, "it is a member, and stays one");
}

#[test]
fn who_does_not_answer_is_waited_for_and_never_replaced() {
    let mut facts = three();
    member(&mut facts, "d-1").list = Observed::Unknown;
    let plan = decide(&facts);
    assert!(plan.is_noop());
    assert_eq!(plan.waits, ["d-1 to answer"]);
}

#[test]
fn who_has_lost_its_volume_leaves_the_list_and_another_is_brought_in() {
    let mut facts = three();
    facts.members.remove("d-1");
    assert_eq!(
        decide(&facts).disruption,
        Some(change(5, &["d-0", "d-2"], &["d-1"]))
    );
    let two = list(6, &["d-0", "d-2"]);
    let members = ["d-0", "d-2"].map(|name| (name.to_owned(), well(&two)));
    let facts = Facts {
        members: members.into(),
        ..three()
    };
    let reserve = Deed::Swap {
        from: ledger(3, None),
        to: ledger(4, Some("d-3")),
    };
    assert_eq!(
        decide(&facts).disruption,
        Some(reserve),
        "under a name that nobody ever had"
    );
}

#[test]
fn a_wiped_volume_is_a_lost_one() {
    let mut facts = three();
    member(&mut facts, "d-2").list = Observed::Absent;
    assert_eq!(
        decide(&facts).disruption,
        Some(change(5, &["d-0", "d-1"], &["d-2"]))
    );
}

#[test]
fn a_lost_primary_is_followed_by_the_next_if_enough_answer() {
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
        "what d-0 and d-2 have acknowledged, d-1 need not have"
    );
    assert!(plan.waits[0].starts_with("more of d-1, d-2 to answer"));
}

#[test]
fn a_primary_that_is_silent_is_not_lost() {
    let mut facts = three();
    member(&mut facts, "d-0").list = Observed::Unknown;
    let plan = decide(&facts);
    assert!(plan.is_noop() && plan.waits[0].starts_with("the primary to answer"));
}

#[test]
fn when_all_data_is_gone_that_is_said_and_nothing_is_founded_anew() {
    let mut facts = three();
    facts
        .members
        .values_mut()
        .for_each(|member| member.list = Observed::Absent);
    let plan = decide(&facts);
    assert!(plan.is_noop() && plan.waits[0].contains("all data is gone"));
}

#[test]
fn who_is_too_many_leaves_the_list_then_loses_its_pod_and_then_its_volume() {
    let fewer = Facts {
        wanted: 2,
        ..three()
    };
    assert_eq!(
        decide(&fewer).disruption,
        Some(change(5, &["d-0", "d-1"], &[]))
    );
    let two = list(6, &["d-0", "d-1"]);
    let members = ["d-0", "d-1", "d-2"].map(|name| (name.to_owned(), well(&two)));
    let mut facts = Facts {
        members: members.into(),
        ..fewer
    };
    assert_eq!(
        decide(&facts).disruption,
        Some(Deed::DeletePod("d-2".to_owned()))
    );
    *member(&mut facts, "d-2") = Member {
        claim: Presence::Present,
        ..Member::default()
    };
    let plan = decide(&facts);
    assert_eq!(
        (plan.create, plan.disruption),
        (vec![], Some(Deed::DeleteClaim("d-2".to_owned())))
    );
    let unsettled = Observed::Present(List {
        settled: false,
        former: vec!["d-2".to_owned()],
        ..two
    });
    member(&mut facts, "d-0").list = unsettled;
    assert_eq!(
        decide(&facts).disruption,
        None,
        "it has not heard of it yet: its pod comes back first"
    );
}

#[test]
fn a_pod_that_has_ended_for_good_makes_way() {
    let mut facts = three();
    let ended = member(&mut facts, "d-2");
    (ended.finished, ended.list) = (true, Observed::Unknown);
    assert_eq!(
        decide(&facts).disruption,
        Some(Deed::DeletePod("d-2".to_owned()))
    );
}
