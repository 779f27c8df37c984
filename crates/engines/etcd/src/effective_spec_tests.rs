//! Which spec is in force, for every kind of rejected change.

use evenkeel_api::RejectionEffect;
use evenkeel_api::windows::Windows;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Scene, change, claim_uid, pod_uid, resource};

fn accepted(spec: Value) -> AcceptedSpec {
    AcceptedSpec {
        spec: resource(spec).spec,
        is_previous_resource: false,
        is_bootstrapped: true,
    }
}

fn history_of(accepted: AcceptedSpec) -> ClusterHistory {
    ClusterHistory {
        accepted: Some(accepted),
        ..ClusterHistory::default()
    }
}

fn in_force(
    resource: &EtcdCluster,
    history: &ClusterHistory,
) -> (DesiredCluster, Option<&'static str>) {
    let effective = effective_spec(resource, history).unwrap();
    let rejection = effective.rejection.map(|rejection| rejection.field);
    (effective.desired, rejection)
}

/// Returns the version in force, and whether the desired one is rejected.
fn version(desired: &str, history: &ClusterHistory) -> (String, bool) {
    let (desired, rejected) = in_force(&resource(json!({ "version": desired })), history);
    assert!(
        rejected.is_none_or(|field| field == "spec.version"),
        "{rejected:?}"
    );
    (desired.version.to_string(), rejected.is_some())
}

fn running(lowest: &str, highest: &str) -> ClusterHistory {
    let started = Some((lowest.parse().unwrap(), highest.parse().unwrap()));
    ClusterHistory {
        accepted: Some(accepted(json!({ "version": highest }))),
        started_versions: started,
        ..ClusterHistory::default()
    }
}

#[test]
fn a_valid_spec_is_in_force() {
    let (desired, rejected) = in_force(
        &resource(json!({ "members": 5 })),
        &ClusterHistory::default(),
    );
    assert_eq!((desired.members, rejected), (5, None));
    let (desired, rejected) = in_force(
        &resource(json!({ "members": 5 })),
        &history_of(accepted(json!({ "members": 3 }))),
    );
    assert_eq!((desired.members, rejected), (5, None));
}

#[test]
fn rejected_fields_keep_their_accepted_values() {
    let bad = json!({ "members": 5, "version": "3.9.9", "paused": true, "heal": { "replaceAfter": "soon" },
        "storage": { "onDelete": "Keep" } });
    let known = accepted(json!({ "members": 3, "storage": { "onDelete": "Delete" } }));
    let (desired, rejected) = in_force(&resource(bad), &history_of(known.clone()));
    assert_eq!(rejected, Some("spec.version"), "the first rejected field");
    assert_eq!(desired.version.to_string(), "3.6.16");
    assert_eq!(desired.replace_after.as_secs(), 300);
    assert!(desired.members == 5 && desired.paused && !desired.owns_data());
    // The effective spec, recorded as accepted, is in force again: nothing is written twice.
    let again = history_of(AcceptedSpec {
        spec: serde_json::from_str(&desired.spec).unwrap(),
        ..known
    });
    let bad = resource(json!({ "members": 9 }));
    assert_eq!(
        in_force(&bad, &again),
        (
            in_force(&resource(json!({ "members": 5 })), &again).0,
            Some("spec.members")
        )
    );
}

#[test]
fn without_an_accepted_value_no_spec_is_in_force() {
    let bad = resource(json!({ "version": "3.9.9" }));
    assert_eq!(
        effective_spec(&bad, &ClusterHistory::default())
            .unwrap_err()
            .field,
        "spec.version"
    );
    let as_bad = history_of(AcceptedSpec {
        spec: bad.spec.clone(),
        ..accepted(json!({}))
    });
    assert_eq!(
        effective_spec(&bad, &as_bad).unwrap_err().field,
        "spec.version"
    );
    let previous = history_of(AcceptedSpec {
        is_previous_resource: true,
        ..accepted(json!({}))
    });
    let invalid = resource(json!({ "members": 9 }));
    assert_eq!(
        effective_spec(&invalid, &previous).unwrap_err().field,
        "spec.members"
    );
}

#[test]
fn a_version_follows_the_running_one_by_at_most_one_minor() {
    assert_eq!(
        version("3.6.16", &running("3.5.35", "3.5.35")),
        ("3.6.16".to_owned(), false)
    );
    assert_eq!(
        version("3.7.3", &running("3.5.35", "3.5.35")),
        ("3.5.35".to_owned(), true),
        "a skipped minor"
    );
    assert_eq!(
        version("3.6.16", &running("3.5.30", "3.5.30")),
        ("3.5.30".to_owned(), true),
        "too old a patch release"
    );
    assert_eq!(
        version("3.5.35", &running("3.6.16", "3.6.16")),
        ("3.6.16".to_owned(), true),
        "a downgrade"
    );
    let mut previous = running("3.6.16", "3.6.16");
    previous
        .accepted
        .iter_mut()
        .for_each(|accepted| accepted.is_previous_resource = true);
    assert_eq!(
        version("3.5.35", &previous),
        ("3.6.16".to_owned(), true),
        "a recreated resource"
    );
}

#[test]
fn an_unfinished_upgrade_can_be_reverted_and_not_skipped() {
    let half = running("3.5.35", "3.6.16");
    assert_eq!(version("3.5.35", &half), ("3.5.35".to_owned(), false));
    assert_eq!(version("3.6.16", &half), ("3.6.16".to_owned(), false));
    assert_eq!(
        version("3.7.3", &half),
        ("3.6.16".to_owned(), true),
        "some members still run 3.5"
    );
}

#[test]
fn without_an_identity_the_volumes_limit_the_version() {
    let history = ClusterHistory {
        accepted: None,
        ..running("3.6.16", "3.6.16")
    };
    assert_eq!(version("3.5.35", &history), ("3.6.16".to_owned(), true));
    assert_eq!(version("3.6.17", &history), ("3.6.17".to_owned(), false));
}

#[test]
fn volumes_without_a_version_started_with_the_accepted_one() {
    let mut scene = Scene::converged(3);
    for serial in 0..3 {
        change(
            scene.claim(serial),
            json!({ "metadata": { "annotations": { labels::VERSION: null } } }),
        );
    }
    let claims: Vec<_> = scene.observed.claims.values().cloned().collect();
    let accepted = Version::new(3, 5, 30);
    let started = started_versions([].iter(), claims.iter(), Some(accepted));
    assert_eq!(started, Some((accepted, accepted)));
    let mut known = running("3.5.30", "3.5.30");
    known.started_versions = started;
    assert_eq!(version("3.7.3", &known), ("3.5.30".to_owned(), true));
}

#[test]
fn a_version_that_reads_no_old_log_waits_for_a_snapshot() {
    let next = |version: &str, history: &ClusterHistory| {
        let (desired, rejected) = in_force(&resource(json!({ "version": version })), history);
        assert_eq!(rejected, None);
        (
            desired.version.to_string(),
            desired.next.map(|next| next.to_string()),
        )
    };
    let stays = ("3.6.16".to_owned(), Some("3.7.3".to_owned()));
    let mut history = running("3.6.16", "3.6.16");
    assert_eq!(next("3.7.3", &history), stays);
    // A snapshot of 3.5 does not count: the log has entries of 3.5.
    history.snapshotted_version = Some(Version::new(3, 5, 35));
    assert_eq!(next("3.7.3", &history), stays);
    history.snapshotted_version = Some(Version::new(3, 6, 15));
    assert_eq!(next("3.7.3", &history), ("3.7.3".to_owned(), None));
    // Some members run the new version since the snapshot: the upgrade continues.
    let half = ClusterHistory {
        snapshotted_version: Some(Version::new(3, 6, 16)),
        ..running("3.6.16", "3.7.3")
    };
    for history in [half, running("3.7.3", "3.7.3")] {
        assert_eq!(next("3.7.3", &history), ("3.7.3".to_owned(), None));
    }
    // Some run it without a snapshot: no other member is upgraded, and these are downgraded.
    assert_eq!(next("3.7.3", &running("3.6.16", "3.7.3")), stays);
    assert_eq!(
        next("3.6.16", &running("3.5.35", "3.5.35")),
        ("3.6.16".to_owned(), None),
        "3.6 reads what 3.5 wrote"
    );
    // All other fields are in force meanwhile.
    let both = resource(json!({ "version": "3.7.3", "members": 5 }));
    assert_eq!(in_force(&both, &running("3.6.16", "3.6.16")).0.members, 5);
}

#[test]
fn pods_without_a_template_hash_keep_the_accepted_spec() {
    let known = accepted(json!({ "version": "3.6.15", "members": 3 }));
    let mut history = history_of(known);
    history.has_unmarked_pods = true;
    let edited = resource(json!({ "version": "3.6.16", "members": 5, "paused": true }));
    let (desired, _) = in_force(&edited, &history);
    assert_eq!(
        (desired.version.to_string(), desired.members, desired.paused),
        ("3.6.15".to_owned(), 5, true)
    );
    history.has_unmarked_pods = false;
    assert_eq!(in_force(&edited, &history).0.version.to_string(), "3.6.16");
}

#[test]
fn a_quota_is_not_lowered_below_the_size_of_the_data() {
    let quota =
        |amount: &str| json!({ "etcd": { "quota": amount }, "storage": { "size": "10Gi" } });
    let mut history = history_of(accepted(quota("4Gi")));
    history.data_size = 3 << 30;
    let (desired, rejected) = in_force(&resource(quota("2Gi")), &history);
    assert_eq!(
        (desired.quota, rejected),
        (4 << 30, Some("spec.etcd.quota"))
    );
    for (amount, data) in [("3Gi", 3), ("5Gi", 3), ("4Gi", 5), ("2Gi", 1)] {
        history.data_size = data << 30;
        assert_eq!(
            in_force(&resource(quota(amount)), &history).1,
            None,
            "{amount} for {data}Gi"
        );
    }
}

#[test]
fn heartbeat_and_election_timeouts_change_in_compatible_steps() {
    let options = |heartbeat: &str, election: &str| json!({ "etcd": { "options": { "heartbeat-interval": heartbeat, "election-timeout": election } } });
    let slow = history_of(accepted(options("2000", "20000")));
    assert_eq!(
        in_force(&resource(options("100", "1000")), &slow).1,
        Some("spec.etcd.options")
    );
    assert_eq!(in_force(&resource(options("200", "10000")), &slow).1, None);
}

#[test]
fn the_version_is_fixed_between_seed_start_and_end_of_bootstrap() {
    let begun = AcceptedSpec {
        is_bootstrapped: false,
        ..accepted(json!({ "version": "3.6.16" }))
    };
    assert_eq!(
        version("3.5.35", &history_of(begun.clone())),
        ("3.5.35".to_owned(), false),
        "the seed has not started"
    );
    let forming = |accepted: AcceptedSpec| ClusterHistory {
        is_forming: true,
        ..history_of(accepted)
    };
    assert_eq!(
        version("3.7.3", &forming(begun.clone())),
        ("3.6.16".to_owned(), true)
    );
    let recreated = AcceptedSpec {
        is_previous_resource: true,
        ..begun
    };
    assert_eq!(
        version("3.7.3", &forming(recreated)),
        ("3.7.3".to_owned(), false),
        "the unfinished bootstrap is abandoned"
    );
}

#[test]
fn started_versions_are_read_from_volumes_or_else_from_pods() {
    let mut scene = Scene::converged(3);
    let wrote =
        |version: &str| json!({ "metadata": { "annotations": { labels::VERSION: version } } });
    for (serial, version) in [(0, "3.5.35"), (1, "3.6.16"), (2, "3.6.16")] {
        change(
            scene.observed.claims.get_mut(&claim_uid(serial)).unwrap(),
            wrote(version),
        );
        change(
            scene.observed.pods.get_mut(&pod_uid(serial)).unwrap(),
            wrote("3.7.3"),
        );
    }
    let pods: Vec<_> = scene.observed.pods.values().cloned().collect();
    let mut claims: Vec<_> = scene.observed.claims.values().cloned().collect();
    let started = |pods: &[Pod], claims: &[PersistentVolumeClaim]| {
        started_versions(pods.iter(), claims.iter(), None)
            .map(|(lowest, highest)| format!("{lowest} {highest}"))
    };
    assert_eq!(started(&pods, &claims).as_deref(), Some("3.5.35 3.6.16"));
    assert_eq!(started(&pods, &[]).as_deref(), Some("3.7.3 3.7.3"));
    let removed = json!({ "metadata": { "annotations": { labels::REMOVED_AT: "x" } } });
    let lowest = claims
        .iter_mut()
        .find(|claim| crate::observe::version(&claim.metadata).unwrap().minor == 5);
    change(lowest.unwrap(), removed);
    assert_eq!(
        started(&pods, &claims).as_deref(),
        Some("3.6.16 3.6.16"),
        "a kept volume does not count"
    );
    assert_eq!(started(&[], &[]), None);
}

#[test]
fn windows_in_an_unknown_time_zone_keep_the_accepted_ones() {
    let in_zone = |zone: &str| {
        let window = json!({ "start": "02:00", "duration": "3h", "timeZone": zone });
        json!({ "maintenance": { "windows": [window] } })
    };
    let known = history_of(accepted(in_zone("Europe/Berlin")));
    let (desired, rejected) = in_force(&resource(in_zone("Europe/Berln")), &known);
    assert_eq!(rejected, Some("spec.maintenance.windows"));
    assert_eq!(
        desired.windows,
        in_force(&resource(in_zone("Europe/Berlin")), &known)
            .0
            .windows
    );
}

#[test]
fn volumes_never_shrink_and_grow_only_if_their_class_allows_it() {
    let size = |size: &str| json!({ "storage": { "size": size, "class": "fixed" } });
    let mut history = history_of(accepted(size("4Gi")));
    history.volume_size = 4 << 30;
    let size_in_force = |spec: Value, history: &ClusterHistory| {
        let (desired, rejected) = in_force(&resource(spec), history);
        (desired.size >> 30, rejected)
    };
    assert_eq!(size_in_force(size("8Gi"), &history), (8, None));
    assert_eq!(
        size_in_force(size("2Gi"), &history),
        (4, Some("spec.storage.size"))
    );
    history.fixed_size_class = Some("fixed".to_owned());
    assert_eq!(
        size_in_force(size("8Gi"), &history),
        (4, Some("spec.storage.size"))
    );
    assert_eq!(size_in_force(size("4Gi"), &history), (4, None));
    let elsewhere = json!({ "storage": { "size": "8Gi", "class": "fast" } });
    assert_eq!(
        size_in_force(elsewhere, &history),
        (8, None),
        "volumes of the former class are replaced"
    );
    // A larger size that was never granted can be reduced again.
    let never_granted = ClusterHistory {
        volume_size: 4 << 30,
        ..history_of(accepted(size("8Gi")))
    };
    assert_eq!(size_in_force(size("4Gi"), &never_granted), (4, None));
}

#[test]
fn an_image_digest_stays_with_its_version() {
    let of = |version: &str, digit: &str| json!({ "version": version, "image": { "digest": format!("sha256:{}", digit.repeat(64)) } });
    let digest = |spec: Value, history: &ClusterHistory| {
        let (desired, _) = in_force(&resource(spec), history);
        (
            desired.version.to_string(),
            desired
                .image
                .split_once('@')
                .map(|(_, digest)| digest[7..8].to_owned()),
        )
    };
    let started = |text: &str| Some((text.parse().unwrap(), text.parse().unwrap()));
    let history = ClusterHistory {
        started_versions: started("3.6.16"),
        ..history_of(accepted(of("3.6.16", "a")))
    };
    let stays = ("3.6.16".to_owned(), Some("a".to_owned()));
    assert_eq!(
        digest(of("3.7.3", "b"), &history),
        stays,
        "until a snapshot is forced"
    );
    let history = ClusterHistory {
        started_versions: started("3.5.30"),
        ..history_of(accepted(of("3.5.30", "a")))
    };
    assert_eq!(
        digest(of("3.7.3", "b"), &history),
        ("3.5.30".to_owned(), Some("a".to_owned())),
        "rejected"
    );
    let history = ClusterHistory {
        accepted: None,
        ..history
    };
    assert_eq!(
        digest(of("3.7.3", "b"), &history),
        ("3.5.30".to_owned(), None),
        "the digest is unknown"
    );
}

#[test]
fn for_dependent_fields_the_whole_accepted_spec_stays_in_force() {
    let known = accepted(json!({ "resources": { "limits": { "memory": "1Gi" } } }));
    let edited = json!({ "members": 5, "resources": { "requests": { "memory": "2Gi" }, "limits": { "memory": "1Gi" } } });
    let (desired, rejected) = in_force(&resource(edited), &history_of(known));
    assert!(
        rejected.is_some_and(|field| field.starts_with("spec.resources")),
        "{rejected:?}"
    );
    assert_eq!(desired.members, 3);
}

#[test]
fn a_missing_class_is_rejected_while_there_is_data() {
    let class = |class: &str| json!({ "storage": { "class": class } });
    let history = history_of(accepted(class("fast"))).with_classes(None, Some("fsat".to_owned()));
    assert_eq!(
        in_force(&resource(class("fsat")), &history).1,
        Some("spec.storage.class")
    );
    assert_eq!(in_force(&resource(class("slow")), &history).1, None);
    let gone = history_of(accepted(class("fast"))).with_classes(None, Some("fast".to_owned()));
    assert_eq!(
        in_force(&resource(class("fast")), &gone).1,
        None,
        "the class was deleted, and its volumes exist"
    );
}

/// Returns a spec whose time zone does not exist, which the schema cannot know.
fn with_unknown_zone(members: u8) -> EtcdCluster {
    let window = json!({ "start": "02:00", "duration": "3h", "timeZone": "Europe/Atlantis" });
    resource(json!({ "members": members, "maintenance": { "windows": [window] } }))
}

#[test]
fn invalid_windows_do_not_keep_a_new_cluster_from_starting() {
    let invalid = with_unknown_zone(3);
    let effective = effective_spec(&invalid, &ClusterHistory::default()).unwrap();
    assert_eq!(effective.desired.windows, None);
    assert_eq!(effective.desired.members, 3);
    let rejection = effective.rejection.unwrap();
    assert_eq!(rejection.field, MAINTENANCE_WINDOWS);
    assert_eq!(rejection.effect, RejectionEffect::DelaysDisruptions);
    // The spec is recorded with the invalid windows, and they do not read as accepted later.
    let created = history_of(AcceptedSpec {
        spec: serde_json::from_str(&effective.desired.spec).unwrap(),
        ..accepted(json!({}))
    });
    let effective = effective_spec(&with_unknown_zone(5), &created).unwrap();
    assert_eq!(
        (effective.desired.members, effective.desired.windows),
        (5, None)
    );
    // Corrected windows are in force.
    let (desired, rejected) = in_force(&resource(json!({})), &created);
    assert_eq!(
        (desired.windows, rejected),
        (Some(Windows::default()), None)
    );
}

#[test]
fn accepted_windows_stay_in_force_if_the_new_ones_are_invalid() {
    let window = json!({ "start": "02:00", "duration": "3h" });
    let nightly = json!({ "maintenance": { "windows": [window] } });
    let (desired, rejected) = in_force(&with_unknown_zone(3), &history_of(accepted(nightly)));
    assert_eq!(rejected, Some(MAINTENANCE_WINDOWS));
    assert!(
        desired
            .windows
            .is_some_and(|windows| windows != Windows::default())
    );
}
