//! What runs of a lab, and what is wrong with it.

use anyhow::Result;

use crate::machine::{Machine, ServiceState};
use crate::net;
use crate::state::{CONTROL, Lab};
use crate::up::log_of;

/// A look at a lab.
#[derive(Debug)]
pub struct Status {
    /// What to show, a line each.
    pub lines: Vec<String>,
    /// What is wrong, with what can be done about it.
    pub troubles: Vec<String>,
}

/// Looks at a lab.
pub fn status(lab: &Lab) -> Result<Status> {
    let mut status = Status {
        lines: Vec::new(),
        troubles: Vec::new(),
    };
    status.lines.push(format!(
        "lab {}: addresses {}, files in {}",
        lab.name(),
        lab.addresses()?.all(),
        lab.dir().display()
    ));
    status.machine(lab, CONTROL)?;
    for node in lab.nodes() {
        status.machine(lab, &node.name)?;
        if net::is_cut(lab, node).unwrap_or(false) {
            status.troubles.push(format!(
                "{0} is cut off the network: `lab node mend {0}`",
                node.name
            ));
        }
    }
    status.api(lab)?;
    Ok(status)
}

impl Status {
    fn machine(&mut self, lab: &Lab, name: &str) -> Result<()> {
        let machine = Machine::of(lab, name)?;
        let Some(init) = machine.init_pid() else {
            self.lines.push(format!("  {name:<8} off"));
            let remedy = if name == CONTROL {
                "lab up".to_owned()
            } else {
                format!("lab node on {name}` or `lab up")
            };
            self.troubles.push(format!("{name} is off: `{remedy}`"));
            return Ok(());
        };
        let mut parts = Vec::new();
        for service in machine.services() {
            let state = match (service.running, service.stopped) {
                (true, _) => "",
                (false, true) => " (stopped)",
                (false, false) => " (down)",
            };
            parts.push(format!("{}{state}", service.name));
            if service.stopped {
                self.troubles.push(format!(
                    "{} on {name} was stopped: `lab api start`, or power-cycle the machine",
                    service.name
                ));
            } else if !service.running || (service.starts > 3 && started_lately(&service)) {
                let log = log_of(lab, name, &service.name);
                self.troubles.push(format!(
                    "{} on {name} was started {} times; its log: {log}",
                    service.name, service.starts
                ));
            }
        }
        let frozen = machine.cgroup().is_frozen();
        if frozen {
            self.troubles
                .push(format!("{name} is frozen: `lab node thaw {name}`"));
        }
        let state = if frozen { "frozen" } else { "on" };
        self.lines.push(format!(
            "  {name:<8} {state}, init {init}: {}",
            parts.join(", ")
        ));
        Ok(())
    }

    fn api(&mut self, lab: &Lab) -> Result<()> {
        let timeout = format!("--request-timeout={}s", lab.patience().seconds(5));
        let get = lab
            .kubectl()
            .args(["get", "nodes", "--no-headers", &timeout]);
        let said = match get.run() {
            Ok(said) => said,
            Err(error) => {
                self.troubles
                    .push(format!("the API server does not answer: {error:#}"));
                return Ok(());
            }
        };
        for line in said.lines() {
            let mut words = line.split_whitespace();
            if let (Some(node), Some(state)) = (words.next(), words.next()) {
                self.lines
                    .push(format!("  {node:<8} {state} in Kubernetes"));
                if state != "Ready" {
                    self.troubles
                        .push(format!("Kubernetes says that {node} is {state}"));
                }
            }
        }
        Ok(())
    }
}

/// Whether it was started so lately that nobody knows yet whether it stays.
fn started_lately(service: &ServiceState) -> bool {
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(0, |now| now.as_secs());
    now.saturating_sub(service.since) < 20
}
