//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn what_is_planned_for_a_cluster_that_is_not_well_is_what_happens_step_for_step() {
    let story = Story::begin("plan-hurt");
    let _operator = Operator::start(&story);
    let spec = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nheal: {replaceAfter: 1h}";
    let cluster = formed(&story, spec, 3);
    let falls_silent = || {
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
        let given_up = format!("{victim} is replaced");
        let is_given_up = |status: &Value| {
            status["nextAction"]
                .as_str()
                .is_some_and(|next| next.contains(&given_up))
        };
        story.eventually("it is missed", || {
            let status = cluster.status();
            is_told(&status) && is_given_up(&status) && !cluster.pod(&victim).ready
        });
        victim
    };
    // More members than can be added while one is down; it is given up sooner with the same edit.
    let victim = falls_silent();
    let said = evenkeel(&story, &["plan"]);
    assert!(
        said.out.contains(&victim) && said.out.contains("Edit:     nothing is changed"),
        "{}",
        said.out
    );
    happens_as_planned(
        &story,
        &cluster,
        &json!({ "members": 4, "heal": { "replaceAfter": "30s" } }),
    );
    until_whole(&story, &cluster, 4);
    happens_as_planned(
        &story,
        &cluster,
        &json!({ "heal": { "replaceAfter": "1h" } }),
    );
    // Fewer, of whom one is down: it is the one to go.
    let victim = falls_silent();
    happens_as_planned(&story, &cluster, &json!({ "members": 3 }));
    until_whole(&story, &cluster, 3);
    assert!(cluster.member_list().iter().all(|one| one.name != victim));
}

#[test]
fn what_would_be_refused_is_refused_before_it_is_applied_and_a_new_cluster_is_planned() {
    let story = Story::begin("plan-no");
    let _operator = Operator::start(&story);
    bad_fields_are_not_planned(&story);
    let said = plan(&story, "3", "3.6.16");
    assert!(
        said.code == 0 && said.out.contains("orders is created"),
        "{}",
        said.out
    );
    assert_eq!(
        said.out.matches("creating the pod of").count(),
        3,
        "{}",
        said.out
    );
    assert!(said.out.contains("Ends:     Healthy"), "{}", said.out);
    assert!(
        said.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        said.out
    );
    assert!(
        story.try_kubectl(&["get", "etcd", "orders"]).is_err(),
        "nothing was changed"
    );

    let cluster = formed(&story, &crate::middle::spec(1), 1);
    what_would_be_refused_is_not_planned(&story);
    story.within(LONG, "it is as it was", || {
        cluster.status()["summary"] == "Healthy"
    });
}

/// When a pod was created, as text that sorts.
fn age_of(story: &Story, pod: &str) -> String {
    story.field(&["pod", pod], ".metadata.creationTimestamp")
}

#[test]
fn what_is_planned_for_an_edit_is_what_happens_step_for_step() {
    let story = Story::begin("plan");
    let _operator = Operator::start(&story);
    let cluster = formed(&story, &crate::middle::spec(3), 3);
    let clients = cluster.workload();
    let annotations = json!({ "service": { "annotations": { "example.com/zone": "a" } } });
    happens_as_planned(&story, &cluster, &annotations);
    happens_as_planned(
        &story,
        &cluster,
        &json!({ "storage": { "onDelete": "Delete" } }),
    );
    happens_as_planned(
        &story,
        &cluster,
        &json!({ "tls": { "client": { "extraNames": ["etcd.example.com"] } } }),
    );
    happens_as_planned(&story, &cluster, &json!({ "members": 5 }));
    until_whole(&story, &cluster, 5);
    // Who leads is spared, whoever that is by now.
    let newest = cluster
        .pods()
        .into_iter()
        .map(|pod| pod.name)
        .max_by_key(|name| age_of(&story, name))
        .unwrap();
    story.eventually("it leads, and that is told", || {
        let leads = cluster.status()["leader"] == newest.as_str();
        leads || {
            evenkeel(&story, &["move-leader", "--to", &newest]);
            false
        }
    });
    let later = happens_as_planned(&story, &cluster, &json!({ "members": 3 }));
    assert!(cluster.member_list().iter().any(|one| one.name == newest));
    assert_eq!(
        later.len(),
        2,
        "their volumes are deleted tomorrow: {later:?}"
    );
    until_whole(&story, &cluster, 3);
    happens_as_planned(
        &story,
        &cluster,
        &json!({ "storage": { "keepRemovedFor": "0" } }),
    );
    happens_as_planned(&story, &cluster, &json!({ "paused": true, "members": 1 }));
    happens_as_planned(&story, &cluster, &json!({ "paused": false }));
    until_whole(&story, &cluster, 1);
    clients.finish();
}
