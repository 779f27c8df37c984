//! `kubectl evenkeel plan`: its actions are those that then happen, in the same order, and its effects come true.

mod full;

use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::assertions::{CLUSTER_LIMIT, create_orders, follower, wait_healthy, wait_until_ok};
use crate::plugin::{PluginOutput, evenkeel};

/// The names of actions that a plan does not contain: they only record something, or nudge a stuck member.
const NOT_PLANNED: [&str; 10] = [
    "mark-joined",
    "nudge-member",
    "record-cluster",
    "record-joined-volume",
    "record-removal",
    "record-spec",
    "record-template-hash",
    "record-version",
    "settle-intent",
    "start-seed",
];

/// An action in the decision log.
#[derive(Clone, Debug)]
pub(crate) struct DecidedAction {
    /// The machine name.
    pub(crate) name: String,
    /// The sentence, which a plan contains, too.
    pub(crate) text: String,
    /// The object of the action.
    pub(crate) target: Value,
}

fn texts(actions: &[DecidedAction]) -> Vec<String> {
    actions.iter().map(|action| action.text.clone()).collect()
}

/// Returns the actions that the operator has decided so far, in order, without those that no plan contains. A repeated action counts
/// once.
pub(crate) fn decided_actions(story: &Story, cluster: &str) -> Vec<DecidedAction> {
    let log = story.get(&["configmap", &format!("{cluster}-etcd-decisions")]);
    let mut decided: Vec<DecidedAction> = Vec::new();
    for page in log["data"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, page)| page)
    {
        let decision: Value = serde_json::from_str(page.as_str().unwrap()).unwrap();
        let records = decision["plan"]["actions"].as_array().into_iter().flatten();
        let texts = decision["actions"].as_array().into_iter().flatten();
        for (record, text) in records.zip(texts) {
            let action = DecidedAction {
                name: record["name"].as_str().unwrap().to_owned(),
                text: text.as_str().unwrap().to_owned(),
                target: record["target"].clone(),
            };
            let is_repeated = decided.last().is_some_and(|last| last.text == action.text);
            if !NOT_PLANNED.contains(&action.name.as_str()) && !is_repeated {
                decided.push(action);
            }
        }
    }
    decided
}

/// Returns the actions since an earlier call. The oldest decisions are dropped from the log as new ones come.
pub(crate) fn decided_since(
    story: &Story,
    cluster: &str,
    before: &[DecidedAction],
) -> Vec<DecidedAction> {
    let all = decided_actions(story, cluster);
    let (all_texts, before_texts) = (texts(&all), texts(before));
    let kept = (0..=before.len())
        .find(|from| all_texts.starts_with(&before_texts[*from..]))
        .unwrap_or(before.len());
    all[before.len() - kept..].to_vec()
}

/// Runs the plugin's plan for an EtcdCluster `orders` with this number of members and this version.
fn plan(story: &Story, members: &str, version: &str) -> PluginOutput {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.yaml");
    let text = format!(
        "apiVersion: evenkeel.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {{name: orders}}\nspec: {{version: {version}, members: \
         {members}, storage: {{size: 1Gi}}}}\n"
    );
    std::fs::write(&file, text).unwrap();
    evenkeel(story, &["plan", "-f", file.to_str().unwrap()])
}

/// Asserts that the plan rejects edits of the cluster `orders` that the API server would reject.
pub(crate) fn assert_rejected_before_apply(story: &Story) {
    assert_bad_fields_rejected(story);
    let output = plan(story, "1", "3.6.2");
    assert!(
        output.code == 1 && output.err.contains("3.6.0 to 3.6.3 have a known defect"),
        "{}{}",
        output.out,
        output.err
    );
    assert_eq!(evenkeel(story, &["plan", "-f", "/nowhere"]).code, 1);
}

/// Asserts the same for the value of a field, and for an unknown field.
fn assert_bad_fields_rejected(story: &Story) {
    let output = plan(story, "9", "3.6.16");
    assert!(
        output.code == 1 && output.err.contains("spec.members"),
        "{}",
        output.err
    );
    let output = plan(story, "3, frobnicate: 1", "3.6.16");
    assert!(
        output.code == 1
            && output
                .err
                .contains("would be rejected: unknown field \"spec.frobnicate\""),
        "{}",
        output.err
    );
}

/// Merges a value into another, as a merge patch does.
fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// Whether the same actions are done in the same order. Only volumes may be deleted later, because their pods must be gone first.
fn happened_as(decided: &[String], planned: &[String]) -> bool {
    let volume = |what: &&String| what.starts_with("deleting PersistentVolumeClaim ");
    let split = |all: &[String]| {
        let (mut volumes, others): (Vec<String>, Vec<_>) =
            all.iter().cloned().partition(|what| volume(&what));
        volumes.sort();
        (volumes, others)
    };
    let at = |what: &str| decided.iter().position(|one| one == what);
    let after_its_pod = |what: &String| {
        let pod = what.replace("PersistentVolumeClaim", "Pod");
        at(&pod).is_none_or(|pod| at(what) > Some(pod))
    };
    split(decided) == split(planned) && decided.iter().filter(volume).all(after_its_pod)
}

/// Asserts that a report has the documented form, and that its effects agree with its actions.
fn assert_report(plan: &Value) {
    assert_eq!(plan["apiVersion"], "plugin.evenkeel.dev/v1alpha1");
    assert_eq!(plan["kind"], "PlanReport");
    let count = |list: &str, key: &str, value: &str| {
        let list = plan[list].as_array().unwrap().iter();
        list.filter(|entry| entry[key] == value).count()
    };
    let effects = &plan["effects"];
    let restarts = count("steps", "kind", "restart-member");
    assert_eq!(effects["restarts"], restarts, "{plan:#}");
    let added = count("actions", "name", "add-member");
    assert_eq!(effects["membersAdded"], added, "{plan:#}");
    assert!(!effects["summary"].as_array().unwrap().is_empty());
}

/// Returns how many more members may fail, according to the status.
fn tolerated_members(status: &Value) -> &Value {
    &status["failureTolerance"]["members"]
}

/// Asserts that exactly the actions that are planned for an edit happen, in this order; returns the actions that are due hours later.
fn assert_happens_as_planned(story: &Story, cluster: &Cluster<'_>, edit: &Value) -> Vec<String> {
    let mut resource = story.get(&[&format!("etcd/{}", cluster.name())]);
    let mut spec = resource["spec"].take();
    merge(&mut spec, edit);
    let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": cluster.name() }, "spec": spec });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.json");
    std::fs::write(&file, resource.to_string()).unwrap();
    let file = file.to_str().unwrap();
    evenkeel(story, &["plan", "-f", file]);
    let output = evenkeel(story, &["plan", "-f", file, "-o", "json"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let plan: Value = serde_json::from_str(&output.out).unwrap();
    assert!(!plan["edits"].as_array().unwrap().is_empty(), "{plan:#}");
    assert_report(&plan);
    let actions = plan["actions"].as_array().unwrap();
    let does = |action: &Value| action["description"].as_str().unwrap().to_owned();
    let (later, soon): (Vec<&Value>, Vec<_>) = actions
        .iter()
        .partition(|action| action["afterSeconds"].as_i64() > Some(3600));
    let planned: Vec<String> = soon.into_iter().map(does).collect();

    let before = decided_actions(story, cluster.name());
    let since = || texts(&decided_since(story, cluster.name(), &before));
    let observed = cluster.status()["observedGeneration"].as_i64();
    story.kubectl(&["apply", "-f", file]);
    wait_until_ok("the actions happen as planned", || {
        let (decided, status) = (since(), cluster.status());
        let is_seen = status["observedGeneration"].as_i64() > observed;
        if happened_as(&decided, &planned) && is_seen && status["summary"] == plan["finalSummary"] {
            return Ok(());
        }
        Err(format!(
            "planned: {planned:#?}\ndecided: {decided:#?}\n{}",
            status["summary"]
        ))
    });
    // No other action follows.
    std::thread::sleep(Duration::from_secs(3));
    let decided = since();
    assert!(
        happened_as(&decided, &planned),
        "planned: {planned:#?}\ndecided: {decided:#?}"
    );
    if plan["finalSummary"] == "Healthy" {
        let after = &plan["effects"]["failureTolerance"]["after"]["members"];
        let status = cluster.status();
        assert_eq!(tolerated_members(&status), after, "{status:#}");
    }
    later.into_iter().map(does).collect()
}

#[test]
fn an_annotation_and_more_members_happen_as_planned() {
    let story = Story::begin("plan-grow");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &crate::interrupts::spec(1), 1);
    let clients = cluster.workload();
    let annotations = json!({ "service": { "annotations": { "example.com/zone": "a" } } });
    assert_happens_as_planned(&story, &cluster, &annotations);
    assert_happens_as_planned(&story, &cluster, &json!({ "members": 3 }));
    wait_healthy(&story, &cluster, 3);
    clients.finish();
}
