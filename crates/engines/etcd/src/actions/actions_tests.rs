//! Machine names, events and classes of actions.

use std::collections::BTreeSet;

use evenkeel_runtime::EventType;
use serde_json::json;

use super::*;
use crate::facts::StartMode;
use crate::identity::{ClusterId, Identity, Intent, MemberId, MembershipChange, Uid};
use crate::names::{Epoch, Serial};
use crate::plan::{
    DeleteReason, EtcdCreate, EtcdDisruption, EtcdPatch, IdentityChange, OwnerTarget,
};
use crate::status::tests::{is_gerund_phrase, is_plain};
use crate::testing::{NOW, Scene, claim_uid, name as member_name, pod_uid};

fn identity() -> Identity {
    Scene::converged(3).observed.identity.unwrap().1
}

fn identity_change(why: IdentityChange) -> EtcdDisruption {
    EtcdDisruption::UpdateIdentity {
        from: identity(),
        to: identity(),
        why,
    }
}

fn membership_change(change: MembershipChange) -> EtcdDisruption {
    EtcdDisruption::ChangeMembership {
        from: identity(),
        intent: Intent::new(change, BTreeSet::new(), NOW),
        transfer_to: None,
    }
}

fn replacement(serial: Serial) -> EtcdDisruption {
    let intent = Intent::new(MembershipChange::Remove(serial), BTreeSet::new(), NOW);
    EtcdDisruption::ChangeMembership {
        from: identity(),
        intent: Intent {
            is_replacement: true,
            ..intent
        },
        transfer_to: None,
    }
}

/// Every disruption; deletions once for each reason.
fn disruptions() -> Vec<EtcdDisruption> {
    let (pod, claim, serial) = (pod_uid(1), claim_uid(1), Serial(1));
    let reasons = [
        DeleteReason::OldEpoch,
        DeleteReason::MemberRemoved,
        DeleteReason::Finished,
        DeleteReason::FreesNode,
        DeleteReason::Outdated,
    ];
    let mut disruptions = vec![
        identity_change(IdentityChange::StartSeed),
        identity_change(IdentityChange::RecordCluster(ClusterId(5))),
        identity_change(IdentityChange::FinishBootstrap),
        identity_change(IdentityChange::SettleIntent),
        identity_change(IdentityChange::SeedLost),
        identity_change(IdentityChange::SeedStorageChanged),
        identity_change(IdentityChange::ResourceReplaced),
        identity_change(IdentityChange::Adopt),
        identity_change(IdentityChange::Repair),
        membership_change(MembershipChange::Add(serial)),
        membership_change(MembershipChange::Promote(serial)),
        membership_change(MembershipChange::Remove(serial)),
        membership_change(MembershipChange::RemoveUnknown(MemberId(0xabc))),
        replacement(serial),
        EtcdDisruption::RestartMember {
            pod,
            serial,
            transfer_to: None,
            via_eviction: true,
        },
        EtcdDisruption::ForceSnapshot {
            from: identity(),
            to: identity(),
        },
    ];
    disruptions.extend(reasons.map(|why| EtcdDisruption::DeletePod { pod, serial, why }));
    disruptions.extend(reasons.map(|why| EtcdDisruption::DeleteClaim { claim, serial, why }));
    disruptions
}

/// A converged cluster whose next version waits for a forced snapshot.
fn scene() -> Scene {
    let mut scene = Scene::converged(3);
    scene.observed.desired.next = Some(evenkeel_api::Version::new(3, 7, 3));
    scene
}

fn event_of(disruption: &EtcdDisruption) -> Option<EventSpec> {
    disruption.event(&scene().observed)
}

#[test]
fn machine_names_are_kebab_case_and_unique() {
    let disruptions = disruptions();
    let names: Vec<_> = disruptions.iter().map(EtcdAction::name).collect();
    let unique: BTreeSet<_> = names.iter().copied().collect();
    // The five reasons for a deletion share a name.
    assert_eq!(unique.len(), disruptions.len() - 8, "{unique:?}");
    let is_kebab = |name: &str| name.chars().all(|it| it.is_ascii_lowercase() || it == '-');
    assert!(unique.iter().all(|name| is_kebab(name)), "{unique:?}");
    let of_changes = [
        "add-member",
        "promote-member",
        "remove-member",
        "replace-member",
    ];
    let of_identity = ["finish-bootstrap", "restart-bootstrap-seed-lost"];
    let others = ["force-snapshot", "delete-pod", "remove-unknown-member"];
    for name in of_changes.iter().chain(&of_identity).chain(&others) {
        assert!(unique.contains(name), "{name}: {unique:?}");
    }
    let pod = pod_uid(1);
    assert_eq!(
        EtcdPatch::SetStartMode {
            pod,
            from: StartMode::Held,
            to: StartMode::Bootstrap
        }
        .name(),
        "set-start-mode"
    );
    assert_eq!(EtcdPatch::AttachClients { pod }.name(), "attach-clients");
    assert_eq!(EtcdPatch::RecordSpec.name(), "record-spec");
    assert_eq!(EtcdCreate::Identity(identity()).name(), "create-identity");
}

#[test]
fn events_are_in_the_past_tense_with_the_name_of_the_member() {
    let note = |change| event_of(&membership_change(change)).unwrap().note;
    assert_eq!(
        note(MembershipChange::Add(Serial(1))),
        format!("Added member {} as a learner", member_name(1))
    );
    assert_eq!(
        note(MembershipChange::Promote(Serial(1))),
        format!("Promoted learner {} to voter", member_name(1))
    );
    assert_eq!(
        note(MembershipChange::Remove(Serial(1))),
        format!("Removed member {}", member_name(1))
    );
    let finished = EtcdDisruption::DeletePod {
        pod: pod_uid(1),
        serial: Serial(1),
        why: DeleteReason::Finished,
    };
    let event = event_of(&finished).unwrap();
    assert_eq!(
        (event.kind, event.reason.as_str()),
        (EventType::Warning, "PodDeleted")
    );
    let start = format!("Deleted Pod {}: it has terminated", member_name(1));
    assert!(event.note.starts_with(&start), "{}", event.note);
}

#[test]
fn descriptions_and_events_of_disruptions_are_plain_text() {
    let mut scene = scene();
    for disruption in disruptions() {
        let mut plan = scene.plan();
        if let Some(event) = event_of(&disruption) {
            is_plain(&event.note);
            assert!(event.note.starts_with(char::is_uppercase), "{}", event.note);
            assert!(
                event.reason.chars().all(char::is_alphanumeric),
                "{}",
                event.reason
            );
        }
        plan.disruption = Some(disruption);
        let status = crate::status::status(&scene.observed, &scene.facts(), &plan, None);
        let operation = status.operation.as_ref().unwrap();
        is_plain(&operation.message);
        is_gerund_phrase(&operation.message);
        is_plain(&operation.reason);
    }
    // A failed bootstrap is a warning.
    assert_eq!(
        event_of(&identity_change(IdentityChange::SeedLost))
            .unwrap()
            .kind,
        EventType::Warning
    );
    // Without an identity the names of members are not known.
    scene.observed.identity = None;
    let add = membership_change(MembershipChange::Add(Serial(1)));
    let event = add.event(&scene.observed).unwrap();
    assert_eq!(event.note, "Added member orders-<1> as a learner");
}

#[test]
fn the_event_of_a_restart_names_its_purpose() {
    let note = |scene: &Scene| {
        let restart = |via_eviction| EtcdDisruption::RestartMember {
            pod: pod_uid(1),
            serial: Serial(1),
            transfer_to: None,
            via_eviction,
        };
        let outage = restart(false).event(&scene.observed).unwrap();
        assert!(outage.note.contains("clients cannot write"), "{outage:?}");
        restart(true).event(&scene.observed).unwrap().note
    };
    let mut scene = Scene::converged(3);
    let restarted = format!("Restarted member {}", member_name(1));
    assert_eq!(note(&scene), format!("{restarted} as requested"));
    scene.edit_spec(json!({ "resources": { "requests": { "cpu": "2" } } }));
    assert_eq!(
        note(&scene),
        format!("{restarted} to apply the changed spec")
    );
    scene.edit_spec(json!({ "version": "3.6.17" }));
    assert_eq!(note(&scene), format!("{restarted} to run etcd 3.6.17"));
}

#[test]
fn bookkeeping_has_no_event_and_attaching_clients_has_one() {
    let scene = Scene::converged(3);
    let event = |patch: EtcdPatch| patch.event(&scene.observed);
    assert_eq!(
        event(EtcdPatch::MarkJoined {
            pod: pod_uid(1),
            from: StartMode::ExistingData
        }),
        None
    );
    assert_eq!(
        event(EtcdPatch::SetOwner {
            target: OwnerTarget::Identity,
            owned: true
        }),
        None
    );
    let attached = event(EtcdPatch::AttachClients { pod: pod_uid(1) }).unwrap();
    assert_eq!(
        attached.note,
        format!(
            "Added member {} to Service orders-etcd-client",
            member_name(1)
        )
    );
    assert_eq!(
        event(EtcdPatch::AttachClients { pod: Uid(0) }),
        None,
        "the pod is gone"
    );
}

#[test]
fn a_rebuilt_identity_is_a_warning_and_a_new_one_has_no_event() {
    let scene = Scene::converged(3);
    let create = EtcdCreate::Pod {
        serial: Serial(1),
        epoch: Epoch::FIRST,
        claim: None,
        start_mode: StartMode::Held,
        template_hash: Uid(0),
    };
    let created = create.event(&scene.observed).unwrap();
    assert_eq!(
        (created.kind, created.note),
        (EventType::Normal, format!("Created Pod {}", member_name(1)))
    );
    let first = Identity {
        next_serial: Serial(1),
        ..identity()
    };
    assert_eq!(EtcdCreate::Identity(first).event(&scene.observed), None);
    let rebuilt = EtcdCreate::Identity(identity())
        .event(&scene.observed)
        .unwrap();
    assert_eq!(
        (rebuilt.kind, rebuilt.reason.as_str()),
        (EventType::Warning, "IdentityRebuilt")
    );
}

#[test]
fn the_reference_lists_exactly_the_events_of_actions() {
    let sources = [
        include_str!("create.rs"),
        include_str!("patch.rs"),
        include_str!("disruption.rs"),
    ];
    let reasons = |call: &str| -> BTreeSet<String> {
        sources
            .iter()
            .flat_map(|source| source.split(call).skip(1))
            .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
            .map(str::to_owned)
            .collect()
    };
    let published: BTreeSet<_> = &reasons("normal(") | &reasons("warning(");
    let reference = include_str!("../../../../../docs/reference/events.md");
    let listed: BTreeSet<_> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    assert!(published.len() > 10, "{published:?}");
    assert_eq!(listed, published, "docs/reference/events.md");
}
