//! Decisions in situations that the explored world does not bring about, and the plainest ones as examples.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel::{Engine, Plan, Seen, Time, Wake};
use evenkeel_api::Version;
use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::{Claim, Cluster, Disrupt, Facts, GoesWith, Storage};
use evenkeel_etcd::identity::{ClusterId, Identity, Uid};
use evenkeel_etcd::names::{Epoch, Lineage, Serial};
use evenkeel_etcd::plan::{Create, Wait, What};

const VERSION: Version = Version::new(3, 6, 16);

/// A resource that was just created, seen for the first time.
fn new_cluster() -> Facts {
    Facts {
        now: Time(1_000),
        fresh_lineage: Lineage(7),
        cluster: Cluster {
            resource: Uid(1),
            members: 3,
            storage: Storage::Persistent,
            deleted: false,
            created: Time(990),
            paused: false,
            known: None,
            max_learners: 2,
            patience: Duration::from_secs(60),
            replace_after: Duration::from_secs(300),
            keep_removed_for: Duration::ZERO,
            owns_data: false,
            disrupt: Disrupt::Now,
            version: VERSION,
            next: None,
            inputs: Uid(0),
            restart: None,
            size: 0,
        },
        identity: Seen::Absent,
        claims: Seen::Present(Vec::new()),
        written: BTreeSet::new(),
        pods: Seen::Present(Vec::new()),
        membership: Seen::Unknown,
        voices: BTreeMap::new(),
        silent: BTreeMap::new(),
        amiss: BTreeMap::new(),
        secrets_again: None,
        budget: Seen::Absent,
        identity_goes: GoesWith::Nothing,
        accepted: true,
        served: Seen::Unknown,
        about: BTreeMap::new(),
    }
}

fn waits(plan: &Plan<Etcd>) -> &[Wait] {
    assert!(plan.is_quiet(), "it waits and yet does something: {plan:?}");
    &plan.status.waits
}

#[test]
fn a_new_resource_gets_an_identity_before_anything_else() {
    let plan = Etcd::decide(&new_cluster());
    let [Create::Identity(identity)] = plan.create.as_slice() else { panic!("{plan:?}") };
    assert!(!identity.sealed && identity.seed == Serial(0) && identity.next == Serial(1));
    assert_eq!(identity.epoch, Epoch::FIRST);
    assert!(plan.step.is_none() && plan.mark.is_empty());
}

#[test]
fn what_could_not_be_read_is_not_taken_for_absent() {
    let facts = Facts { identity: Seen::Unknown, ..new_cluster() };
    assert_eq!(waits(&Etcd::decide(&facts)), [Wait::Reading(What::Identity)]);
    let facts = Facts { claims: Seen::Unknown, ..new_cluster() };
    let plan = Etcd::decide(&facts);
    assert_eq!(waits(&plan), [Wait::Reading(What::Objects)]);
    assert!(matches!(plan.wake, Wake::At(at) if at > facts.now), "somebody must look again");
}

fn claim(serial: u16, epoch: Epoch, joined: bool) -> Claim {
    let (uid, volume) = (Uid(u128::from(serial) + 9), Uid(u128::from(serial) + 90));
    Claim {
        serial: Serial(serial),
        epoch,
        uid,
        volume: Some(volume),
        joined_on: joined.then_some((uid, volume)),
        deleting: false,
        reach: evenkeel_etcd::facts::Reach::Unknown,
        lost: false,
        removed: None,
        version: Some(VERSION),
        owned: false,
        size: 0,
        grows: false,
        moves: false,
        misplaced: false,
    }
}

/// A cluster of which claims are left, and no identity.
fn without_an_identity(claims: Vec<Claim>) -> Facts {
    let written = BTreeSet::from([Some(Lineage(5))]);
    Facts { claims: Seen::Present(claims), written, ..new_cluster() }
}

fn rebuilt(facts: &Facts) -> Identity {
    let plan = Etcd::decide(facts);
    assert!(plan.step.is_none() && plan.mark.is_empty() && plan.apply.is_empty(), "{plan:?}");
    match plan.create.as_slice() {
        [Create::Identity(identity)] => identity.clone(),
        _ => unreachable!("it is not rebuilt: {plan:?}"),
    }
}

#[test]
fn an_identity_that_was_deleted_is_rebuilt_from_what_is_left() {
    let later = Epoch::FIRST.next();
    let mut facts = without_an_identity(vec![
        claim(2, Epoch::FIRST, true),
        claim(4, later, true),
        claim(6, later, false),
    ]);
    facts.cluster.known = Some(ClusterId(5));
    let identity = rebuilt(&facts);
    assert!(identity.sealed, "somebody has joined, so there may be data");
    assert_eq!((identity.lineage, identity.epoch), (Lineage(5), later));
    assert_eq!(identity.cluster, Some(ClusterId(5)));
    assert!(identity.next > Serial(6), "no serial is used again");
}

#[test]
fn what_nobody_ever_joined_begins_again_under_new_names() {
    let identity = rebuilt(&without_an_identity(vec![claim(2, Epoch::FIRST, false)]));
    assert!(!identity.sealed && identity.epoch == Epoch::FIRST.next() && identity.seed > Serial(2));
}

#[test]
fn what_contradicts_itself_is_left_alone() {
    let mut facts = without_an_identity(vec![claim(2, Epoch::FIRST, true)]);
    facts.written.insert(Some(Lineage(6)));
    assert_eq!(waits(&Etcd::decide(&facts)), [Wait::Contradiction]);
    facts.written = BTreeSet::from([None]);
    assert_eq!(waits(&Etcd::decide(&facts)), [Wait::Contradiction], "what cannot be read");
    // The status knows of a cluster, and nobody of having joined it.
    let mut facts = without_an_identity(vec![claim(2, Epoch::FIRST, false)]);
    facts.cluster.known = Some(ClusterId(5));
    assert_eq!(waits(&Etcd::decide(&facts)), [Wait::Contradiction]);
}

#[test]
fn a_cluster_of_which_nothing_is_left_is_not_made_anew_empty() {
    let mut facts = new_cluster();
    facts.cluster.known = Some(ClusterId(5));
    assert_eq!(waits(&Etcd::decide(&facts)), [Wait::NothingLeft(ClusterId(5))]);
}

#[test]
fn a_paused_cluster_is_left_alone_and_a_deleted_one_goes_by_itself() {
    let mut facts = new_cluster();
    facts.cluster.paused = true;
    assert_eq!(waits(&Etcd::decide(&facts)), [Wait::Paused]);
    facts.cluster.deleted = true;
    assert_eq!(waits(&Etcd::decide(&facts)), []);
}

#[test]
fn facts_and_plans_are_plain_data() {
    let facts = new_cluster();
    let plan = Etcd::decide(&facts);
    let kept = serde_json::to_string(&(&facts, &plan)).unwrap();
    let (facts_again, plan_again): (Facts, Plan<Etcd>) = serde_json::from_str(&kept).unwrap();
    assert_eq!((facts_again, plan_again), (facts, plan));
}

#[test]
fn what_went_with_a_former_resource_is_waited_for_and_never_taken_up() {
    let first = Etcd::decide(&new_cluster()).create;
    let [Create::Identity(identity)] = first.as_slice() else { panic!("{first:?}") };
    for sealed in [false, true] {
        let identity = Seen::Present(Identity { sealed, resource: Uid(99), ..identity.clone() });
        let facts = Facts { identity, identity_goes: GoesWith::Former, ..new_cluster() };
        let plan = Etcd::decide(&facts);
        assert_eq!(waits(&plan), [Wait::FormerGoes(Time(1_050))]);
        assert_eq!(plan.wake, Wake::At(Time(1_050)), "by then it should be gone");
    }
    // Its members had joined: what is rebuilt of such claims would be a sealed cluster, and they are gone in a moment.
    let going = |serial| Claim { deleting: true, ..claim(serial, Epoch::FIRST, true) };
    let with = |claims: Vec<Claim>| {
        let written = BTreeSet::from([Some(Lineage(7))]);
        Etcd::decide(&Facts { claims: Seen::Present(claims), written, ..new_cluster() })
    };
    assert_eq!(waits(&with(vec![going(0), going(1)])), [Wait::FormerGoes(Time(1_050))]);
    let plan = with(vec![going(0), claim(1, Epoch::FIRST, true)]);
    assert!(matches!(plan.create.as_slice(), [Create::Identity(identity)] if identity.sealed), "{plan:?}");
}
