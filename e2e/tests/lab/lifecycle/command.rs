//! The output of the program `lab`, its exit codes, and the errors for invalid calls.

mod full;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use evenkeel_lab::command::Cmd;

use super::{OwnLab, eventually, lab, program, run};
use crate::host::processes_of;

#[test]
fn a_second_up_restarts_nothing_and_status_reports_a_node_that_is_off() {
    let own = OwnLab::new("well");
    own.up();
    // Only long-running programs: kubelets start and stop helpers all the time.
    let services = || -> BTreeSet<_> {
        let all = processes_of(&own.name, None).into_iter();
        all.filter(|one| {
            one.words
                .first()
                .is_some_and(|word| word.contains("/programs/"))
                && !one.program().contains("shim")
                && !one.is_a_fork()
        })
        .map(|one| (one.program().to_owned(), one.pid))
        .collect()
    };
    let mut before = BTreeSet::new();
    eventually(
        "two inits run, six programs of the control plane, and four of the node",
        || {
            before = services();
            before.len() == 12
        },
    );
    own.up();
    eventually("the same programs run", || services() == before);

    // Polled: Kubernetes takes some time to report a healthy state.
    let is_healthy = || {
        let (code, output) = own.try_lab(&["status"]);
        let well = code == 0 && output.contains("all is well");
        if !well {
            println!("{code}: {output}");
        }
        well
    };
    eventually("the status is healthy", is_healthy);

    own.lab(&["node", "off", "node-1"]);
    let (code, output) = own.try_lab(&["status"]);
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains("✗ node-1 is off") && !output.contains("all is well"),
        "{output}"
    );

    own.lab(&["node", "on", "node-1"]);
    eventually("the status is healthy again", is_healthy);
}
