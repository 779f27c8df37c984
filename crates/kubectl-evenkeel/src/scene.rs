//! A cluster in a certain state, for tests of the screens. Every rendered screen is checked for contradictions.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::availability::Alarm;
use evenkeel_kit::nodes::NodeState;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::args::ColorMode;
use crate::assess::Evidence;
use crate::backup::objects::BackupObjects;
use crate::live::{LiveEvent, LiveView, ReadError};
use crate::member_metrics::{LiveAnswer, LiveHealth, MemberMetrics};
use crate::operator_status::{LeaseHolder, OperatorStatus};
use crate::report::{ClusterReport, HealthState};
use crate::status_text;
use crate::terminal::{Terminal, WIDTH};

pub(crate) const NOW: &str = "2026-11-16T12:00:00Z";
const NAMES: [&str; 3] = ["orders-gv2z5", "orders-qhgqk", "orders-69mbp"];

/// A cluster in a certain state.
pub(crate) struct Scene {
    /// The resource, as JSON.
    pub(crate) resource: Value,
    pub(crate) live: LiveView,
    pub(crate) operator: OperatorStatus,
}

impl Scene {
    /// A healthy cluster `shop/orders` of three members on three nodes. The second one leads.
    pub(crate) fn healthy() -> Self {
        let members = NAMES.iter().enumerate().map(|(index, name)| {
            json!({ "name": name, "id": format!("8ddab73534be95{index:02}"), "role": "Voter", "healthy": true,
                "version": "3.6.16", "node": format!("node-{}", index + 1) })
        });
        let condition = |type_: &str, status: &str, reason: &str| {
            json!({ "type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-11-16T11:50:00Z" })
        };
        let certificates = [
            ("orders-etcd-peer-ca", "2036-11-14T10:00:00Z"),
            ("orders-etcd-peer-tls", "2027-11-16T10:00:00Z"),
            ("orders-etcd-client-tls", "2027-11-16T11:00:00Z"),
        ];
        let certificates =
            certificates.map(|(secret, expires)| json!({ "secret": secret, "expires": expires }));
        let resource = json!({
            "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": { "name": "orders", "namespace": "shop", "generation": 4, "uid": "u",
                "creationTimestamp": "2026-11-16T10:00:00Z",
                "managedFields": [{ "subresource": "status", "time": "2026-11-16T11:59:51Z" }] },
            "spec": { "version": "3.6.16", "members": 3, "storage": { "size": "4Gi", "class": "lab-disk" } },
            "status": {
                "summary": "Healthy", "ready": "3/3", "leader": NAMES[1], "observedGeneration": 4, "version": "3.6.16",
                "clusterId": "26937bbebc2c7cf", "quota": "3Gi", "dataSize": "16Mi", "volumeSize": "4Gi",
                "failureTolerance": { "summary": "1 node", "members": 1, "nodes": 1 },
                "memberList": members.collect::<Vec<_>>(), "certificates": certificates,
                "conditions": [condition("Ready", "True", "Serving"), condition("Progressing", "False", "Converged"),
                    condition("Degraded", "False", "AsExpected")],
            },
        });
        let mut scene = Self {
            resource,
            live: LiveView {
                answers: BTreeMap::new(),
                pods: Ok(BTreeMap::new()),
                nodes: None,
                volume_count: Ok(3),
                disruptions_allowed: Ok(Some(1)),
                events: Ok(Vec::new()),
                backups: Ok(BackupObjects::default()),
            },
            operator: OperatorStatus::Running(LeaseHolder {
                namespace: "evenkeel-system".to_owned(),
                identity: "evenkeel-operator-689f4c5d7b-ds4t9-5c8e2209".to_owned(),
                renewed_seconds_ago: 2,
            }),
        };
        for (index, name) in NAMES.iter().enumerate() {
            scene.answer(name, answer(*name == NAMES[1]));
            scene.pod(name, &format!("node-{}", index + 1));
        }
        scene
    }

    /// A healthy cluster with one member.
    pub(crate) fn single_member() -> Self {
        let mut scene = Self::healthy();
        scene.resource["spec"]["members"] = json!(1);
        scene.status("ready", json!("1/1"));
        let only = scene.resource["status"]["memberList"][1].clone();
        scene.status("memberList", json!([only]));
        scene.live.volume_count = Ok(1);
        for name in [NAMES[0], NAMES[2]] {
            scene.live.answers.remove(name);
            scene.remove_pod(name);
        }
        scene
    }

    /// A cluster that was created one second ago.
    pub(crate) fn new() -> Self {
        let mut scene = Self::healthy();
        scene.resource["metadata"]["creationTimestamp"] = json!("2026-11-16T11:59:59Z");
        scene.resource.as_object_mut().unwrap().remove("status");
        scene.live.answers.clear();
        scene.live.pods = Ok(BTreeMap::new());
        scene.live.volume_count = Ok(0);
        scene.live.disruptions_allowed = Ok(None);
        scene
    }

    /// Sets a field of the status.
    pub(crate) fn status(&mut self, field: &str, value: Value) {
        self.resource["status"][field] = value;
    }

    /// Sets a condition of the status.
    pub(crate) fn condition(&mut self, type_: &str, status: &str, reason: &str, since: &str) {
        let conditions = self.resource["status"]["conditions"]
            .as_array_mut()
            .unwrap();
        let condition = conditions
            .iter_mut()
            .find(|one| one["type"] == type_)
            .unwrap();
        condition["status"] = json!(status);
        condition["reason"] = json!(reason);
        condition["lastTransitionTime"] = json!(since);
    }

    /// Lets the operator report a problem.
    pub(crate) fn problem(&mut self, reason: &str, member: &str, message: &str, advice: &str) {
        let since = "2026-11-16T11:59:08Z";
        let problem = json!({ "reason": reason, "member": member, "message": message, "advice": advice, "since": since });
        match self.resource["status"]["problems"].as_array_mut() {
            Some(problems) => problems.push(problem),
            None => self.status("problems", json!([problem])),
        }
        self.condition("Degraded", "True", reason, since);
    }

    /// Sets the answer of a member.
    pub(crate) fn answer(&mut self, member: &str, answer: LiveAnswer) {
        self.live.answers.insert(member.to_owned(), answer);
    }

    /// Lets a member not answer.
    pub(crate) fn no_answer(&mut self, member: &str) {
        self.answer(
            member,
            failed(LiveHealth::NoAnswer, "no response within 4s"),
        );
    }

    /// Lets a member answer without a quorum.
    pub(crate) fn no_quorum(&mut self, member: &str) {
        self.answer(member, failed(LiveHealth::NoQuorum, "RAFT NO LEADER"));
    }

    /// Raises an alarm.
    pub(crate) fn alarm(&mut self, alarm: Alarm) {
        for answer in self.live.answers.values_mut() {
            answer.alarms.insert(alarm);
        }
    }

    /// Adds the pod of a member, which was created 27 minutes ago.
    pub(crate) fn pod(&mut self, member: &str, node: &str) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": member, "namespace": "shop", "creationTimestamp": "2026-11-16T11:33:00Z",
                "annotations": { "evenkeel.dev/data-sub-path": "member" } },
            "spec": { "nodeName": node, "containers": [{ "name": "etcd", "image": "mirror.example/etcd:v3.6.16" }] },
            "status": { "phase": "Running", "podIP": "10.0.0.7", "containerStatuses": [{ "name": "etcd",
                "ready": true, "restartCount": 0, "image": "", "imageID": "", "state": { "running": {} } }] },
        }))
        .unwrap();
        self.live
            .pods
            .as_mut()
            .unwrap()
            .insert(member.to_owned(), pod);
    }

    /// Removes the pod of a member.
    pub(crate) fn remove_pod(&mut self, member: &str) {
        self.live.pods.as_mut().unwrap().remove(member);
    }

    /// Changes the pod of a member.
    pub(crate) fn edit_pod(&mut self, member: &str, edit: impl FnOnce(&mut Pod)) {
        edit(self.live.pods.as_mut().unwrap().get_mut(member).unwrap());
    }

    /// Makes the state of a node known.
    pub(crate) fn node(&mut self, name: &str, is_ready: bool) {
        let state = NodeState {
            name: name.to_owned(),
            is_ready,
            unready_since: (!is_ready).then_some(evenkeel_runtime::UnixTime(1_794_830_338)),
            ..NodeState::default()
        };
        let nodes = self.live.nodes.get_or_insert_default();
        nodes.insert(name.to_owned(), Some(state));
    }

    /// Adds an event.
    pub(crate) fn event(&mut self, time: &str, is_warning: bool, reason: &str, message: &str) {
        self.live.events.as_mut().unwrap().push(LiveEvent {
            time: time.parse().unwrap(),
            is_warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }

    /// Takes the permissions of the user away that the ClusterRole `view` does not have.
    pub(crate) fn view_only(&mut self) {
        for answer in self.live.answers.values_mut() {
            *answer = LiveAnswer::unknown("");
        }
        self.live.nodes = None;
        self.operator =
            OperatorStatus::Unknown("this needs list on leases at cluster scope".to_owned());
    }

    /// Stops the operator.
    pub(crate) fn stop_operator(&mut self) {
        self.operator = OperatorStatus::NotRunning {
            namespace: Some("evenkeel-system".to_owned()),
            lease: "Lease evenkeel-system/evenkeel-operator was last renewed 3d ago".to_owned(),
        };
    }

    /// Makes a part of the cluster unreadable.
    pub(crate) fn forbidden(permission: &str) -> ReadError {
        ReadError::Forbidden(format!("{permission} in namespace shop"))
    }

    pub(crate) fn cluster(&self) -> EtcdCluster {
        serde_json::from_value(self.resource.clone()).unwrap()
    }

    pub(crate) fn report(&self) -> ClusterReport {
        Evidence {
            cluster: &self.cluster(),
            live: &self.live,
            operator: &self.operator,
            now: now(),
        }
        .report()
    }

    /// Renders the status screen, and checks that it does not contradict itself.
    pub(crate) fn screen(&self) -> String {
        let report = self.report();
        let screen = status_text::text(&report, false, Terminal::new(ColorMode::Never));
        check(&screen, &report);
        // Shown by `cargo nextest run --no-capture`.
        println!("exit code {}\n{screen}", report.exit_code);
        screen
    }
}

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// Returns the names of the members.
pub(crate) fn names() -> [&'static str; 3] {
    NAMES
}

/// Returns the answer of a healthy member.
fn answer(is_leader: bool) -> LiveAnswer {
    LiveAnswer {
        health: LiveHealth::Ok,
        alarms: BTreeSet::new(),
        metrics: MemberMetrics {
            db_size_bytes: Some(237_568),
            db_in_use_bytes: Some(200_000),
            quota_bytes: Some(3 << 30),
            applied: Some(41),
            committed: Some(41),
            revision: Some(5210),
            is_leader: Some(u64::from(is_leader)),
            is_learner: Some(0),
            version: Some("3.6.16".to_owned()),
        },
        error: String::new(),
    }
}

fn failed(health: LiveHealth, error: &str) -> LiveAnswer {
    LiveAnswer {
        health,
        ..LiveAnswer::unknown(error)
    }
}

/// Returns the text of a screen in one line, without the events, which are about the past.
pub(crate) fn words(screen: &str) -> String {
    let before_events = screen.split("Last events").next().unwrap_or_default();
    before_events
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns a screen without the line about backups.
fn without_backups(screen: &str) -> String {
    let (before, rest) = screen.split_once("\nBackup ").unwrap_or((screen, ""));
    let after = rest.split_once("\nConnect").map_or("", |(_, after)| after);
    format!("{before}\nConnect{after}")
}

/// Checks that a screen does not contradict itself.
fn check(screen: &str, report: &ClusterReport) {
    let words = words(screen);
    let says = |word: &str| words.contains(word);
    for line in screen.lines() {
        assert!(line.chars().count() <= WIDTH, "too long: {line}\n{screen}");
        assert_eq!(line, line.trim_end(), "blanks at the end\n{screen}");
    }
    let state = report.health.state;
    let is_ok = state == HealthState::Ok;
    assert_eq!(report.exit_code == 0, is_ok, "{screen}");
    assert_eq!(says("Health OK"), is_ok, "{screen}");
    assert_eq!(says("Problem"), !report.problems.is_empty(), "{screen}");
    assert_eq!(says("You can"), !report.problems.is_empty(), "{screen}");
    // Without the notes, which may quote an outdated report of the operator, and without the line about backups, which
    // quotes their problems: they are not those of the cluster.
    let statements = without_backups(screen);
    let screen_without_backups = statements.as_str();
    let statements: Vec<_> = screen_without_backups
        .split("Last events")
        .next()
        .unwrap_or_default()
        .split("\nNote ")
        .map(|part| part.split_once("\n\n").map_or(part, |(_, rest)| rest))
        .collect();
    let statements = if screen.contains("\nNote ") {
        let first = screen_without_backups.split("\nNote ").next();
        let last = statements.last().unwrap_or(&"");
        format!("{} {last}", first.unwrap_or_default())
    } else {
        self::words(screen_without_backups)
    };
    if is_ok {
        for problem in [
            "no answer",
            "no quorum",
            "not healthy",
            "does not",
            "NotReady",
            " lost",
            "reject",
            "DEGRADED",
            "UNAVAILABLE",
            "NOT RUNNING",
            "alarm",
            "recovering",
        ] {
            assert!(
                !statements.contains(problem),
                "OK and `{problem}`\n{screen}"
            );
        }
    }
    let has_member_down = report.members.iter().any(|member| member.health.is_down());
    if has_member_down {
        let allowed = [
            HealthState::Degraded,
            HealthState::Unavailable,
            HealthState::Restarting,
            HealthState::Creating,
            HealthState::Deleting,
        ];
        assert!(allowed.contains(&state), "a member is down\n{screen}");
        assert!(
            report
                .failure_tolerance
                .as_ref()
                .is_none_or(|tolerance| tolerance.members < 2)
        );
    }
    if report.health.writes == Some(false) || state == HealthState::Unavailable {
        assert!(!says("writes are served"), "{screen}");
    }
    if state == HealthState::Unknown {
        assert!(!says("are served;"), "{screen}");
    }
    // Every fact once.
    for problem in &report.problems {
        let message: Vec<_> = problem.message.split_whitespace().collect();
        assert_eq!(words.matches(&message.join(" ")).count(), 1, "{screen}");
    }
    let mut lines: Vec<_> = screen.lines().filter(|line| !line.is_empty()).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "a line occurs twice\n{screen}");
}
