//! The status of a lab: its machines and services, and their problems.

use anyhow::Result;

use crate::machine::{Machine, ServiceState};
use crate::net;
use crate::state::{CONTROL_PLANE, Lab};
use crate::up::log_path;

/// A service that is started more often than this in a row counts as failing.
const MAX_NORMAL_STARTS: u32 = 3;
/// A service that was started less than this many seconds ago may still fail.
const RECENT_START_SECONDS: u64 = 20;
/// Time limit of the request to the API server, in seconds; multiplied by the patience of the lab.
const REQUEST_TIMEOUT_SECONDS: u64 = 5;

/// The status of a lab.
#[derive(Debug)]
pub struct LabStatus {
    /// The lines of the overview.
    pub lines: Vec<String>,
    /// The problems, each with a remedy if there is one.
    pub problems: Vec<String>,
}

/// Returns the status of a lab.
pub fn status(lab: &Lab) -> Result<LabStatus> {
    let mut status = LabStatus {
        lines: Vec::new(),
        problems: Vec::new(),
    };
    status.lines.push(format!(
        "lab {}: addresses {}, files in {}",
        lab.name(),
        lab.addresses()?.all(),
        lab.dir().display()
    ));
    status.add_machine(lab, CONTROL_PLANE)?;
    for node in lab.nodes() {
        status.add_machine(lab, &node.name)?;
        if net::is_cut(lab, node).unwrap_or(false) {
            status.problems.push(format!(
                "{0} is disconnected from the network: run `lab node mend {0}`",
                node.name
            ));
        }
    }
    status.add_api_server(lab)?;
    Ok(status)
}

impl LabStatus {
    fn add_machine(&mut self, lab: &Lab, name: &str) -> Result<()> {
        let machine = Machine::of(lab, name)?;
        let Some(init) = machine.init_pid() else {
            self.lines.push(format!("  {name:<8} off"));
            let remedy = if name == CONTROL_PLANE {
                "lab up".to_owned()
            } else {
                format!("lab node on {name}` or `lab up")
            };
            self.problems.push(format!("{name} is off: run `{remedy}`"));
            return Ok(());
        };
        let mut services = Vec::new();
        for service in machine.services() {
            let state = match (service.running, service.stopped) {
                (true, _) => "",
                (false, true) => " (stopped)",
                (false, false) => " (down)",
            };
            services.push(format!("{}{state}", service.name));
            if service.stopped {
                self.problems.push(format!(
                    "service {} on {name} is stopped: run `lab api start` for the API server, or `lab up`",
                    service.name
                ));
            } else if !service.running
                || (service.starts > MAX_NORMAL_STARTS && started_recently(&service))
            {
                let log = log_path(lab, name, &service.name);
                self.problems.push(format!(
                    "service {} on {name} fails, it was started {} times: see {log}",
                    service.name, service.starts
                ));
            }
        }
        let frozen = machine.cgroup().is_frozen();
        if frozen {
            self.problems
                .push(format!("{name} is frozen: run `lab node thaw {name}`"));
        }
        let state = if frozen { "frozen" } else { "on" };
        self.lines.push(format!(
            "  {name:<8} {state}, init {init}: {}",
            services.join(", ")
        ));
        Ok(())
    }

    fn add_api_server(&mut self, lab: &Lab) -> Result<()> {
        let timeout = format!(
            "--request-timeout={}s",
            lab.patience().seconds(REQUEST_TIMEOUT_SECONDS)
        );
        let get = lab
            .kubectl()
            .args(["get", "nodes", "--no-headers", &timeout]);
        let output = match get.run() {
            Ok(output) => output,
            Err(error) => {
                self.problems
                    .push(format!("the API server does not respond: {error:#}"));
                return Ok(());
            }
        };
        for line in output.lines() {
            let mut words = line.split_whitespace();
            if let (Some(node), Some(state)) = (words.next(), words.next()) {
                self.lines
                    .push(format!("  {node:<8} {state} in Kubernetes"));
                if state != "Ready" {
                    self.problems
                        .push(format!("node {node} is {state} in Kubernetes"));
                }
            }
        }
        Ok(())
    }
}

/// Returns whether the last start is less than [`RECENT_START_SECONDS`] ago.
fn started_recently(service: &ServiceState) -> bool {
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(0, |now| now.as_secs());
    now.saturating_sub(service.since) < RECENT_START_SECONDS
}
