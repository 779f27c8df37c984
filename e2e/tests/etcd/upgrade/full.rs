//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_bad_image_stops_at_one_of_five_and_taking_it_back_restores_it() {
    stops_at_a_bad_image(&Story::begin("bad-image-5"), 5);
}

#[test]
fn a_bad_image_stops_a_single_member_and_taking_it_back_restores_it() {
    stops_at_a_bad_image(&Story::begin("bad-image-1"), 1);
}

#[test]
fn a_bad_image_stops_one_of_two_and_taking_it_back_restores_it() {
    stops_at_a_bad_image(&Story::begin("bad-image-2"), 2);
}

#[test]
fn a_restart_is_asked_for_and_survives_an_operator_that_dies_at_each_member() {
    let story = Story::begin("restarted");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (members, before) = (ids(&cluster), uids(&cluster));
    let leads = leader(&story, &cluster).name;
    let workload = cluster.workload();
    operator.proxy().rule(|write| {
        if evicts(write) {
            Verdict::StopAfter
        } else {
            Verdict::Pass
        }
    });
    let said = evenkeel(&story, &["restart", "orders"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out.contains("one by one, whoever leads last"),
        "{}",
        said.out
    );
    let mut died = Vec::new();
    story.within(LONG, "its first member is evicted", || {
        if let Some(stopped) = operator.proxy().try_stopped() {
            died.push(stopped.write.name().unwrap_or_default().to_owned());
            kill_and_restart(&story, &mut operator, stopped);
        }
        !died.is_empty()
    });
    // Between two restarts all is whole, too.
    let deadline = Instant::now() + 2 * LONG;
    while uids(&cluster)
        .iter()
        .any(|(name, uid)| before.get(name) == Some(uid))
    {
        assert!(
            Instant::now() < deadline,
            "not all are restarted: {:#}",
            cluster.status()
        );
        until_whole_through(&mut operator, &cluster, 3, |operator, stopped| {
            died.push(stopped.write.name().unwrap_or_default().to_owned());
            kill_and_restart(&story, operator, stopped);
        });
        std::thread::sleep(Duration::from_millis(200));
    }
    until_whole_through(&mut operator, &cluster, 3, |operator, stopped| {
        kill_and_restart(&story, operator, stopped);
    });
    operator.proxy().pass();
    println!("{}: {leads} led; died at {died:?}", story.namespace());
    ends_well(&story, &cluster, 3);
    assert_eq!(ids(&cluster), members, "they are the same members");
    let same: Vec<_> = uids(&cluster)
        .into_iter()
        .filter(|(name, uid)| before.get(name) == Some(uid))
        .collect();
    assert!(same.is_empty(), "not restarted: {same:?}");
    died.sort();
    died.dedup();
    assert_eq!(died.len(), 3, "each was evicted once: {died:?}");
    workload.finish();
    comes_to_rest(&operator);
}

#[test]
fn one_and_two_members_are_restarted_all_the_same_and_that_is_told() {
    let story = Story::begin("restarted-few");
    let _operator = Operator::start(&story);
    for members in [1, 2] {
        let cluster = formed(&story, &spec("3.6.16", members), members);
        let before = uids(&cluster);
        evenkeel(&story, &["restart", "orders"]);
        until_right("all were restarted", || {
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
        until_whole(&story, &cluster, members);
        let told = events(&story, &cluster);
        assert!(
            told.iter()
                .any(|(reason, _)| reason == "RestartWithoutRedundancy"),
            "{told:?}"
        );
        if members == 1 {
            story.kubectl(&["scale", "etcd/orders", "--replicas=2"]);
            until_whole(&story, &cluster, 2);
        }
    }
}

#[test]
fn members_whose_data_is_in_their_pods_are_replaced_one_by_one_when_the_spec_changes() {
    let story = Story::begin("moved-on");
    let operator = Operator::start(&story);
    let spec = spec("3.5.35", 3).replace("{size: 1Gi}", "{ephemeral: true}");
    let cluster = formed(&story, &spec, 3);
    let (workload, before) = (cluster.workload(), ids(&cluster));
    cluster.patch(&json!({ "version": "3.6.16" }));
    until_right("all run the new version", || {
        if runs(&cluster, "3.6.16") {
            Ok(())
        } else {
            Err(format!("{:#}", cluster.status()))
        }
    });
    ends_well(&story, &cluster, 3);
    let after = ids(&cluster);
    assert!(
        after.keys().all(|name| !before.contains_key(name)),
        "all are new: {before:?}, {after:?}"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn an_edit_in_the_middle_of_a_roll_is_the_target_at_once() {
    let story = Story::begin("edited");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, before) = (cluster.workload(), ids(&cluster));
    let memory =
        |amount: &str| json!({ "resources": { "requests": { "cpu": "10m", "memory": amount } } });
    // A pod that was listed may be gone when it is asked about.
    let asks = |pod: &str| {
        let path = "-o=jsonpath={.spec.containers[0].resources.requests.memory}";
        story
            .try_kubectl(&["get", "pod", pod, path])
            .unwrap_or_default()
    };
    cluster.patch(&memory("96Mi"));
    story.within(LONG, "one has what was wanted first", || {
        cluster.pods().iter().any(|pod| asks(&pod.name) == "96Mi")
    });
    cluster.patch(&memory("112Mi"));
    until_right("all have what was wanted last", || {
        let now: Vec<_> = cluster.pods().iter().map(|pod| asks(&pod.name)).collect();
        if now.len() == 3 && now.iter().all(|amount| amount == "112Mi") {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
    ends_well(&story, &cluster, 3);
    assert_eq!(ids(&cluster), before, "they are the same members");
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
