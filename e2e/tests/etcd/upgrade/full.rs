//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_bad_image_stops_at_one_of_five_and_reverting_restores_it() {
    stop_at_bad_image(&Story::begin("bad-image-5"), 5);
}

#[test]
fn a_bad_image_stops_a_single_member_and_reverting_restores_it() {
    stop_at_bad_image(&Story::begin("bad-image-1"), 1);
}

#[test]
fn a_bad_image_stops_one_of_two_and_reverting_restores_it() {
    stop_at_bad_image(&Story::begin("bad-image-2"), 2);
}

#[test]
fn a_requested_restart_survives_an_operator_crash_at_each_member() {
    let story = Story::begin("restarted");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (members, before) = (member_ids(&cluster), uids(&cluster));
    let leader_name = leader(&story, &cluster).name;
    let workload = cluster.workload();
    operator.proxy().rule(|write| {
        if is_eviction(write) {
            Verdict::HoldAfter
        } else {
            Verdict::Pass
        }
    });
    let output = evenkeel(&story, &["restart", "orders"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let words: Vec<_> = output.out.split_whitespace().collect();
    assert!(
        words.join(" ").contains("one by one, the leader last"),
        "{}",
        output.out
    );
    let mut crashed = Vec::new();
    story.within(CLUSTER_LIMIT, "the first member is evicted", || {
        if let Some(held) = operator.proxy().try_held() {
            crashed.push(held.write.name().unwrap_or_default().to_owned());
            kill_and_restart(&story, &mut operator, held);
        }
        !crashed.is_empty()
    });
    // Between two restarts the cluster is healthy, too.
    let deadline = Instant::now() + 2 * CLUSTER_LIMIT;
    while uids(&cluster)
        .iter()
        .any(|(name, uid)| before.get(name) == Some(uid))
    {
        assert!(
            Instant::now() < deadline,
            "not all members are restarted: {:#}",
            cluster.status()
        );
        wait_healthy_through(&mut operator, &cluster, 3, |operator, held| {
            crashed.push(held.write.name().unwrap_or_default().to_owned());
            kill_and_restart(&story, operator, held);
        });
        std::thread::sleep(Duration::from_millis(200));
    }
    wait_healthy_through(&mut operator, &cluster, 3, |operator, held| {
        kill_and_restart(&story, operator, held);
    });
    operator.proxy().pass();
    println!(
        "{}: {leader_name} was the leader; killed at {crashed:?}",
        story.namespace()
    );
    wait_converged(&story, &cluster, 3);
    assert_eq!(member_ids(&cluster), members, "the members differ");
    let same: Vec<_> = uids(&cluster)
        .into_iter()
        .filter(|(name, uid)| before.get(name) == Some(uid))
        .collect();
    assert!(same.is_empty(), "not restarted: {same:?}");
    crashed.sort();
    crashed.dedup();
    assert_eq!(
        crashed.len(),
        3,
        "not each member was evicted once: {crashed:?}"
    );
    workload.finish();
    wait_idle(&operator);
}

#[test]
fn one_and_two_members_are_restarted_with_a_warning() {
    let story = Story::begin("restarted-few");
    let _operator = Operator::start(&story);
    for members in [1, 2] {
        let cluster = create_orders(&story, &spec("3.6.16", members), members);
        let before = uids(&cluster);
        evenkeel(&story, &["restart", "orders"]);
        wait_until_ok("all members are restarted", || {
            let now = uids(&cluster);
            let same = now
                .iter()
                .filter(|(name, uid)| before.get(*name) == Some(*uid))
                .count();
            if same == 0 && now.len() == members {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        });
        wait_healthy(&story, &cluster, members);
        let reported = events(&story, &cluster);
        assert!(
            reported
                .iter()
                .any(|(reason, _)| reason == "RestartWithoutRedundancy"),
            "{reported:?}"
        );
        if members == 1 {
            story.kubectl(&["scale", "etcd/orders", "--replicas=2"]);
            wait_healthy(&story, &cluster, 2);
        }
    }
}

#[test]
fn ephemeral_members_are_replaced_one_by_one_when_the_spec_changes() {
    let story = Story::begin("moved-on");
    let operator = Operator::start(&story);
    let spec = spec("3.5.35", 3).replace("{size: 1Gi}", "{ephemeral: true}");
    let cluster = create_orders(&story, &spec, 3);
    let (workload, before) = (cluster.workload(), member_ids(&cluster));
    cluster.patch(&json!({ "version": "3.6.16" }));
    wait_until_ok("all members run the new version", || {
        if all_run(&cluster, "3.6.16") {
            Ok(())
        } else {
            Err(format!("{:#}", cluster.status()))
        }
    });
    wait_converged(&story, &cluster, 3);
    let after = member_ids(&cluster);
    assert!(
        after.keys().all(|name| !before.contains_key(name)),
        "a member was kept: {before:?}, {after:?}"
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn an_edit_during_a_rollout_is_the_target_at_once() {
    let story = Story::begin("edited");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (workload, before) = (cluster.workload(), member_ids(&cluster));
    let memory =
        |amount: &str| json!({ "resources": { "requests": { "cpu": "10m", "memory": amount } } });
    // A pod of the list may be gone when it is read.
    let request_version = |pod: &str| {
        let path = "-o=jsonpath={.spec.containers[0].resources.requests.memory}";
        story
            .try_kubectl(&["get", "pod", pod, path])
            .unwrap_or_default()
    };
    cluster.patch(&memory("96Mi"));
    story.within(CLUSTER_LIMIT, "one member has the first edit", || {
        cluster
            .pods()
            .iter()
            .any(|pod| request_version(&pod.name) == "96Mi")
    });
    cluster.patch(&memory("112Mi"));
    wait_until_ok("all members have the last edit", || {
        let now: Vec<_> = cluster
            .pods()
            .iter()
            .map(|pod| request_version(&pod.name))
            .collect();
        if now.len() == 3 && now.iter().all(|amount| amount == "112Mi") {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
    wait_converged(&story, &cluster, 3);
    assert_eq!(member_ids(&cluster), before, "the members differ");
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
