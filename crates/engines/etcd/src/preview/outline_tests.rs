//! The steps, effects and notes of previews.

use evenkeel_api::{Version, labels};
use evenkeel_kit::volumes::VolumeLocation;
use serde_json::{Value, json};

use super::*;
use crate::identity::{SeedStorage, Uid};
use crate::testing::{Scene, change, name, pod_uid};

/// Previews a scene on this many nodes, which are called as those of the scene's pods.
fn preview_on(scene: &Scene, nodes: u16) -> EtcdPreview {
    let nodes = (0..nodes).map(|number| AvailableNode {
        id: Uid::of_name(&format!("node-{number}")),
        zone: Some(format!("zone-{}", number % 2)),
    });
    let input = PreviewInput {
        remembered: None,
        nodes: Some(nodes.collect()),
    };
    preview_with_effects(&scene.observed, scene.facts(), input)
}

fn edited(members: u16, spec: Value) -> Scene {
    let mut scene = Scene::converged(members);
    scene.edit_spec(spec);
    scene
}

/// Returns texts and reasons of the steps that short output shows.
fn steps(preview: &EtcdPreview) -> Vec<(&str, &str)> {
    let steps = preview.steps.iter();
    let steps = steps.filter(|step| step.kind != StepKind::Record);
    steps
        .map(|step| (step.text.as_str(), step.reason.as_str()))
        .collect()
}

#[test]
fn a_restart_is_one_step_with_its_role_and_the_changed_inputs() {
    let preview = preview_on(&edited(3, json!({ "storage": { "size": "6Gi" } })), 3);
    let quota = "quota 3Gi → 4.5Gi, derived from spec.storage.size";
    let [one, two, leader] = [1, 2, 0].map(name);
    let follower = |name: &str| format!("restart {name} (follower)");
    assert_eq!(
        steps(&preview),
        [
            ("resize 3 PersistentVolumeClaims", "size 4Gi → 6Gi"),
            (follower(&one).as_str(), quota),
            (follower(&two).as_str(), quota),
            (
                format!("restart {leader} (leader) after leadership moves to {one}").as_str(),
                quota
            ),
        ]
    );
    assert_eq!(
        preview.effects.describe(),
        [
            "3 volumes are resized and 3 members restart one by one, the leader last; about 25s \
             after the volumes are resized",
            "clients: no outage expected; they reconnect to another member; leadership moves once",
            "tolerates 1 member failure and 1 node failure before and after; 0 while a member \
             restarts",
        ]
    );
}

#[test]
fn an_upgrade_begins_with_a_snapshot_and_names_both_versions() {
    let mut scene = Scene::converged(3);
    scene.observed.desired.next = Some(Version::new(3, 7, 3));
    let preview = preview_on(&scene, 3);
    let steps = steps(&preview);
    assert_eq!(steps[0].0, "force a snapshot on every member");
    assert!(
        steps[1..]
            .iter()
            .all(|(_, reason)| *reason == "version 3.6.16 → 3.7.3"),
        "{steps:#?}"
    );
    assert_eq!((steps.len(), preview.effects.restarts), (4, 3));
    assert_eq!(preview.notes, Vec::<String>::new());
}

#[test]
fn the_budget_is_raised_before_a_promotion_and_lowered_after_a_removal() {
    let preview = preview_on(&Scene::with(3, json!({ "members": 5 })), 5);
    let [first, second] = [3, 4].map(|serial| format!("add {}", name(serial)));
    let raised = format!(
        "set PodDisruptionBudget minAvailable 2 → 3 before {} becomes a voter",
        name(3)
    );
    assert_eq!(
        steps(&preview),
        [
            (first.as_str(), "spec.members is 5"),
            (raised.as_str(), ""),
            (second.as_str(), "spec.members is 5"),
        ]
    );
    let preview = preview_on(&Scene::with(3, json!({ "members": 1 })), 3);
    let lowered = format!(
        "set PodDisruptionBudget minAvailable 2 → 1 after {} has left",
        name(1)
    );
    let last = steps(&preview).last().copied();
    assert_eq!(last, Some((lowered.as_str(), "")));
}

#[test]
fn all_actions_of_a_member_belong_to_its_step() {
    let preview = preview_on(&Scene::with(3, json!({ "members": 4 })), 4);
    let add = &preview.steps[0];
    let actions: Vec<_> = add
        .actions
        .iter()
        .map(|index| preview.course.steps[*index].action)
        .collect();
    let expected = [
        "add-member",
        "create-claim",
        "settle-intent",
        "create-pod",
        "set-start-mode",
        "record-joined-volume",
        "mark-joined",
        "record-version",
        "promote-member",
        "attach-clients",
        "settle-intent",
    ];
    let sorted = |mut names: Vec<&'static str>| {
        names.sort_unstable();
        names
    };
    assert_eq!(sorted(actions), sorted(expected.to_vec()));
    assert_eq!(add.member, Some(name(3)));
    let mut indexes: Vec<_> = preview
        .steps
        .iter()
        .flat_map(|step| &step.actions)
        .collect();
    indexes.sort_unstable();
    assert!(
        indexes
            .into_iter()
            .copied()
            .eq(0..preview.course.steps.len()),
        "{preview:#?}"
    );
}

#[test]
fn fewer_members_tolerate_fewer_failures_and_two_block_drains() {
    let preview = preview_on(&Scene::with(3, json!({ "members": 2 })), 3);
    let effects = preview.effects.describe();
    assert_eq!(
        effects[2],
        "tolerates 1 → 0 member failures and 1 → 0 node failures"
    );
    assert!(preview.notes[0].contains("node drains are blocked"));
    let [volume] = &preview.volumes[..] else {
        panic!("{:#?}", preview.volumes)
    };
    assert_eq!(
        (volume.claim.as_str(), volume.after, volume.was_retained),
        (name(2).as_str(), 86_400, false)
    );
}

#[test]
fn volumes_that_were_retained_before_are_marked() {
    let mut scene = Scene::converged(4);
    scene.observed.pods.remove(&pod_uid(3));
    scene.state.health.remove(&Serial(3));
    if let evenkeel_runtime::Observed::Present(list) = &mut scene.state.membership {
        list.members.retain(|listed| listed.serial != Serial(3));
    }
    scene.edit_spec(json!({ "members": 3 }));
    scene.mark_removed(3);
    let preview = preview_on(&scene, 3);
    assert_eq!(preview.volumes.len(), 1, "{preview:#?}");
    assert!(preview.volumes[0].was_retained);
}

#[test]
fn more_members_than_nodes_share_nodes_or_stay_pending() {
    let preview = preview_on(&Scene::with(3, json!({ "members": 5 })), 3);
    assert_eq!(
        preview.notes,
        ["5 members share 3 nodes: the failure of one node can stop 2 members"]
    );
    assert_eq!(
        preview.effects.describe()[2],
        "tolerates 1 → 2 member failures and 1 node failure"
    );
    let require = json!({ "spread": { "require": true } });
    let spec = json!({ "members": 5, "scheduling": require });
    let preview = preview_on(&Scene::with(3, spec), 3);
    assert!(preview.course.ends.starts_with("Joining"), "{preview:#?}");
    assert_eq!(preview.effects.expected_seconds, None);
    let pending = format!("the pod of {} stays Pending", name(3));
    assert!(
        preview.notes[0].starts_with(&pending),
        "{:?}",
        preview.notes
    );
    let zones =
        json!({ "members": 3, "scheduling": { "spread": { "across": "Zone", "require": true } } });
    let preview = preview_on(&Scene::with(1, zones), 5);
    assert!(
        preview.notes[0].contains(&name(2)),
        "the third member needs a third zone: {:?}",
        preview.notes
    );
}

#[test]
fn without_a_list_of_nodes_the_tolerance_of_new_members_is_not_known() {
    let scene = Scene::with(3, json!({ "members": 5 }));
    let preview = preview_with_effects(&scene.observed, scene.facts(), PreviewInput::default());
    assert_eq!(
        preview.effects.describe()[2],
        "tolerates 1 → 2 member failures"
    );
    assert_eq!(preview.notes, Vec::<String>::new());
}

#[test]
fn a_member_with_a_local_volume_on_a_cordoned_node_stays_pending() {
    let mut scene = edited(3, json!({ "resources": { "requests": { "cpu": "2" } } }));
    for serial in 0..3 {
        let node = VolumeLocation::Node(format!("node-{serial}"));
        scene.observed.volume_locations.insert(name(serial), node);
    }
    assert_eq!(preview_on(&scene, 3).course.ends, "Healthy");
    // Without node-2.
    let preview = preview_on(&scene, 2);
    let pending = format!("the pod of {} stays Pending", name(2));
    assert!(
        preview.notes.iter().any(|note| note.starts_with(&pending))
            || preview
                .steps
                .iter()
                .any(|step| step.text == format!("remove {}", name(2))),
        "{preview:#?}"
    );
}

#[test]
fn a_lost_member_is_replaced_at_its_deadline_without_an_effect_on_clients() {
    let mut scene = Scene::with(3, json!({ "members": 3, "heal": { "replaceAfter": "5m" } }));
    scene.make_unreachable(2, 120);
    let preview = preview_on(&scene, 4);
    let [removal, addition] = &preview.steps[..] else {
        panic!("{preview:#?}")
    };
    assert_eq!((removal.after, addition.after), (180, 180));
    assert_eq!(addition.reason, format!("takes the place of {}", name(2)));
    assert_eq!(preview.effects.clients, ClientImpact::None);
    assert_eq!(
        preview.effects.describe()[0],
        "1 member is replaced; about 4m"
    );
}

#[test]
fn restarts_of_one_or_two_members_cost_the_quorum() {
    let cpu = json!({ "resources": { "requests": { "cpu": "1" } } });
    let one = preview_on(&edited(1, cpu.clone()), 3);
    assert_eq!(one.effects.clients, ClientImpact::Outage);
    assert_eq!(
        one.effects.describe(),
        [
            "1 member restarts; about 8s",
            "clients cannot write while the member restarts, for about 8s",
            "tolerates no failure before and after",
        ]
    );
    let two = preview_on(&edited(2, cpu), 3);
    assert_eq!(
        two.effects.describe()[1],
        "clients cannot write while a member restarts: twice, for about 8s each"
    );
}

#[test]
fn a_new_cluster_is_created_in_a_few_steps() {
    let preview = preview_on(&Scene::nothing(json!({ "members": 3 })), 3);
    let kinds: Vec<_> = preview.steps.iter().map(|step| step.kind).collect();
    assert_eq!(
        kinds,
        [
            StepKind::CreateObjects,
            StepKind::StartSeed,
            StepKind::AddMember,
            StepKind::AddMember,
            StepKind::FinishBootstrap,
        ]
    );
    assert_eq!(
        preview.effects.describe(),
        [
            "a cluster of 3 members is created; about 9s",
            "clients are served when the bootstrap is finished",
            "tolerates 1 member failure and 1 node failure at the end",
        ]
    );
}

#[test]
fn an_unknown_patch_release_is_noted() {
    let preview = preview_on(&edited(3, json!({ "version": "3.6.99" })), 3);
    assert!(
        preview.notes[0].starts_with("etcd 3.6.99 is not known"),
        "{:?}",
        preview.notes
    );
    let preview = preview_on(&edited(3, json!({ "version": "3.6.15" })), 3);
    assert_eq!(preview.notes, Vec::<String>::new());
}

#[test]
fn a_lost_quorum_and_its_end_are_effects_on_clients() {
    let mut scene = Scene::converged(3);
    scene.lose_quorum(&[1, 2]);
    let preview = preview_on(&scene, 3);
    assert_eq!(preview.effects.clients, ClientImpact::StillDown);
    assert_eq!(preview.effects.expected_seconds, None);
    for serial in [1, 2] {
        scene.observed.pods.remove(&pod_uid(serial));
    }
    let preview = preview_on(&scene, 3);
    assert_eq!(preview.effects.clients, ClientImpact::Restored);
    assert_eq!(preview.effects.members_started, 2);
}

#[test]
fn edits_of_other_objects_restart_no_member() {
    let annotations = json!({ "service": { "annotations": { "example.com/a": "b" } } });
    let preview = preview_on(&edited(3, annotations), 3);
    assert_eq!(steps(&preview), [("update Service orders-etcd-client", "")]);
    assert_eq!(
        preview.effects.describe()[..2],
        [
            "no member is restarted, added or removed",
            "clients: not affected"
        ]
    );
    let owned = preview_on(
        &edited(3, json!({ "storage": { "onDelete": "Delete" } })),
        3,
    );
    assert_eq!(
        steps(&owned),
        [(
            "set the owner references of 1 ConfigMap and 3 PersistentVolumeClaims",
            "they are deleted together with the EtcdCluster"
        )]
    );
}

#[test]
fn ephemeral_members_are_replaced_because_of_the_changed_inputs() {
    let ephemeral = json!({ "members": 3, "storage": { "ephemeral": true, "size": "1Gi" } });
    let mut scene = Scene::with(3, ephemeral);
    scene.turn(|identity| identity.seed_storage = Some(SeedStorage::Pod(pod_uid(0))));
    scene.edit_spec(json!({ "resources": { "requests": { "cpu": "2" } } }));
    let preview = preview_on(&scene, 4);
    let effects = &preview.effects;
    assert_eq!(
        (effects.members_added, effects.members_removed),
        (3, 3),
        "{preview:#?}"
    );
    let removals = preview
        .steps
        .iter()
        .filter(|step| step.kind == StepKind::RemoveMember);
    for removal in removals {
        assert_eq!(removal.reason, "spec.resources.requests.cpu 100m → 2");
    }
    assert!(
        effects.describe()[0].starts_with("3 members are replaced one by one"),
        "{:?}",
        effects.describe()
    );
}

#[test]
fn a_member_that_is_joining_is_not_added_again() {
    let mut scene = Scene::with_newcomer();
    let created = jiff::Timestamp::from_second(crate::testing::NOW.0 - 5);
    let created = json!({ "creationTimestamp": created.unwrap().to_string() });
    change(scene.pod(3), json!({ "metadata": created }));
    let preview = preview_on(&scene, 4);
    let text = format!("let {} join and become a voter", name(3));
    assert_eq!(steps(&preview)[0].0, text, "{preview:#?}");
}

#[test]
fn a_requested_restart_is_the_reason_of_its_steps() {
    let mut scene = Scene::converged(3);
    let annotations = json!({ labels::RESTARTED_AT: "2026-11-18T00:00:00Z" });
    change(
        &mut scene.observed.resource,
        json!({ "metadata": { "annotations": annotations } }),
    );
    scene.edit_spec(json!({}));
    let preview = preview_on(&scene, 3);
    assert!(
        steps(&preview)
            .iter()
            .all(|(_, reason)| *reason == "a restart was requested"),
        "{preview:#?}"
    );
    assert_eq!(preview.effects.restarts, 3);
}
