//! Decisions in situations that the explorer does not reach, and simple ones as examples.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_api::Version;
use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::{
    ClaimFacts, ClusterFacts, DisruptionWindow, EtcdFacts, OwnedBy, StorageKind,
};
use evenkeel_etcd::identity::{ClusterId, Identity, Uid};
use evenkeel_etcd::names::{Epoch, Lineage, Serial};
use evenkeel_etcd::plan::{EtcdCreate, EtcdWait, UnreadableObjects};
use evenkeel_runtime::{Engine, Observed, Plan, Requeue, UnixTime};

const VERSION: Version = Version::new(3, 6, 16);

/// A resource that was just created.
fn new_cluster() -> EtcdFacts {
    EtcdFacts {
        now: UnixTime(1_000),
        new_lineage: Lineage(7),
        cluster: ClusterFacts {
            resource_uid: Uid(1),
            members: 3,
            storage: StorageKind::Persistent,
            is_deleted: false,
            created_at: UnixTime(990),
            is_paused: false,
            status_cluster_id: None,
            max_learners: 2,
            bootstrap_timeout: Duration::from_secs(60),
            replace_after: Duration::from_secs(300),
            replace_drained_after: Duration::from_secs(3600),
            keep_removed_for: Duration::ZERO,
            owns_data: false,
            disruption: DisruptionWindow::Allowed,
            version: VERSION,
            next_version: None,
            pod_template_hash: Uid(0),
            restart_request: None,
            volume_size: 0,
            restore: None,
        },
        identity: Observed::Absent,
        claims: Observed::Present(Vec::new()),
        lineages: BTreeSet::new(),
        pods: Observed::Present(Vec::new()),
        restore_pods: Vec::new(),
        restore_request: None,
        source: None,
        membership: Observed::Unknown,
        health: BTreeMap::new(),
        unreachable_since: BTreeMap::new(),
        stuck: None,
        last_nudge: None,
        drift: BTreeMap::new(),
        recheck_secrets_at: None,
        pdb_min_available: Observed::Absent,
        identity_owner: OwnedBy::Unowned,
        spec_recorded: true,
        client_read: Observed::Unknown,
        alarms: BTreeSet::new(),
        details: BTreeMap::new(),
    }
}

fn waits(plan: &Plan<Etcd>) -> &[EtcdWait] {
    assert!(plan.is_noop(), "a wait with an action: {plan:?}");
    &plan.waits
}

#[test]
fn a_new_resource_gets_an_identity_before_anything_else() {
    let plan = Etcd::decide(&new_cluster());
    let [EtcdCreate::Identity(identity)] = plan.create.as_slice() else {
        panic!("{plan:?}")
    };
    assert!(
        !identity.bootstrapped && identity.seed == Serial(0) && identity.next_serial == Serial(1)
    );
    assert_eq!(identity.epoch, Epoch::FIRST);
    assert!(plan.disruption.is_none() && plan.patch.is_empty());
}

#[test]
fn unknown_objects_do_not_count_as_absent() {
    let facts = EtcdFacts {
        identity: Observed::Unknown,
        ..new_cluster()
    };
    assert_eq!(
        waits(&Etcd::decide(&facts)),
        [EtcdWait::Unreadable(UnreadableObjects::Identity)]
    );
    let facts = EtcdFacts {
        claims: Observed::Unknown,
        ..new_cluster()
    };
    let plan = Etcd::decide(&facts);
    assert_eq!(
        waits(&plan),
        [EtcdWait::Unreadable(UnreadableObjects::Objects)]
    );
    assert!(
        matches!(plan.requeue, Requeue::At(at) if at > facts.now),
        "the objects are read again"
    );
}

fn claim(serial: u16, epoch: Epoch, joined: bool) -> ClaimFacts {
    let (uid, volume) = (Uid(u128::from(serial) + 9), Uid(u128::from(serial) + 90));
    ClaimFacts {
        serial: Serial(serial),
        epoch,
        uid,
        volume: Some(volume),
        created_at: UnixTime(900),
        restored: None,
        joined_on: joined.then_some((uid, volume)),
        is_terminating: false,
        topology: evenkeel_etcd::facts::VolumeTopology::Unknown,
        on_cordoned_node: false,
        is_lost: false,
        replaced_until: None,
        removed_at: None,
        last_version: Some(VERSION),
        is_owned: false,
        requested_size: 0,
        resize_pending: false,
        has_wrong_class: false,
        is_misplaced: false,
    }
}

/// A cluster with claims and without an identity.
fn without_an_identity(claims: Vec<ClaimFacts>) -> EtcdFacts {
    EtcdFacts {
        claims: Observed::Present(claims),
        lineages: BTreeSet::from([Some(Lineage(5))]),
        ..new_cluster()
    }
}

fn rebuilt(facts: &EtcdFacts) -> Identity {
    let plan = Etcd::decide(facts);
    assert!(
        plan.disruption.is_none() && plan.patch.is_empty() && plan.apply.is_empty(),
        "{plan:?}"
    );
    match plan.create.as_slice() {
        [EtcdCreate::Identity(identity)] => identity.clone(),
        _ => unreachable!("no identity: {plan:?}"),
    }
}

#[test]
fn a_deleted_identity_is_rebuilt_from_the_claims() {
    let later = Epoch::FIRST.next();
    let mut facts = without_an_identity(vec![
        claim(2, Epoch::FIRST, true),
        claim(4, later, true),
        claim(6, later, false),
    ]);
    facts.cluster.status_cluster_id = Some(ClusterId(5));
    let identity = rebuilt(&facts);
    assert!(
        identity.bootstrapped,
        "a member has joined: there may be data"
    );
    assert_eq!((identity.lineage, identity.epoch), (Lineage(5), later));
    assert_eq!(identity.cluster_id, Some(ClusterId(5)));
    assert!(identity.next_serial > Serial(6), "no serial is used again");
}

#[test]
fn claims_without_a_joined_member_begin_a_new_epoch() {
    let identity = rebuilt(&without_an_identity(vec![claim(2, Epoch::FIRST, false)]));
    assert!(
        !identity.bootstrapped
            && identity.epoch == Epoch::FIRST.next()
            && identity.seed > Serial(2)
    );
}

#[test]
fn inconsistent_claims_are_not_changed() {
    let mut facts = without_an_identity(vec![claim(2, Epoch::FIRST, true)]);
    facts.lineages.insert(Some(Lineage(6)));
    assert_eq!(
        waits(&Etcd::decide(&facts)),
        [EtcdWait::InconsistentObjects]
    );
    facts.lineages = BTreeSet::from([None]);
    assert_eq!(
        waits(&Etcd::decide(&facts)),
        [EtcdWait::InconsistentObjects],
        "an annotation that cannot be parsed"
    );
    // The status names a cluster, and no member is recorded as joined.
    let mut facts = without_an_identity(vec![claim(2, Epoch::FIRST, false)]);
    facts.cluster.status_cluster_id = Some(ClusterId(5));
    assert_eq!(
        waits(&Etcd::decide(&facts)),
        [EtcdWait::InconsistentObjects]
    );
}

#[test]
fn a_cluster_without_objects_is_not_created_again_without_its_data() {
    let mut facts = new_cluster();
    facts.cluster.status_cluster_id = Some(ClusterId(5));
    assert_eq!(
        waits(&Etcd::decide(&facts)),
        [EtcdWait::DataLost(ClusterId(5))]
    );
}

#[test]
fn a_paused_or_deleted_cluster_is_not_changed() {
    let mut facts = new_cluster();
    facts.cluster.is_paused = true;
    assert_eq!(waits(&Etcd::decide(&facts)), [EtcdWait::Paused]);
    facts.cluster.is_deleted = true;
    assert_eq!(waits(&Etcd::decide(&facts)), []);
}

#[test]
fn facts_and_plans_are_plain_data() {
    let facts = new_cluster();
    let plan = Etcd::decide(&facts);
    let stored = serde_json::to_string(&(&facts, &plan)).unwrap();
    let (stored_facts, stored_plan): (EtcdFacts, Plan<Etcd>) =
        serde_json::from_str(&stored).unwrap();
    assert_eq!((stored_facts, stored_plan), (facts, plan));
}

#[test]
fn objects_of_a_previous_resource_are_awaited_and_never_adopted() {
    let first = Etcd::decide(&new_cluster()).create;
    let [EtcdCreate::Identity(identity)] = first.as_slice() else {
        panic!("{first:?}")
    };
    for bootstrapped in [false, true] {
        let identity = Observed::Present(Identity {
            bootstrapped,
            resource_uid: Uid(99),
            ..identity.clone()
        });
        let facts = EtcdFacts {
            identity,
            identity_owner: OwnedBy::PreviousResource,
            ..new_cluster()
        };
        let plan = Etcd::decide(&facts);
        assert_eq!(
            waits(&plan),
            [EtcdWait::PreviousResourceDeletion(UnixTime(1_050))]
        );
        assert_eq!(
            plan.requeue,
            Requeue::At(UnixTime(1_050)),
            "its objects should be gone by then"
        );
    }
    // Its members had joined: an identity rebuilt from such claims would be bootstrapped, and the
    // claims are gone in a moment.
    let terminating = |serial| ClaimFacts {
        is_terminating: true,
        ..claim(serial, Epoch::FIRST, true)
    };
    let plan_with = |claims: Vec<ClaimFacts>| {
        Etcd::decide(&EtcdFacts {
            claims: Observed::Present(claims),
            lineages: BTreeSet::from([Some(Lineage(7))]),
            ..new_cluster()
        })
    };
    assert_eq!(
        waits(&plan_with(vec![terminating(0), terminating(1)])),
        [EtcdWait::PreviousResourceDeletion(UnixTime(1_050))]
    );
    let plan = plan_with(vec![terminating(0), claim(1, Epoch::FIRST, true)]);
    assert!(
        matches!(plan.create.as_slice(), [EtcdCreate::Identity(identity)] if identity.bootstrapped),
        "{plan:?}"
    );
}
