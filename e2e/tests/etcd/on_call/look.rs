//! One look at a cluster, as a person on call takes it: `kubectl get`, `kubectl evenkeel status` and `why`, with a real write
//! before and after. The checks compare every statement with what the story knows, and the statements with each other.

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use serde_json::Value;

use crate::plugin::evenkeel;

/// The age that the operator's status may have: its probes run every ten seconds, and a slow probe takes five.
const MAX_STATUS_AGE: Duration = Duration::from_secs(20);

/// The result of a write at a time.
#[derive(Clone, Copy, Debug)]
struct WriteResult {
    at: Instant,
    succeeded: bool,
}

/// Looks at one cluster, and the results of the writes beside them.
pub(super) struct Looks<'s> {
    story: &'s Story,
    cluster: &'s Cluster<'s>,
    writes: Vec<WriteResult>,
}

/// Everything that one look shows.
pub(super) struct Look {
    /// The resource, as `kubectl get -o json` prints it.
    pub(super) resource: Value,
    /// `kubectl evenkeel status -o json`.
    pub(super) report: Value,
    /// `kubectl evenkeel status`.
    pub(super) screen: String,
    /// The exit code of `status`.
    pub(super) code: i32,
    /// `kubectl evenkeel why`.
    pub(super) why: String,
    /// The result of a write, if writes before and after the look had the same result.
    writes: Option<bool>,
}

impl<'s> Looks<'s> {
    pub(super) fn at(story: &'s Story, cluster: &'s Cluster<'s>) -> Self {
        let mut looks = Self {
            story,
            cluster,
            writes: Vec::new(),
        };
        looks.write();
        looks
    }

    /// Writes through the client Service, with retries as clients have.
    fn write(&mut self) -> bool {
        let put = ["put", "on-call", "look", "--command-timeout=2s"];
        let succeeded = (0..3).any(|_| self.cluster.try_etcdctl(&put).is_ok());
        self.writes.push(WriteResult {
            at: Instant::now(),
            succeeded,
        });
        succeeded
    }

    /// Takes a look and checks it. Returns it for further checks.
    pub(super) fn take(&mut self, when: &str) -> Look {
        let before = self.write();
        let name = self.cluster.name();
        let first = self.report(name);
        let screen = evenkeel(self.story, &["status", name]);
        let report = self.report(name);
        let resource = self.story.get(&[&format!("etcd/{name}")]);
        let why = evenkeel(self.story, &["why", name]).out;
        let after = self.write();
        let look = Look {
            resource,
            code: screen.code,
            screen: screen.out,
            why,
            writes: (before == after).then_some(after),
            report,
        };
        let mut contradictions = look.contradictions();
        // The text is compared only if nothing changed meanwhile: on a busy machine, a healthy member may answer one of the three
        // calls too late.
        if first["health"]["state"] == look.report["health"]["state"]
            && silent_members(&first) == silent_members(&look.report)
        {
            contradictions.extend(look.text_contradictions());
        }
        contradictions.extend(self.stale_conditions(&look.resource));
        assert!(
            contradictions.is_empty(),
            "{when}: {contradictions:#?}\nwrites {:?}\n{}\n{}\n{:#}\n{:#}",
            look.writes,
            look.screen,
            look.why,
            look.report,
            look.resource["status"]
        );
        look
    }

    fn report(&self, name: &str) -> Value {
        let output = evenkeel(self.story, &["status", name, "-o", "json"]);
        serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {}", output.out))
    }

    /// Compares the condition Ready with the writes of the last seconds: the status may be as old as that.
    fn stale_conditions(&self, resource: &Value) -> Vec<String> {
        let ready = condition(resource, "Ready");
        let claims = match ready["status"].as_str() {
            Some("True") => true,
            Some("False") => false,
            _ => return Vec::new(),
        };
        let recent = self.writes.iter().rev();
        // The last result before the interval still held at its begin.
        let mut is_old = false;
        let mut recent = recent.take_while(|write| {
            let stop = is_old;
            is_old = write.at.elapsed() > MAX_STATUS_AGE;
            !stop
        });
        if recent.any(|write| write.succeeded == claims) {
            return Vec::new();
        }
        vec![format!(
            "Ready is {claims} ({}), and no write agrees",
            ready["reason"]
        )]
    }
}

impl Look {
    /// Returns the reasons of the reported problems.
    pub(super) fn reasons(&self) -> Vec<String> {
        let problems = self.report["problems"].as_array().into_iter().flatten();
        problems
            .filter_map(|problem| problem["reason"].as_str().map(str::to_owned))
            .collect()
    }

    /// Returns the statements of the JSON report and of the resource that contradict each other or the writes.
    fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut claim = |holds: bool, what: &str| {
            if !holds {
                found.push(what.to_owned());
            }
        };
        let health = &self.report["health"];
        if let (Some(claimed), Some(writes)) = (health["writes"].as_bool(), self.writes) {
            claim(claimed == writes, "health.writes is not what a client sees");
        }
        let problems = self.report["problems"].as_array().map_or(0, Vec::len);
        let is_ok = health["state"] == "OK";
        claim(!is_ok || problems == 0, "OK with problems");
        claim(!is_ok || health["writes"] == true, "OK without writes");
        let exit = self.report["exitCode"].as_u64();
        claim(
            is_ok == (exit == Some(0)) || exit == Some(0),
            "exit code 0 only if OK",
        );

        let status = &self.resource["status"];
        let degraded = condition(&self.resource, "Degraded");
        let ready = condition(&self.resource, "Ready");
        let progressing = condition(&self.resource, "Progressing");
        let has_problems = !status["problems"].is_null();
        claim(
            (degraded["status"] == "True") == has_problems,
            "Degraded differs from status.problems",
        );
        claim(
            degraded["status"] != "True" || degraded["reason"] == status["problems"][0]["reason"],
            "Degraded has another reason than the first problem",
        );
        let is_healthy = status["summary"] == "Healthy";
        claim(
            !is_healthy || (ready["status"] == "True" && !has_problems),
            "Healthy, but not Ready or with problems",
        );
        claim(
            progressing["status"] != "True" || !status["operation"].is_null(),
            "Progressing without an operation",
        );
        claim(
            ready["reason"] != "QuorumLost" || status["failureTolerance"]["members"] == 0,
            "a tolerance without a quorum",
        );
        let members = status["memberList"].as_array().into_iter().flatten();
        let healthy = members.filter(|one| one["healthy"] == true && one["role"] == "Voter");
        let counted = status["ready"].as_str().unwrap_or_default();
        claim(
            counted.split('/').next() == Some(healthy.count().to_string().as_str()),
            "the count of ready members differs from the list",
        );
        found
    }

    /// Returns the contradictions of the texts.
    fn text_contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut claim = |holds: bool, what: &str| {
            if !holds {
                found.push(what.to_owned());
            }
        };
        let line = |label: &str| {
            let mut lines = self.screen.lines();
            lines.find_map(|line| line.strip_prefix(label).map(str::trim))
        };
        let health = line("Health").unwrap_or_default();
        claim(!health.is_empty(), "no line Health");
        let is_ok = self.report["health"]["state"] == "OK";
        claim(
            health.starts_with("OK") == is_ok,
            "the screen's Health differs from the report",
        );
        claim(
            !is_ok || line("Problem").is_none(),
            "OK with a line Problem",
        );
        let has_problem = !self.reasons().is_empty();
        claim(!has_problem || line("Problem").is_some(), "no line Problem");
        claim(
            i64::from(self.code) == self.report["exitCode"].as_i64().unwrap_or(-1),
            "the exit code differs from the report",
        );
        let silent = self.screen.matches("no answer").count();
        claim(
            silent >= silent_members(&self.report).len(),
            "a member without an answer is not shown",
        );
        let wide = self.screen.lines().find(|line| line.chars().count() > 80);
        claim(wide.is_none(), &format!("wider than 80 columns: {wide:?}"));
        found
    }
}

/// Returns the names of the members that did not answer, according to a report.
fn silent_members(report: &Value) -> Vec<&Value> {
    let members = report["members"].as_array().into_iter().flatten();
    members
        .filter(|member| member["health"] == "NoAnswer")
        .map(|member| &member["name"])
        .collect()
}

/// Returns a condition of a resource.
pub(super) fn condition(resource: &Value, kind: &str) -> Value {
    let conditions = resource["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == kind)
        .cloned()
        .unwrap_or_default()
}
