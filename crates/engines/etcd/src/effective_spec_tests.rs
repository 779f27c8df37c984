use serde_json::json;

use super::*;
use crate::testing::{Scene, change, claim_uid, pod_uid, resource};

fn noted(spec: Value) -> AcceptedSpec {
    AcceptedSpec {
        spec: resource(spec).spec,
        is_previous_resource: false,
        is_bootstrapped: true,
        is_forming: false,
    }
}

fn after(noted: AcceptedSpec) -> ClusterHistory {
    ClusterHistory {
        accepted: Some(noted),
        ..ClusterHistory::default()
    }
}

fn fields(
    resource: &EtcdCluster,
    before: &ClusterHistory,
) -> (DesiredCluster, Option<&'static str>) {
    let (desired, refused) = effective_spec(resource, before).unwrap();
    (desired, refused.map(|refusal| refusal.field))
}

/// The version in force, and whether the one that is wanted is refused.
fn version(wants: &str, before: &ClusterHistory) -> (String, bool) {
    let (desired, refused) = fields(&resource(json!({ "version": wants })), before);
    assert!(
        refused.is_none_or(|field| field == "spec.version"),
        "{refused:?}"
    );
    (desired.version.to_string(), refused.is_some())
}

fn runs(lowest: &str, highest: &str) -> ClusterHistory {
    let started = Some((lowest.parse().unwrap(), highest.parse().unwrap()));
    ClusterHistory {
        accepted: Some(noted(json!({ "version": highest }))),
        started_versions: started,
        ..ClusterHistory::default()
    }
}

#[test]
fn what_can_be_accepted_is_in_force_as_it_is() {
    let (desired, refused) = effective_spec(
        &resource(json!({ "members": 5 })),
        &ClusterHistory::default(),
    )
    .unwrap();
    assert_eq!((desired.members, refused), (5, None));
    let (desired, refused) = fields(
        &resource(json!({ "members": 5 })),
        &after(noted(json!({ "members": 3 }))),
    );
    assert_eq!((desired.members, refused), (5, None));
}

#[test]
fn fields_that_cannot_be_accepted_keep_their_last_values_and_all_else_goes_on() {
    let bad = json!({ "members": 5, "version": "3.9.9", "paused": true, "heal": { "replaceAfter": "soon" },
        "storage": { "onDelete": "Keep" } });
    let known = noted(json!({ "members": 3, "storage": { "onDelete": "Delete" } }));
    let (desired, refused) = fields(&resource(bad), &after(known.clone()));
    assert_eq!(refused, Some("spec.version"), "the first");
    assert_eq!(desired.version.to_string(), "3.6.16");
    assert_eq!(desired.replace_after.as_secs(), 300);
    assert!(desired.members == 5 && desired.paused && !desired.owns_data());
    // Noted anew, it is the same again: nothing is written twice.
    let again = after(AcceptedSpec {
        spec: serde_json::from_str(&desired.spec).unwrap(),
        ..known
    });
    let bad = resource(json!({ "members": 9 }));
    assert_eq!(
        fields(&bad, &again),
        (
            fields(&resource(json!({ "members": 5 })), &again).0,
            Some("spec.members")
        )
    );
}

#[test]
fn a_field_of_which_nothing_better_is_noted_leaves_nothing_in_force() {
    let bad = resource(json!({ "version": "3.9.9" }));
    assert_eq!(
        effective_spec(&bad, &ClusterHistory::default())
            .unwrap_err()
            .field,
        "spec.version"
    );
    let as_bad = after(AcceptedSpec {
        spec: bad.spec.clone(),
        ..noted(json!({}))
    });
    assert_eq!(
        effective_spec(&bad, &as_bad).unwrap_err().field,
        "spec.version"
    );
    let former = after(AcceptedSpec {
        is_previous_resource: true,
        ..noted(json!({}))
    });
    let unheard_of = resource(json!({ "members": 9 }));
    assert_eq!(
        effective_spec(&unheard_of, &former).unwrap_err().field,
        "spec.members"
    );
}

#[test]
fn a_version_follows_what_members_run_one_minor_at_a_time_whoever_wants_it() {
    assert_eq!(
        version("3.6.16", &runs("3.5.35", "3.5.35")),
        ("3.6.16".to_owned(), false)
    );
    assert_eq!(
        version("3.7.3", &runs("3.5.35", "3.5.35")),
        ("3.5.35".to_owned(), true),
        "skipped"
    );
    assert_eq!(
        version("3.6.16", &runs("3.5.30", "3.5.30")),
        ("3.5.30".to_owned(), true),
        "too early"
    );
    assert_eq!(
        version("3.5.35", &runs("3.6.16", "3.6.16")),
        ("3.6.16".to_owned(), true),
        "back"
    );
    let mut former = runs("3.6.16", "3.6.16");
    former
        .accepted
        .iter_mut()
        .for_each(|noted| noted.is_previous_resource = true);
    assert_eq!(
        version("3.5.35", &former),
        ("3.6.16".to_owned(), true),
        "of a resource created anew"
    );
}

#[test]
fn in_the_middle_of_an_upgrade_it_can_be_taken_back_and_the_next_one_is_refused() {
    let half = runs("3.5.35", "3.6.16");
    assert_eq!(version("3.5.35", &half), ("3.5.35".to_owned(), false));
    assert_eq!(version("3.6.16", &half), ("3.6.16".to_owned(), false));
    assert_eq!(
        version("3.7.3", &half),
        ("3.6.16".to_owned(), true),
        "not before all run 3.6"
    );
}

#[test]
fn without_an_identity_volumes_tell_which_version_may_start_on_them() {
    let before = ClusterHistory {
        accepted: None,
        ..runs("3.6.16", "3.6.16")
    };
    assert_eq!(version("3.5.35", &before), ("3.6.16".to_owned(), true));
    assert_eq!(version("3.6.17", &before), ("3.6.17".to_owned(), false));
}

#[test]
fn what_an_earlier_operator_has_not_written_on_volumes_was_started_with_what_was_noted() {
    let mut scene = Scene::converged(3);
    for serial in 0..3 {
        change(
            scene.claim(serial),
            json!({ "metadata": { "annotations": { labels::VERSION: null } } }),
        );
    }
    let claims: Vec<_> = scene.observed.claims.values().cloned().collect();
    let told = |noted: Option<Version>| started_versions([].iter(), claims.iter(), noted);
    let noted = Version::new(3, 5, 30);
    assert_eq!(told(Some(noted)), Some((noted, noted)));
    let mut known = runs("3.5.30", "3.5.30");
    known.started_versions = told(Some(noted));
    assert_eq!(version("3.7.3", &known), ("3.5.30".to_owned(), true));
}

#[test]
fn a_version_that_reads_no_old_log_is_entered_when_the_logs_are_renewed() {
    let next = |wants: &str, before: &ClusterHistory| {
        let (desired, refused) = fields(&resource(json!({ "version": wants })), before);
        assert_eq!(refused, None);
        (
            desired.version.to_string(),
            desired.next.map(|next| next.to_string()),
        )
    };
    let stays = ("3.6.16".to_owned(), Some("3.7.3".to_owned()));
    let mut before = runs("3.6.16", "3.6.16");
    assert_eq!(next("3.7.3", &before), stays);
    // Renewed when all ran 3.5, it has entries of 3.5 in it.
    before.snapshotted_version = Some(Version::new(3, 5, 35));
    assert_eq!(next("3.7.3", &before), stays);
    before.snapshotted_version = Some(Version::new(3, 6, 15));
    assert_eq!(next("3.7.3", &before), ("3.7.3".to_owned(), None));
    // Some have entered it since: it is gone on with.
    let half = ClusterHistory {
        snapshotted_version: Some(Version::new(3, 6, 16)),
        ..runs("3.6.16", "3.7.3")
    };
    for before in [half, runs("3.7.3", "3.7.3")] {
        assert_eq!(next("3.7.3", &before), ("3.7.3".to_owned(), None));
    }
    // Or by a back door: those that have not are not to follow them, and these go back.
    assert_eq!(next("3.7.3", &runs("3.6.16", "3.7.3")), stays);
    assert_eq!(
        next("3.6.16", &runs("3.5.35", "3.5.35")),
        ("3.6.16".to_owned(), None),
        "3.6 reads what 3.5 wrote"
    );
    // Whatever else is wanted is in force meanwhile.
    let both = resource(json!({ "version": "3.7.3", "members": 5 }));
    assert_eq!(fields(&both, &runs("3.6.16", "3.6.16")).0.members, 5);
}

#[test]
fn pods_that_do_not_say_from_what_they_were_built_keep_that_in_force_until_they_do() {
    let known = noted(json!({ "version": "3.6.15", "members": 3 }));
    let mut before = after(known);
    before.has_unmarked_pods = true;
    let wants = resource(json!({ "version": "3.6.16", "members": 5, "paused": true }));
    let (desired, _) = fields(&wants, &before);
    assert_eq!(
        (desired.version.to_string(), desired.members, desired.paused),
        ("3.6.15".to_owned(), 5, true)
    );
    before.has_unmarked_pods = false;
    assert_eq!(fields(&wants, &before).0.version.to_string(), "3.6.16");
}

#[test]
fn a_quota_is_not_lowered_below_what_there_is() {
    let quota =
        |amount: &str| json!({ "etcd": { "quota": amount }, "storage": { "size": "10Gi" } });
    let mut before = after(noted(quota("4Gi")));
    before.data_size = 3 << 30;
    let (desired, refused) = fields(&resource(quota("2Gi")), &before);
    assert_eq!((desired.quota, refused), (4 << 30, Some("spec.etcd.quota")));
    for (amount, data) in [("3Gi", 3), ("5Gi", 3), ("4Gi", 5), ("2Gi", 1)] {
        before.data_size = data << 30;
        assert_eq!(
            fields(&resource(quota(amount)), &before).1,
            None,
            "{amount} for {data}Gi"
        );
    }
}

#[test]
fn heartbeats_and_elections_change_in_steps_in_which_members_get_along() {
    let options = |heartbeat: &str, election: &str| json!({ "etcd": { "options": { "heartbeat-interval": heartbeat, "election-timeout": election } } });
    let slow = after(noted(options("2000", "20000")));
    assert_eq!(
        fields(&resource(options("100", "1000")), &slow).1,
        Some("spec.etcd.options")
    );
    assert_eq!(fields(&resource(options("200", "10000")), &slow).1, None);
}

#[test]
fn while_a_cluster_is_being_created_its_version_stays_once_its_first_member_runs() {
    let begun = AcceptedSpec {
        is_bootstrapped: false,
        ..noted(json!({ "version": "3.6.16" }))
    };
    assert_eq!(
        version("3.5.35", &after(begun.clone())),
        ("3.5.35".to_owned(), false),
        "nothing runs yet"
    );
    let formed = AcceptedSpec {
        is_forming: true,
        ..begun
    };
    assert_eq!(
        version("3.7.3", &after(formed.clone())),
        ("3.6.16".to_owned(), true)
    );
    let anew = AcceptedSpec {
        is_previous_resource: true,
        ..formed
    };
    assert_eq!(
        version("3.7.3", &after(anew)),
        ("3.7.3".to_owned(), false),
        "that one is given up"
    );
}

#[test]
fn what_members_run_is_read_from_their_volumes_and_where_there_are_none_from_their_pods() {
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
    let told = |pods: &[Pod], claims: &[PersistentVolumeClaim]| {
        started_versions(pods.iter(), claims.iter(), None)
            .map(|(lowest, highest)| format!("{lowest} {highest}"))
    };
    assert_eq!(told(&pods, &claims).as_deref(), Some("3.5.35 3.6.16"));
    assert_eq!(told(&pods, &[]).as_deref(), Some("3.7.3 3.7.3"));
    let removed = json!({ "metadata": { "annotations": { labels::REMOVED_AT: "x" } } });
    let lowest = claims
        .iter_mut()
        .find(|claim| crate::observe::version(&claim.metadata).unwrap().minor == 5);
    change(lowest.unwrap(), removed);
    assert_eq!(
        told(&pods, &claims).as_deref(),
        Some("3.6.16 3.6.16"),
        "what is kept binds nobody"
    );
    assert_eq!(told(&[], &[]), None);
}

#[test]
fn windows_in_a_zone_that_does_not_exist_leave_those_that_were_accepted_before() {
    let in_zone = |zone: &str| {
        let window = json!({ "start": "02:00", "duration": "3h", "timeZone": zone });
        json!({ "maintenance": { "windows": [window] } })
    };
    let known = after(noted(in_zone("Europe/Berlin")));
    let (desired, refused) = fields(&resource(in_zone("Europe/Berln")), &known);
    assert_eq!(refused, Some("spec.maintenance.windows"));
    assert_eq!(
        desired.windows,
        fields(&resource(in_zone("Europe/Berlin")), &known)
            .0
            .windows
    );
}

#[test]
fn volumes_never_shrink_and_grow_only_where_their_class_lets_them() {
    let size = |size: &str| json!({ "storage": { "size": size, "class": "fixed" } });
    let mut before = after(noted(size("4Gi")));
    before.volume_size = 4 << 30;
    let told = |wants: Value, before: &ClusterHistory| {
        let (desired, refused) = fields(&resource(wants), before);
        (desired.size >> 30, refused)
    };
    assert_eq!(told(size("8Gi"), &before), (8, None));
    assert_eq!(told(size("2Gi"), &before), (4, Some("spec.storage.size")));
    before.fixed_size_class = Some("fixed".to_owned());
    assert_eq!(told(size("8Gi"), &before), (4, Some("spec.storage.size")));
    assert_eq!(told(size("4Gi"), &before), (4, None));
    let elsewhere = json!({ "storage": { "size": "8Gi", "class": "fast" } });
    assert_eq!(
        told(elsewhere, &before),
        (8, None),
        "those of the former class are left"
    );
    // What was asked for and never given can be taken back.
    let asked = ClusterHistory {
        volume_size: 4 << 30,
        ..after(noted(size("8Gi")))
    };
    assert_eq!(told(size("4Gi"), &asked), (4, None));
}

#[test]
fn an_image_that_is_named_by_its_digest_stays_with_the_version_that_stays() {
    let of = |version: &str, digit: &str| json!({ "version": version, "image": { "digest": format!("sha256:{}", digit.repeat(64)) } });
    let digest = |wants: Value, before: &ClusterHistory| {
        let (desired, _) = fields(&resource(wants), before);
        (
            desired.version.to_string(),
            desired
                .image
                .split_once('@')
                .map(|(_, digest)| digest[7..8].to_owned()),
        )
    };
    let started = |text: &str| Some((text.parse().unwrap(), text.parse().unwrap()));
    let before = ClusterHistory {
        started_versions: started("3.6.16"),
        ..after(noted(of("3.6.16", "a")))
    };
    let stays = ("3.6.16".to_owned(), Some("a".to_owned()));
    assert_eq!(
        digest(of("3.7.3", "b"), &before),
        stays,
        "until the logs are renewed"
    );
    let before = ClusterHistory {
        started_versions: started("3.5.30"),
        ..after(noted(of("3.5.30", "a")))
    };
    assert_eq!(
        digest(of("3.7.3", "b"), &before),
        ("3.5.30".to_owned(), Some("a".to_owned())),
        "refused"
    );
    let before = ClusterHistory {
        accepted: None,
        ..before
    };
    assert_eq!(
        digest(of("3.7.3", "b"), &before),
        ("3.5.30".to_owned(), None),
        "nobody knows which it was"
    );
}

#[test]
fn where_fields_hang_together_all_that_was_accepted_last_stays_in_force() {
    let known = noted(json!({ "resources": { "limits": { "memory": "1Gi" } } }));
    let wants = json!({ "members": 5, "resources": { "requests": { "memory": "2Gi" }, "limits": { "memory": "1Gi" } } });
    let (desired, refused) = fields(&resource(wants), &after(known));
    assert!(
        refused.is_some_and(|field| field.starts_with("spec.resources")),
        "{refused:?}"
    );
    assert_eq!(desired.members, 3);
}

#[test]
fn a_class_that_does_not_exist_is_refused_while_there_is_data() {
    let class = |class: &str| json!({ "storage": { "class": class } });
    let before = after(noted(class("fast"))).with_classes(None, Some("fsat".to_owned()));
    assert_eq!(
        fields(&resource(class("fsat")), &before).1,
        Some("spec.storage.class")
    );
    assert_eq!(fields(&resource(class("slow")), &before).1, None);
    let gone = after(noted(class("fast"))).with_classes(None, Some("fast".to_owned()));
    assert_eq!(
        fields(&resource(class("fast")), &gone).1,
        None,
        "it was deleted, and its volumes are there"
    );
}
