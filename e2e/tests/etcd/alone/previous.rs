//! The operator is upgraded from the build that landed before this work, with the schema of that time: schema first, as it should
//! be, and operator first. No pod is restarted for either, nothing is done twice, and the next edit rolls out as usual.
//!
//! Both builds are real: `make test-all` builds the earlier one from this repository's own history (`hack/previous`). The schema is
//! everybody's, so these stories run alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use evenkeel_e2e::operator::{Manifests, Operator, Options, define};
use evenkeel_e2e::{Story, checkout};
use evenkeel_lab::command::Cmd;

use crate::look::{formed, ids};
use crate::middle::{comes_to_rest, ends_well, spec};
use crate::rolls::{each_was_restarted_once, memory, nobody_is_touched, until_all_ask};
use crate::upgrade::uids;

/// For how long an operator or a schema that is new must change nothing.
const SETTLED: Duration = Duration::from_secs(15);

/// The checkout of the earlier build, with its operator built.
fn earlier() -> PathBuf {
    if let Some(named) = std::env::var_os("EVENKEEL_PREVIOUS") {
        return named.into();
    }
    let made = Cmd::new(checkout().join("hack/previous")).run();
    made.unwrap_or_else(|error| panic!("{error:#}"))
        .trim()
        .into()
}

/// The earlier operator, with its own schema and rights.
fn earlier_operator(story: &Story) -> Operator {
    let within = |path: &str| -> &'static str {
        // A story's manifests are known for as long as it runs, and there are two.
        Box::leak(
            earlier()
                .join(path)
                .to_string_lossy()
                .into_owned()
                .into_boxed_str(),
        )
    };
    let manifests = Manifests {
        definitions: within("deploy/crds"),
        rights: within("deploy/operator/rbac.yaml"),
    };
    let program = Some(earlier().join("bin/evenkeel-operator"));
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

/// The schema of a checkout, in force.
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

/// Puts the schema of now back, whatever becomes of the story.
pub(crate) struct SchemaOfNow<'a>(pub(crate) &'a Story);

impl Drop for SchemaOfNow<'_> {
    fn drop(&mut self) {
        let put_back = apply_schema(self.0, checkout());
        if !std::thread::panicking() {
            put_back.unwrap();
        }
    }
}

/// What is done in which order when the operator is upgraded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Schema,
    Operator,
}

fn upgrades_the_operator(story: &Story, first: First) {
    let _schema = SchemaOfNow(story);
    // So that starting the later operator does not bring its schema along.
    define(story, "deploy/crds");
    apply_schema(story, &earlier()).unwrap();
    let mut old = earlier_operator(story);
    let cluster = formed(story, &spec(3), 3);
    let (workload, members) = (cluster.workload(), ids(&cluster));
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
            nobody_is_touched(&cluster, SETTLED);
            next(&mut old)
        }
        First::Operator => {
            let now = next(&mut old);
            nobody_is_touched(&cluster, SETTLED);
            ends_well(story, &cluster, 3);
            apply_schema(story, checkout()).unwrap();
            now
        }
    };
    nobody_is_touched(&cluster, SETTLED);
    ends_well(story, &cluster, 3);
    assert_eq!(
        uids(&cluster),
        before,
        "no pod was restarted for the operator"
    );
    comes_to_rest(&now);
    let began = Instant::now();
    story.eventually("the schema takes edits", || {
        let patch = serde_json::json!({ "spec": memory("96Mi") }).to_string();
        story
            .try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch])
            .is_ok()
    });
    until_all_ask(story, "96Mi", 3);
    ends_well(story, &cluster, 3);
    each_was_restarted_once(&now.proxy().writes_since(began), 3);
    assert_eq!(ids(&cluster), members, "they are the same members");
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn from_the_earlier_build_with_the_schema_first_nobody_is_restarted() {
    upgrades_the_operator(&Story::alone("schema-first"), First::Schema);
}

#[test]
fn from_the_earlier_build_with_the_operator_first_nobody_is_restarted() {
    upgrades_the_operator(&Story::alone("operator-first"), First::Operator);
}
