//! What the program `lab` says, to whom, and what it refuses.

mod full;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use evenkeel_lab::command::Cmd;

use super::{OwnLab, eventually, lab, program, run};
use crate::host::processes_of;

#[test]
fn a_second_up_restarts_nothing_and_status_tells_a_lab_that_is_well_from_one_whose_node_is_off() {
    let own = OwnLab::new("well");
    own.up();
    // What runs for good, that is: kubelets start and end helpers all the time.
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
    eventually("the same run, and no other", || services() == before);

    // What is not well at the moment is told: Kubernetes takes its time to know.
    let is_well = || {
        let (code, said) = own.try_lab(&["status"]);
        let well = code == 0 && said.contains("all is well");
        if !well {
            println!("{code}: {said}");
        }
        well
    };
    eventually("all is well", is_well);

    own.lab(&["node", "off", "node-1"]);
    let (code, said) = own.try_lab(&["status"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("✗ node-1 is off") && !said.contains("all is well"),
        "{said}"
    );

    own.lab(&["node", "on", "node-1"]);
    eventually("all is well again", is_well);
}
