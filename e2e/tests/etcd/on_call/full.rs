//! The failures that need no node of their own.

use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use super::look::Looks;
use super::{Expected, expect, expect_recovery, look_at, thaw};
use crate::assertions::{CLUSTER_LIMIT, create_orders, follower, leader, wait_healthy};
use crate::interrupts::spec;

#[test]
fn a_lost_quorum_names_all_silent_members() {
    let story = Story::begin("oncall-quorum");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    let victims: Vec<_> = cluster.pods().into_iter().take(2).collect();
    let pods: Vec<_> = victims
        .iter()
        .map(|victim| story.lab().pod(story.namespace(), &victim.name).unwrap())
        .collect();
    for pod in &pods {
        pod.freeze(None, None).unwrap();
    }
    let expected = Expected {
        reason: "QuorumLost",
        cause: &[&victims[0].name, &victims[1].name],
        advice: &["waiting loses no data"],
    };
    let look = look_at(&mut looks, Instant::now(), &expected);
    assert_eq!(look.code, 4, "{}", look.screen);
    for pod in &pods {
        thaw(pod);
    }
    expect_recovery(&story, &cluster, &mut looks, "ClusterRecovered");
}

#[test]
fn a_full_database_is_not_ready_and_the_advice_frees_it() {
    let story = Story::begin("oncall-nospace");
    let _operator = Operator::start(&story);
    let full = format!("{}\netcd: {{quota: 16Mi}}", spec(1));
    let cluster = create_orders(&story, &full, 1);
    let mut looks = Looks::at(&story, &cluster);
    let value = "x".repeat(100_000);
    let is_full = || cluster.try_etcdctl(&["put", "filler", &value]).is_err();
    assert!((0..400).any(|_| is_full()), "the quota is reached");
    let expected = Expected {
        reason: "NoSpace",
        cause: &["NOSPACE"],
        advice: &["disarm", "kubectl evenkeel etcdctl orders"],
    };
    let look = look_at(&mut looks, Instant::now(), &expected);
    assert_eq!(look.code, 4, "{}", look.screen);
    // As the advice says.
    let output = cluster.etcdctl(&["get", "filler", "--write-out=json"]);
    let output: serde_json::Value = serde_json::from_str(&output).unwrap();
    let revision = output["header"]["revision"].to_string();
    cluster.etcdctl(&["del", "filler"]);
    cluster.etcdctl(&["compact", &revision]);
    cluster.etcdctl(&["defrag"]);
    cluster.etcdctl(&["alarm", "disarm"]);
    expect_recovery(&story, &cluster, &mut looks, "ClusterRecovered");
}

#[test]
fn a_full_volume_is_named_and_a_larger_one_resolves_it() {
    let story = Story::begin("oncall-volume-full");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    let victim = follower(&story, &cluster);
    let pod = story.lab().pod(story.namespace(), &victim.name).unwrap();
    pod.fill_volume(None).unwrap();
    let fault = Instant::now();
    // etcd ends when it cannot extend its log, which is preallocated: many writes are needed.
    let value = "x".repeat(100_000);
    story.within(CLUSTER_LIMIT, "etcd of the member ends", || {
        for _ in 0..50 {
            let _ = cluster.try_etcdctl(&["put", "filler", &value]);
        }
        !cluster.pod(&victim.name).ready
    });
    story.within(CLUSTER_LIMIT, "the status names the full volume", || {
        cluster.condition("Degraded").1 == "VolumeFull"
    });
    let expected = Expected {
        reason: "VolumeFull",
        cause: &[&victim.name, "volume is full"],
        advice: &["spec.storage.size"],
    };
    look_at(&mut looks, fault, &expected);
    cluster.patch(&json!({"storage": {"size": "2Gi"}}));
    wait_healthy(&story, &cluster, 3);
    expect_recovery(&story, &cluster, &mut looks, "MemberRecovered");
}

#[test]
fn a_wiped_volume_is_a_crash_loop_until_the_member_is_replaced() {
    let story = Story::begin("oncall-wiped");
    let _operator = Operator::start(&story);
    let patient = format!("{}\nheal: {{replaceAfter: 2m}}", spec(3));
    let cluster = create_orders(&story, &patient, 3);
    let mut looks = Looks::at(&story, &cluster);
    let victim = follower(&story, &cluster);
    let pod = story.lab().pod(story.namespace(), &victim.name).unwrap();
    pod.wipe_volume(None).unwrap();
    pod.kill(None, None).unwrap();
    let expected = Expected {
        reason: "MemberDown",
        cause: &[&victim.name, "keeps crashing"],
        advice: &["--previous"],
    };
    let look = look_at(&mut looks, Instant::now(), &expected);
    assert!(look.screen.contains("replaces"), "{}", look.screen);
    assert!(
        !look.report["nextAction"]["time"].is_null(),
        "{:#}",
        look.report
    );
    story.within(CLUSTER_LIMIT, "the member is replaced", || {
        cluster.pods().iter().all(|pod| pod.name != victim.name)
    });
    wait_healthy(&story, &cluster, 3);
    assert_eq!(looks.take("after the replacement").code, 0);
}

#[test]
fn a_missing_storage_class_is_named_and_an_existing_one_resolves_it() {
    let story = Story::begin("oncall-class");
    let _operator = Operator::start(&story);
    let spec = "version: 3.6.16\nmembers: 1\nstorage: {size: 1Gi, class: nosuch}";
    let cluster = Cluster::apply(&story, "orders", spec);
    story.eventually("the cluster has a status", || !cluster.status().is_null());
    story.eventually("the status names the class", || {
        cluster.condition("Degraded").1 == "StorageClassNotFound"
    });
    let output = crate::plugin::evenkeel(&story, &["status", "orders"]);
    assert_eq!(output.code, 4, "{}", output.out);
    for word in ["nosuch", "spec.storage.class", "You can"] {
        assert!(output.out.contains(word), "{word}: {}", output.out);
    }
    let class = story.kubectl(&[
        "get",
        "storageclass",
        "-o=jsonpath={.items[0].metadata.name}",
    ]);
    cluster.patch(&json!({"storage": {"class": class}}));
    cluster.wait_ready(CLUSTER_LIMIT);
    wait_healthy(&story, &cluster, 1);
}

#[test]
fn an_edit_that_no_node_can_run_is_named_and_reverting_it_resolves_it() {
    let story = Story::begin("oncall-memory");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    let resources = |memory: &str| json!({"resources": {"requests": {"memory": memory}, "limits": {"memory": memory}}});
    cluster.patch(&resources("900Gi"));
    let expected = Expected {
        reason: "Unschedulable",
        cause: &["no node can run its pod", "memory"],
        advice: &["spec.resources"],
    };
    look_at(&mut looks, Instant::now(), &expected);
    cluster.patch(&resources("300Mi"));
    wait_healthy(&story, &cluster, 3);
    assert_eq!(looks.take("after the revert").code, 0);
}

#[test]
fn a_version_without_an_image_stops_the_rollout_and_reverting_it_resolves_it() {
    let story = Story::begin("oncall-image");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    cluster.patch(&json!({"version": "3.6.99"}));
    let expected = Expected {
        reason: "RolloutStopped",
        cause: &["3.6.99", "cannot be pulled"],
        advice: &["revert its last change"],
    };
    let look = look_at(&mut looks, Instant::now(), &expected);
    assert!(look.screen.contains("3.6.16 → 3.6.99"), "{}", look.screen);
    cluster.patch(&json!({"version": "3.6.16"}));
    wait_healthy(&story, &cluster, 3);
    assert_eq!(looks.take("after the revert").code, 0);
}

#[test]
fn an_invalid_edit_names_its_field_and_a_valid_one_resolves_it() {
    let story = Story::begin("oncall-spec");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(1), 1);
    let mut looks = Looks::at(&story, &cluster);
    let window = |zone: &str| json!({"maintenance": {"windows": [{"days": ["Sat"], "start": "02:00", "duration": "3h", "timeZone": zone}]}});
    cluster.patch(&window("Europe/Belrin"));
    let expected = Expected {
        reason: "InvalidSpec",
        cause: &["Europe/Belrin"],
        advice: &["Correct spec.maintenance"],
    };
    look_at(&mut looks, Instant::now(), &expected);
    cluster.patch(&window("Europe/Berlin"));
    wait_healthy(&story, &cluster, 1);
    assert_eq!(looks.take("after the correction").code, 0);
}

#[test]
fn an_operator_that_is_down_is_reported_beside_a_cluster_that_serves() {
    let story = Story::begin("oncall-operator");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    operator.stop();
    let look = looks.take("without an operator");
    assert_eq!(look.code, 3, "{}", look.screen);
    assert_eq!(look.report["health"]["writes"], true, "{:#}", look.report);
    // The report follows the members although no operator updates the status.
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name, "--wait=false"]);
    story.eventually("the screen shows the missing member", || {
        let output = crate::plugin::evenkeel(&story, &["status", "orders"]);
        output.code == 3 && output.out.contains("0 member failures")
            || output.out.contains("no member failure")
            || output.out.contains("Tolerates    nothing")
    });
    operator.restart();
    wait_healthy(&story, &cluster, 3);
    assert_eq!(looks.take("with an operator").code, 0);
}

#[test]
fn a_write_that_a_quota_rejects_is_named_and_more_quota_resolves_it() {
    let story = Story::begin("oncall-quota");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    story.kubectl(&["create", "quota", "none", "--hard=pods=0"]);
    story.eventually("the quota has counted the pods", || {
        story.field(&["quota", "none"], ".status.used.pods") == "3"
    });
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    let expected = Expected {
        reason: "WriteRejected",
        cause: &["exceeded quota"],
        advice: &["ResourceQuota"],
    };
    look_at(&mut looks, Instant::now(), &expected);
    story.kubectl(&["delete", "quota", "none"]);
    wait_healthy(&story, &cluster, 3);
    assert_eq!(looks.take("without the quota").code, 0);
}

#[test]
fn a_deleted_ca_is_named_and_its_backup_resolves_it() {
    let story = Story::begin("oncall-ca");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(1), 1);
    let mut looks = Looks::at(&story, &cluster);
    let name = "orders-etcd-client-ca";
    let mut backup = story.get(&["secret", name]);
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        backup["metadata"].as_object_mut().unwrap().remove(field);
    }
    story.kubectl(&["delete", "secret", name]);
    // Secrets are not watched: a change makes the operator read them.
    story.kubectl(&["annotate", "service", "orders-etcd-client", "touched=yes"]);
    story.eventually("the status names the CA", || {
        cluster.condition("Degraded").1 == "CAMissing"
    });
    let look = looks.take("without the CA");
    let expected = Expected {
        reason: "CAMissing",
        cause: &[name],
        advice: &["from a backup"],
    };
    expect(&look, &expected);
    story.apply(&backup.to_string());
    wait_healthy(&story, &cluster, 1);
    assert_eq!(looks.take("with the CA").code, 0);
}

#[test]
fn a_name_conflict_names_the_object_and_deleting_it_resolves_it() {
    let story = Story::begin("oncall-name");
    let _operator = Operator::start(&story);
    story.kubectl(&[
        "create",
        "service",
        "clusterip",
        "orders-etcd-client",
        "--tcp=80",
    ]);
    let cluster = Cluster::apply(&story, "orders", &spec(1));
    story.eventually("the status names the Service", || {
        cluster.condition("Degraded").1 == "NameConflict"
    });
    let output = crate::plugin::evenkeel(&story, &["status", "orders"]);
    let screen = output.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in ["Service orders-etcd-client", "Delete it", "You can"] {
        assert!(screen.contains(word), "{word}: {}", output.out);
    }
    story.kubectl(&["delete", "service", "orders-etcd-client"]);
    cluster.wait_ready(CLUSTER_LIMIT);
    wait_healthy(&story, &cluster, 1);
}

#[test]
fn planned_changes_raise_no_alarm() {
    let story = Story::begin("oncall-planned");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let alarms = crate::alarms::Recorder::start(&story, &cluster);
    let restart = crate::plugin::evenkeel(&story, &["restart", "orders"]);
    assert_eq!(restart.code, 0, "{}", restart.err);
    wait_restarted(&story, &cluster);
    cluster.patch(&json!({"members": 4}));
    wait_healthy(&story, &cluster, 4);
    cluster.patch(&json!({"members": 3}));
    wait_healthy(&story, &cluster, 3);
    let victim = leader(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    wait_healthy(&story, &cluster, 3);
    alarms.assert_none();
}

/// Waits until all pods are younger than the request for a restart.
fn wait_restarted(story: &Story, cluster: &Cluster<'_>) {
    let requested = story.field(
        &["etcd/orders"],
        ".metadata.annotations.evenkeel\\.dev/restarted-at",
    );
    assert!(!requested.is_empty(), "the restart is requested");
    story.within(CLUSTER_LIMIT, "all pods are restarted", || {
        let pods = story.get(&["pods", "-l", "etcd.evenkeel.dev/cluster=orders"]);
        let mut pods = pods["items"].as_array().into_iter().flatten();
        pods.all(|pod| {
            pod["metadata"]["annotations"]["evenkeel.dev/restarted-at"] == requested.as_str()
        })
    });
    wait_healthy(story, cluster, 3);
}
