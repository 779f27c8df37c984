//! Alarms during planned changes: the condition Degraded and events of type Warning. Users are paged for both.

use std::fs::File;
use std::process::Child;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use serde_json::Value;

/// Records the statuses of a cluster and its warnings, from its start on.
pub(crate) struct Recorder<'s> {
    story: &'s Story,
    cluster: String,
    /// `kubectl get --watch`, which writes each status to `statuses`.
    watch: Child,
    statuses: tempfile::NamedTempFile,
    /// The warnings that were there before.
    before: Vec<String>,
}

impl<'s> Recorder<'s> {
    pub(crate) fn start(story: &'s Story, cluster: &Cluster<'_>) -> Self {
        let statuses = tempfile::NamedTempFile::new().expect("a file for the statuses");
        let output = File::create(statuses.path()).expect("the file can be written");
        let resource = format!("etcd/{}", cluster.name());
        let watch = story
            .command(&["get", &resource, "--watch", "-o", "json"])
            .spawn(|kubectl| {
                kubectl.stdout(output);
            })
            .expect("kubectl starts");
        Self {
            before: warnings(story, cluster.name()),
            story,
            cluster: cluster.name().to_owned(),
            watch,
            statuses,
        }
    }

    /// Asserts that the cluster was never Degraded, and that there is no new warning. A restart of a cluster of one or two
    /// members is announced by a warning, because clients are not served meanwhile.
    pub(crate) fn assert_none(mut self) {
        self.end();
        let statuses =
            std::fs::read_to_string(self.statuses.path()).expect("statuses are readable");
        let statuses = serde_json::Deserializer::from_str(&statuses).into_iter::<Value>();
        let statuses: Vec<_> = statuses.map_while(Result::ok).collect();
        assert!(!statuses.is_empty(), "kubectl has written statuses");
        let degraded = statuses.iter().filter(|status| is_degraded(status));
        let degraded: Vec<_> = degraded.map(|status| &status["status"]).collect();
        assert!(
            degraded.is_empty(),
            "Degraded during a planned change: {degraded:#?}"
        );
        let mut new = warnings(self.story, &self.cluster);
        new.retain(|warning| !self.before.contains(warning));
        new.retain(|warning| !warning.starts_with("RestartWithoutRedundancy"));
        assert!(new.is_empty(), "warnings during a planned change: {new:#?}");
    }

    fn end(&mut self) {
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_degraded(resource: &Value) -> bool {
    let conditions = resource["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Degraded" && condition["status"] == "True")
}

/// Returns the warnings about a cluster: reason and note.
fn warnings(story: &Story, cluster: &str) -> Vec<String> {
    let about = format!("regarding.kind=EtcdCluster,regarding.name={cluster},type=Warning");
    let list = story.get(&["events.events.k8s.io", "--field-selector", &about]);
    let events = list["items"].as_array().into_iter().flatten();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    events
        .map(|event| format!("{}: {}", text(event, "reason"), text(event, "note")))
        .collect()
}
