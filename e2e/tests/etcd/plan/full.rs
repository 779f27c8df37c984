//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn the_plan_for_an_unhealthy_cluster_happens_step_by_step() {
    let story = Story::begin("plan-hurt");
    let _operator = Operator::start(&story);
    let spec = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nheal: {replaceAfter: 1h}";
    let cluster = create_orders(&story, spec, 3);
    let freeze_follower = || {
        let victim = follower(&story, &cluster).name;
        story
            .lab()
            .pod(story.namespace(), &victim)
            .unwrap()
            .cut()
            .unwrap();
        let is_told = |status: &Value| {
            let mut members = status["memberList"].as_array().unwrap().iter();
            members.any(|one| one["name"] == victim.as_str() && one["healthy"] == false)
        };
        let given_up = format!("operator replaces member {victim}");
        let is_given_up = |status: &Value| {
            status["nextAction"]["message"]
                .as_str()
                .is_some_and(|next| next.contains(&given_up))
        };
        story.eventually("the status reports the member as unhealthy", || {
            let status = cluster.status();
            is_told(&status) && is_given_up(&status) && !cluster.pod(&victim).ready
        });
        victim
    };
    // More members than can be added while one is down; the same edit shortens `replaceAfter`.
    let victim = freeze_follower();
    let output = evenkeel(&story, &["plan"]);
    assert!(
        output.out.contains(&victim) && output.out.contains("Edit         none"),
        "{}",
        output.out
    );
    assert!(output.out.contains("Z (in "), "{}", output.out);
    assert_happens_as_planned(
        &story,
        &cluster,
        &json!({ "members": 4, "heal": { "replaceAfter": "30s" } }),
    );
    wait_healthy(&story, &cluster, 4);
    assert_happens_as_planned(
        &story,
        &cluster,
        &json!({ "heal": { "replaceAfter": "1h" } }),
    );
    // Fewer members while one is down: that one is removed.
    let victim = freeze_follower();
    assert_happens_as_planned(&story, &cluster, &json!({ "members": 3 }));
    wait_healthy(&story, &cluster, 3);
    assert!(cluster.member_list().iter().all(|one| one.name != victim));
}

#[test]
fn the_plan_rejects_invalid_edits_and_previews_a_new_cluster() {
    let story = Story::begin("plan-no");
    let _operator = Operator::start(&story);
    assert_bad_fields_rejected(&story);
    let output = plan(&story, "3", "3.6.16");
    assert!(
        output.code == 0 && output.out.contains("create EtcdCluster orders"),
        "{}",
        output.out
    );
    let count = |text: &str| output.out.matches(text).count();
    assert_eq!(count(" as the first member"), 1, "{}", output.out);
    assert_eq!(count("  add orders-"), 2, "{}", output.out);
    assert!(
        output.out.contains("Ends         Healthy"),
        "{}",
        output.out
    );
    assert!(
        output.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        output.out
    );
    assert!(
        story.try_kubectl(&["get", "etcd", "orders"]).is_err(),
        "the plan created the resource"
    );

    let cluster = create_orders(&story, &crate::interrupts::spec(1), 1);
    assert_rejected_before_apply(&story);
    story.within(CLUSTER_LIMIT, "the cluster is healthy", || {
        cluster.status()["summary"] == "Healthy"
    });
}

/// Returns the creation time of a pod, as text that sorts.
fn age_of(story: &Story, pod: &str) -> String {
    story.field(&["pod", pod], ".metadata.creationTimestamp")
}

#[test]
fn the_plan_for_an_edit_happens_step_by_step() {
    let story = Story::begin("plan");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &crate::interrupts::spec(3), 3);
    let clients = cluster.workload();
    let annotations = json!({ "service": { "annotations": { "example.com/zone": "a" } } });
    assert_happens_as_planned(&story, &cluster, &annotations);
    assert_happens_as_planned(
        &story,
        &cluster,
        &json!({ "storage": { "onDelete": "Delete" } }),
    );
    assert_happens_as_planned(
        &story,
        &cluster,
        &json!({ "tls": { "client": { "extraNames": ["etcd.example.com"] } } }),
    );
    assert_happens_as_planned(&story, &cluster, &json!({ "members": 5 }));
    wait_healthy(&story, &cluster, 5);
    // The leader is not removed, whichever member it is.
    let newest = cluster
        .pods()
        .into_iter()
        .map(|pod| pod.name)
        .max_by_key(|name| age_of(&story, name))
        .unwrap();
    story.eventually("the status reports the newest member as leader", || {
        let is_leader = cluster.status()["leader"] == newest.as_str();
        is_leader || {
            evenkeel(&story, &["move-leader", "orders", "--to", &newest]);
            false
        }
    });
    let later = assert_happens_as_planned(&story, &cluster, &json!({ "members": 3 }));
    assert!(cluster.member_list().iter().any(|one| one.name == newest));
    assert_eq!(
        later.len(),
        2,
        "expected the deletion of volumes after a day: {later:?}"
    );
    wait_healthy(&story, &cluster, 3);
    assert_happens_as_planned(
        &story,
        &cluster,
        &json!({ "storage": { "keepRemovedFor": "0" } }),
    );
    assert_happens_as_planned(&story, &cluster, &json!({ "paused": true, "members": 1 }));
    assert_happens_as_planned(&story, &cluster, &json!({ "paused": false }));
    wait_healthy(&story, &cluster, 1);
    clients.finish();
}

/// Returns the number of pods that were not restarted yet: they request another amount of CPU.
fn pods_to_restart(story: &Story, cpu: &str) -> usize {
    let pods = story.get(&["pods", "--selector", "etcd.evenkeel.dev/cluster=orders"]);
    let pods = pods["items"].as_array().unwrap().iter();
    pods.filter(|pod| {
        let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
        requests["cpu"] != cpu && pod["metadata"]["deletionTimestamp"].is_null()
    })
    .count()
}

#[test]
fn a_plan_in_the_middle_of_a_rollout_has_the_steps_that_are_left() {
    let story = Story::begin("plan-roll");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &crate::interrupts::spec(3), 3);
    let patch = r#"{"spec": {"resources": {"requests": {"cpu": "150m"}}}}"#;
    story.kubectl(&["patch", "etcd", "orders", "--type=merge", "-p", patch]);
    let mut counts = Vec::new();
    story.within(CLUSTER_LIMIT, "the rollout is done", || {
        let before = pods_to_restart(&story, "150m");
        let output = evenkeel(&story, &["plan", "orders", "-o", "json"]);
        assert_eq!(output.code, 0, "{}", output.err);
        let after = pods_to_restart(&story, "150m");
        let plan: Value = serde_json::from_str(&output.out).unwrap();
        let restarts = plan["effects"]["restarts"].as_u64().unwrap();
        let left = after as u64..=before as u64;
        assert!(left.contains(&restarts), "{left:?}: {plan:#}");
        assert_eq!(plan["finalSummary"], "Healthy", "{plan:#}");
        counts.push(restarts);
        restarts == 0 && cluster.status()["summary"] == "Healthy"
    });
    counts.dedup();
    assert!(
        counts.len() > 2,
        "too few looks during the rollout: {counts:?}"
    );
}
