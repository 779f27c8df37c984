//! `kubectl evenkeel plan`: what it foretells is what then happens, step for step.

mod full;

use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{LONG, follower, formed, until_right, until_whole};
use crate::plugin::{Said, evenkeel};

/// What the operator has decided to do so far, in order, without what it only writes down. What was declined and done again counts
/// once.
pub(crate) fn done(story: &Story, cluster: &str) -> Vec<String> {
    let log = story.get(&["configmap", &format!("{cluster}-etcd-decisions")]);
    let mut done: Vec<String> = Vec::new();
    for page in log["data"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, page)| page)
    {
        let decision: Value = serde_json::from_str(page.as_str().unwrap()).unwrap();
        for what in decision["actions"].as_array().into_iter().flatten() {
            let what = what.as_str().unwrap().to_owned();
            let notes = [
                "noting ",
                "closing a change of the membership",
                "keeping the volume of ",
            ];
            if !notes.iter().any(|note| what.starts_with(note)) && done.last() != Some(&what) {
                done.push(what);
            }
        }
    }
    done
}

/// What it has decided since this had been done. The oldest decisions are forgotten as new ones come.
pub(crate) fn done_since(story: &Story, cluster: &str, before: &[String]) -> Vec<String> {
    let all = done(story, cluster);
    let kept = (0..=before.len())
        .find(|from| all.starts_with(&before[*from..]))
        .unwrap_or(before.len());
    all[before.len() - kept..].to_vec()
}

/// The plan for an EtcdCluster `orders` of so many members and this version.
fn plan(story: &Story, members: &str, version: &str) -> Said {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.yaml");
    let text = format!(
        "apiVersion: evenkeel.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {{name: orders}}\nspec: {{version: {version}, members: \
         {members}, storage: {{size: 1Gi}}}}\n"
    );
    std::fs::write(&file, text).unwrap();
    evenkeel(story, &["plan", "-f", file.to_str().unwrap()])
}

/// That what the API server would refuse for the cluster `orders` is refused before it is applied.
pub(crate) fn what_would_be_refused_is_not_planned(story: &Story) {
    bad_fields_are_not_planned(story);
    let said = plan(story, "1", "3.6.2");
    assert!(
        said.code == 1 && said.err.contains("known to be bad"),
        "{}{}",
        said.out,
        said.err
    );
    assert_eq!(evenkeel(story, &["plan", "-f", "/nowhere"]).code, 1);
}

/// The same of a field's value, and of a field that is none.
fn bad_fields_are_not_planned(story: &Story) {
    let said = plan(story, "9", "3.6.16");
    assert!(
        said.code == 1 && said.err.contains("spec.members"),
        "{}",
        said.err
    );
    let said = plan(story, "3, frobnicate: 1", "3.6.16");
    assert!(
        said.code == 1
            && said
                .err
                .contains("not be accepted: unknown field \"spec.frobnicate\""),
        "{}",
        said.err
    );
}

/// Lays one value over another, as a merge patch does.
fn lay_over(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                lay_over(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// Whether the same is done in the same order. Only volumes are deleted when their pods are gone, which takes as long as it takes.
fn is_as(done: &[String], planned: &[String]) -> bool {
    let volume = |what: &&String| what.starts_with("deleting the volume of");
    let parted = |all: &[String]| {
        let (mut volumes, others): (Vec<String>, Vec<_>) =
            all.iter().cloned().partition(|what| volume(&what));
        volumes.sort();
        (volumes, others)
    };
    let at = |what: &str| done.iter().position(|one| one.starts_with(what));
    let after_its_pod = |what: &String| {
        let pod = what.replace("the volume of", "the pod of");
        at(&pod).is_none_or(|pod| at(what) > Some(pod))
    };
    parted(done) == parted(planned) && done.iter().filter(volume).all(after_its_pod)
}

/// What is planned for an edit is done, in that order, and nothing else; what is planned for hours later is handed back.
fn happens_as_planned(story: &Story, cluster: &Cluster<'_>, edit: &Value) -> Vec<String> {
    let mut resource = story.get(&[&format!("etcd/{}", cluster.name())]);
    let mut spec = resource["spec"].take();
    lay_over(&mut spec, edit);
    let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": cluster.name() }, "spec": spec });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.json");
    std::fs::write(&file, resource.to_string()).unwrap();
    let file = file.to_str().unwrap();
    evenkeel(story, &["plan", "-f", file]);
    let said = evenkeel(story, &["plan", "-f", file, "-o", "json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    assert!(!plan["edits"].as_array().unwrap().is_empty(), "{plan:#}");
    let steps = plan["steps"].as_array().unwrap();
    let does = |step: &Value| step["action"].as_str().unwrap().to_owned();
    let (later, soon): (Vec<&Value>, Vec<_>) = steps
        .iter()
        .partition(|step| step["afterSeconds"].as_i64() > Some(3600));
    let planned: Vec<String> = soon.into_iter().map(does).collect();

    let before = done(story, cluster.name());
    let since = || done_since(story, cluster.name(), &before);
    let looked_at = cluster.status()["observedGeneration"].as_i64();
    story.kubectl(&["apply", "-f", file]);
    until_right("it happens as planned", || {
        let (done, status) = (since(), cluster.status());
        let is_seen = status["observedGeneration"].as_i64() > looked_at;
        if is_as(&done, &planned) && is_seen && status["summary"] == plan["finalSummary"] {
            return Ok(());
        }
        Err(format!(
            "planned: {planned:#?}\ndone:    {done:#?}\n{}",
            status["summary"]
        ))
    });
    // And that was all.
    std::thread::sleep(Duration::from_secs(3));
    let done = since();
    assert!(
        is_as(&done, &planned),
        "planned: {planned:#?}\ndone:    {done:#?}"
    );
    later.into_iter().map(does).collect()
}

#[test]
fn a_new_service_annotation_and_more_members_come_step_for_step_as_planned() {
    let story = Story::begin("plan-grow");
    let _operator = Operator::start(&story);
    let cluster = formed(&story, &crate::middle::spec(1), 1);
    let clients = cluster.workload();
    let annotations = json!({ "service": { "annotations": { "example.com/zone": "a" } } });
    happens_as_planned(&story, &cluster, &annotations);
    happens_as_planned(&story, &cluster, &json!({ "members": 3 }));
    until_whole(&story, &cluster, 3);
    clients.finish();
}
