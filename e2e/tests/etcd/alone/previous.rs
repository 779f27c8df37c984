//! Upgrades of the operator from an earlier build with its own CRD: CRD first, as documented, and operator first. Neither restarts a
//! pod or repeats an action, and the next edit rolls out as usual.
//!
//! Both builds are real: `make test-all` builds the earlier one from this repository's history (`hack/previous`). All stories share
//! the CRD, so these run alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use evenkeel_e2e::operator::{Manifests, Operator, Options, install_crds};
use evenkeel_e2e::{Story, checkout};
use evenkeel_lab::command::Cmd;

use crate::assertions::{create_orders, member_ids};
use crate::interrupts::{spec, wait_converged, wait_idle};
use crate::rollouts::{
    assert_each_restarted_once, assert_no_pod_changes, memory_request, wait_all_have_memory,
};
use crate::upgrade::uids;

/// How long a new operator or CRD must change nothing.
const QUIET_TIME: Duration = Duration::from_secs(15);

/// Returns the checkout of the earlier build, with its operator built.
fn earlier_checkout() -> PathBuf {
    if let Some(named) = std::env::var_os("EVENKEEL_PREVIOUS") {
        return named.into();
    }
    let made = Cmd::new(checkout().join("hack/previous")).run();
    made.unwrap_or_else(|error| panic!("{error:#}"))
        .trim()
        .into()
}

/// Starts the earlier operator, with its own CRD and permissions.
fn earlier_operator(story: &Story) -> Operator {
    let within = |path: &str| -> &'static str {
        // Leaked: a story needs the path until it ends, and there are two of them.
        Box::leak(
            earlier_checkout()
                .join(path)
                .to_string_lossy()
                .into_owned()
                .into_boxed_str(),
        )
    };
    let manifests = Manifests {
        crds: within("deploy/crds"),
        permissions: within("deploy/operator/rbac.yaml"),
    };
    let program = Some(earlier_checkout().join("bin/evenkeel-operator"));
    Operator::with(
        story,
        Options {
            name: "earlier".to_owned(),
            program,
            manifests: Some(manifests),
            ..Options::default()
        },
    )
}

/// Applies the CRDs of a checkout.
fn apply_schema(story: &Story, checkout: &std::path::Path) -> Result<String, String> {
    let crds = checkout.join("deploy/crds").to_string_lossy().into_owned();
    story.try_kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename",
        &crds,
    ])
}

/// Applies the current CRDs on drop.
pub(crate) struct CurrentCrd<'a>(pub(crate) &'a Story);

impl Drop for CurrentCrd<'_> {
    fn drop(&mut self) {
        let put_back = apply_schema(self.0, checkout());
        if !std::thread::panicking() {
            put_back.unwrap();
        }
    }
}

/// The part that is upgraded first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Schema,
    Operator,
}

fn upgrade_operator(story: &Story, first: First) {
    let _schema = CurrentCrd(story);
    // So that the start of the later operator does not apply the later CRD.
    install_crds(story, "deploy/crds");
    apply_schema(story, &earlier_checkout()).unwrap();
    let mut old = earlier_operator(story);
    let cluster = create_orders(story, &spec(3), 3);
    let (workload, members) = (cluster.workload(), member_ids(&cluster));
    let before: BTreeMap<String, String> = uids(&cluster);
    let next = |old: &mut Operator| {
        old.stop();
        Operator::with(
            story,
            Options {
                name: "next".to_owned(),
                ..Options::default()
            },
        )
    };
    let now = match first {
        First::Schema => {
            apply_schema(story, checkout()).unwrap();
            assert_no_pod_changes(&cluster, QUIET_TIME);
            next(&mut old)
        }
        First::Operator => {
            let now = next(&mut old);
            assert_no_pod_changes(&cluster, QUIET_TIME);
            wait_converged(story, &cluster, 3);
            apply_schema(story, checkout()).unwrap();
            now
        }
    };
    assert_no_pod_changes(&cluster, QUIET_TIME);
    wait_converged(story, &cluster, 3);
    assert_eq!(
        uids(&cluster),
        before,
        "a pod was restarted for the new operator"
    );
    wait_idle(&now);
    let began = Instant::now();
    story.eventually("the API server accepts the edit", || {
        let patch = serde_json::json!({ "spec": memory_request("96Mi") }).to_string();
        story
            .try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch])
            .is_ok()
    });
    wait_all_have_memory(story, "96Mi", 3);
    wait_converged(story, &cluster, 3);
    assert_each_restarted_once(&now.proxy().writes_since(began), 3);
    assert_eq!(member_ids(&cluster), members, "the members differ");
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn an_upgrade_from_the_earlier_build_crd_first_restarts_no_member() {
    upgrade_operator(&Story::alone("schema-first"), First::Schema);
}

#[test]
fn an_upgrade_from_the_earlier_build_operator_first_restarts_no_member() {
    upgrade_operator(&Story::alone("operator-first"), First::Operator);
}
