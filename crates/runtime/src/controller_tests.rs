//! The controller with an engine whose plan is its facts, and a reconciler that executes or rejects as the test says.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::clock::TestClock;
use crate::decision_log::Explanation;
use crate::expectations::Expectations;
use crate::fake;
use crate::pass::{CONTINUE_DELAY, RETRY_DELAY};
use crate::random::TestRandom;
use crate::reconciler::Outcome;

/// Facts that are the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PlannedFacts {
    create: Vec<String>,
    patch: Vec<String>,
    apply: Vec<String>,
    disruption: Option<String>,
    is_doubtful: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TestEngine;

impl Engine for TestEngine {
    type Facts = PlannedFacts;
    type Create = String;
    type Apply = String;
    type Patch = String;
    type Disruption = String;
    type Wait = ();

    fn decide(facts: &PlannedFacts) -> Plan<Self> {
        let facts = facts.clone();
        Plan {
            create: facts.create,
            patch: facts.patch,
            apply: facts.apply,
            disruption: facts.disruption,
            waits: if facts.is_doubtful { vec![()] } else { vec![] },
            requeue: Requeue::OnChange,
        }
    }
}

/// Returns the observations in order, and records the executed actions. The name of an action selects its outcome:
/// `rejected…` fails, `rejected slowly…` fails after five seconds, `slow…` takes five seconds, `declined…`,
/// `in progress…` and `conflict…` have that outcome. A name that begins with `!` is a prerequisite.
struct TestReconciler {
    observations: Mutex<VecDeque<Result<PlannedFacts, Error>>>,
    /// Whether each observation was live.
    live: Mutex<Vec<bool>>,
    executed: Mutex<Vec<String>>,
    rejections: Mutex<usize>,
    clock: TestClock,
    expectations: Expectations<ResourceKey>,
}

fn name_of(action: &Action<'_, TestEngine>) -> String {
    match action {
        Action::Create(name)
        | Action::Patch(name)
        | Action::Apply(name)
        | Action::Disruption(name) => (*name).clone(),
    }
}

impl Reconciler for TestReconciler {
    type Engine = TestEngine;
    type Resource = Pod;
    type Objects = Pod;
    type ProbeResult = ();

    fn probe_timeout_result() {}

    async fn probe(&self, _: ResourceKey) -> Option<()> {
        Some(())
    }

    async fn observe(
        &self,
        _: &ResourceKey,
        from: ObserveFrom<'_, ()>,
    ) -> Result<Option<Observation<Self>>, Error> {
        let is_live = from == ObserveFrom::Live;
        self.live.lock().push(is_live);
        let facts = match self.observations.lock().pop_front() {
            Some(facts) => facts?,
            None => return Ok(None),
        };
        // A live observation after a cached one has the same facts.
        if !is_live && facts != PlannedFacts::default() {
            self.observations.lock().push_front(Ok(facts.clone()));
        }
        Ok(Some(Observation {
            facts,
            objects: resource(),
            probe_result: (),
            is_live,
        }))
    }

    async fn execute(
        &self,
        _: &Observation<Self>,
        action: &Action<'_, TestEngine>,
        may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let full_name = name_of(action);
        let name = full_name.trim_start_matches('!');
        if name.starts_with("rejected slowly") || name.starts_with("slow") {
            self.clock.advance(Duration::from_secs(5));
        }
        if name.starts_with("rejected") {
            *self.rejections.lock() += 1;
            return Err(Error::other(format!("write {name}"), "denied by a webhook"));
        }
        if name.starts_with("slow disruption") && !may_write() {
            return Ok(Outcome::Conflict);
        }
        if name.starts_with("declined") {
            return Ok(Outcome::RetryLater("not now".into()));
        }
        if name.starts_with("conflict") {
            return Ok(Outcome::Conflict);
        }
        if name.starts_with("in progress") {
            return Ok(Outcome::InProgress("half".into()));
        }
        self.executed.lock().push(full_name);
        Ok(Outcome::Done)
    }

    fn explain(&self, _: &Observation<Self>, plan: &Plan<TestEngine>) -> Explanation {
        Explanation {
            actions: plan.actions().map(|action| name_of(&action)).collect(),
            ..Explanation::default()
        }
    }

    fn decision_log_meta(&self, _: &Pod) -> Option<ObjectMeta> {
        None
    }

    fn is_prerequisite(action: &Action<'_, TestEngine>) -> bool {
        name_of(action).starts_with('!')
    }

    fn confirm_live(plan: &Plan<TestEngine>) -> bool {
        !plan.waits.is_empty()
    }

    fn status(
        &self,
        _: &Observation<Self>,
        _: &Plan<TestEngine>,
        error: Option<&Error>,
    ) -> Option<Value> {
        let message = error.map_or_else(|| "observed".to_owned(), ToString::to_string);
        Some(json!({ "message": message }))
    }

    fn status_on_observe_error(&self, _: &Pod, error: &Error) -> Option<Value> {
        Some(json!({ "message": error.to_string() }))
    }

    fn resource<'o>(&self, observation: &'o Observation<Self>) -> &'o Pod {
        &observation.objects
    }

    fn event_for(
        &self,
        _: &Observation<Self>,
        action: &Action<'_, TestEngine>,
    ) -> Option<EventSpec> {
        Some(EventSpec::normal("Executed", "Execute", name_of(action)))
    }

    fn state_events(&self, _: &Observation<Self>, _: &Plan<TestEngine>) -> Vec<EventSpec> {
        vec![EventSpec::warning("Warning", "Execute", "always")]
    }

    fn action_name(_: &Action<'_, TestEngine>) -> &'static str {
        "execute"
    }

    fn expectations(&self) -> &Expectations<ResourceKey> {
        &self.expectations
    }
}

fn resource() -> Pod {
    let pod = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1" } });
    serde_json::from_value(pod).unwrap()
}

/// A controller, and the events and statuses that it wrote.
struct Fixture {
    context: ReconcileContext<TestReconciler>,
    events: Arc<Mutex<Vec<String>>>,
    statuses: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new(observations: impl IntoIterator<Item = Result<PlannedFacts, Error>>) -> Self {
        let clock = TestClock::default();
        let events = Arc::<Mutex<Vec<String>>>::default();
        let statuses = Arc::<Mutex<Vec<String>>>::default();
        let (written_events, written_statuses) = (events.clone(), statuses.clone());
        let client = fake::client(move |head, body| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if head.uri.path().ends_with("/status") {
                written_statuses
                    .lock()
                    .push(text(&body["status"]["message"]));
            } else {
                written_events.lock().push(text(&body["note"]));
            }
            async move { (200, body) }
        });
        let reconciler = TestReconciler {
            observations: Mutex::new(observations.into_iter().collect()),
            live: Mutex::default(),
            executed: Mutex::default(),
            rejections: Mutex::default(),
            clock: clock.clone(),
            expectations: Expectations::new(clock.shared()),
        };
        let parts = ControllerParts {
            reconciler: Arc::new(reconciler),
            client: client.clone(),
            leadership: Leadership::always(clock.shared()),
            events: EventRecorder::new(client, "evenkeel.dev/test", "me", clock.shared()),
            metrics: Metrics::new("test"),
            clock: clock.shared(),
            random: TestRandom::shared(1),
            probe_intervals: ProbeIntervals::default(),
        };
        Self {
            context: ReconcileContext::new(parts),
            events,
            statuses,
        }
    }

    async fn reconcile(&self) -> Result<KubeAction, Error> {
        let resource = resource();
        self.context
            .reconcile_passes(&resource, &key_of(&resource))
            .await
    }

    fn reconciler(&self) -> &TestReconciler {
        &self.context.parts.reconciler
    }

    fn executed(&self) -> Vec<String> {
        self.reconciler().executed.lock().clone()
    }

    fn observations(&self) -> usize {
        self.reconciler().live.lock().len()
    }

    /// The number of events about rejected writes.
    fn rejection_events(&self) -> usize {
        let events = self.events.lock();
        events
            .iter()
            .filter(|note| note.contains("webhook"))
            .count()
    }
}

fn plan(
    create: &[&str],
    patch: &[&str],
    apply: &[&str],
    disruption: Option<&str>,
) -> Result<PlannedFacts, Error> {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Ok(PlannedFacts {
        create: names(create),
        patch: names(patch),
        apply: names(apply),
        disruption: disruption.map(str::to_owned),
        is_doubtful: false,
    })
}

fn noop() -> Result<PlannedFacts, Error> {
    Ok(PlannedFacts::default())
}

#[tokio::test]
async fn a_plan_is_executed_in_order_and_reported_before_the_next_observation() {
    let fixture = Fixture::new([plan(&["c"], &["p"], &["a"], Some("d")), noop()]);
    fixture.reconcile().await.unwrap();
    assert_eq!(fixture.executed(), ["c", "p", "a", "d"]);
    assert_eq!(*fixture.events.lock(), ["c", "p", "a", "d", "always"]);
    assert_eq!(*fixture.statuses.lock(), ["observed"]);
}

#[tokio::test]
async fn prerequisites_are_executed_before_independent_writes() {
    let fixture = Fixture::new([plan(&["c"], &["!p"], &["a", "!b"], Some("d")), noop()]);
    fixture.reconcile().await.unwrap();
    assert_eq!(fixture.executed(), ["!p", "!b", "c", "a", "d"]);
}

#[tokio::test]
async fn a_rejected_write_blocks_no_other_action_and_is_reported_with_the_status() {
    let left = plan(&["rejected pod"], &[], &["rejected service"], None);
    let create = ["rejected pod", "c"];
    let apply = ["rejected service", "a"];
    let fixture = Fixture::new([plan(&create, &["p"], &apply, Some("d")), left]);
    let error = fixture.reconcile().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to write rejected pod: denied by a webhook"
    );
    assert_eq!(fixture.executed(), ["c", "p", "a", "d"]);
    assert_eq!(fixture.rejection_events(), 1);
    assert_eq!(*fixture.statuses.lock(), ["observed"]);
}

#[tokio::test]
async fn an_error_that_lasts_is_reported_in_the_status() {
    let left = || plan(&["rejected pod"], &[], &[], None);
    let fixture = Fixture::new([left(), left(), left()]);
    for failures in 0..=FAILURES_BEFORE_REPORT {
        fixture.reconciler().observations.lock().extend([left()]);
        fixture.reconcile().await.unwrap_err();
        let last = fixture.statuses.lock().last().cloned().unwrap();
        assert_eq!(
            last.contains("repeatedly"),
            failures >= FAILURES_BEFORE_REPORT,
            "{failures}: {last}"
        );
        fixture.context.backoff.failed(&key_of(&resource()));
    }
}

#[tokio::test]
async fn slow_rejections_do_not_postpone_the_disruption_forever() {
    let slow = ["rejected slowly", "rejected slowly 2", "rejected slowly 3"];
    let fixture = Fixture::new([
        plan(&slow, &["!p"], &["a"], Some("d")),
        plan(&slow, &[], &["a"], Some("d")),
        plan(&slow, &[], &["a"], None),
        plan(&slow, &[], &[], None),
    ]);
    let error = fixture.reconcile().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to write rejected slowly: denied by a webhook"
    );
    assert_eq!(
        fixture.executed(),
        ["!p", "d", "a"],
        "the disruption follows the first slow rejection, then the rest"
    );
    assert_eq!(fixture.rejection_events(), 1);
}

#[tokio::test]
async fn a_rejected_write_is_attempted_once_while_other_actions_proceed() {
    let with = |create: &[&str], disruption| plan(create, &["rejected resize"], &[], disruption);
    let fixture = Fixture::new([
        with(&[], Some("d")),
        with(&["claim"], Some("e")),
        with(&["pod"], None),
        with(&[], None),
        noop(),
    ]);
    let error = fixture.reconcile().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to write rejected resize: denied by a webhook"
    );
    assert_eq!(fixture.executed(), ["d", "claim", "e", "pod"]);
    assert_eq!(*fixture.reconciler().rejections.lock(), 1);
    assert_eq!(fixture.rejection_events(), 1);
    assert_eq!(*fixture.statuses.lock(), ["observed"]);
}

#[tokio::test]
async fn a_declined_or_unfinished_disruption_is_retried_despite_a_rejected_write() {
    for (disruption, delay) in [("declined", RETRY_DELAY), ("in progress", CONTINUE_DELAY)] {
        let fixture = Fixture::new([plan(&[], &["rejected resize"], &[], Some(disruption))]);
        assert_eq!(
            fixture.reconcile().await.unwrap(),
            KubeAction::requeue(delay)
        );
        assert_eq!(fixture.rejection_events(), 1);
    }
}

#[tokio::test]
async fn a_failed_disruption_is_reported_rather_than_a_failed_independent_write() {
    let fixture = Fixture::new([plan(&[], &["rejected resize"], &[], Some("rejected d"))]);
    assert_eq!(
        fixture.reconcile().await.unwrap_err().to_string(),
        "failed to write rejected d: denied by a webhook"
    );
}

#[tokio::test]
async fn disruptions_follow_each_other_despite_slow_rejections() {
    let slow = ["rejected slowly", "rejected slowly 2"];
    let with = |disruption| plan(&slow, &[], &[], Some(disruption));
    let left = plan(&slow, &[], &[], None);
    let fixture = Fixture::new([with("d"), with("d"), with("e"), with("e"), with("f"), left]);
    fixture.reconcile().await.unwrap_err();
    assert_eq!(fixture.executed(), ["d", "e", "f"]);
}

#[tokio::test]
async fn a_repeated_disruption_without_effect_ends_the_reconcile() {
    let with_rejection = || plan(&[], &["rejected resize"], &[], Some("without effect"));
    let fixture = Fixture::new((0..100).map(|_| with_rejection()));
    fixture.reconcile().await.unwrap_err();
    let observations = fixture.observations();
    assert!(observations <= 5, "{observations} observations");
}

#[tokio::test]
async fn a_rejected_write_is_attempted_again_in_the_next_reconcile() {
    let with = |disruption| plan(&[], &["rejected resize"], &[], disruption);
    let fixture = Fixture::new([with(Some("d")), with(None), with(None)]);
    for times in [1, 2] {
        fixture.reconcile().await.unwrap_err();
        assert_eq!(*fixture.reconciler().rejections.lock(), times);
    }
    assert_eq!(fixture.executed(), ["d"]);
}

#[tokio::test]
async fn a_failed_prerequisite_blocks_the_disruption_and_nothing_else() {
    let apply = ["!rejected pdb", "a"];
    let fixture = Fixture::new([plan(&["c"], &[], &apply, Some("d"))]);
    let error = fixture.reconcile().await.unwrap_err();
    assert!(error.to_string().contains("rejected pdb"), "{error}");
    assert_eq!(fixture.executed(), ["c", "a"]);
}

#[tokio::test]
async fn a_conflict_at_a_prerequisite_ends_the_plan() {
    let fixture = Fixture::new([plan(&["c"], &["!conflict"], &["a"], Some("d")), noop()]);
    fixture.reconcile().await.unwrap();
    assert!(fixture.executed().is_empty());
}

#[tokio::test]
async fn the_same_rejection_is_published_once_in_ten_minutes() {
    let rejected = || plan(&["rejected pod"], &[], &[], None);
    let fixture = Fixture::new([rejected(), rejected(), rejected()]);
    for _ in 0..3 {
        fixture.reconcile().await.unwrap_err();
    }
    let events = fixture.events.lock();
    assert_eq!(events.len(), 2, "{events:?}: the rejection and the warning");
}

#[tokio::test]
async fn a_disruption_that_takes_long_before_its_call_is_decided_again() {
    let fixture = Fixture::new([
        plan(&[], &[], &[], Some("slow disruption")),
        plan(&[], &[], &[], Some("d")),
        noop(),
    ]);
    fixture.reconcile().await.unwrap();
    assert_eq!(fixture.executed(), ["d"]);
}

#[tokio::test]
async fn a_disruption_is_not_executed_on_an_old_observation() {
    let fixture = Fixture::new([
        plan(&["slow"], &[], &[], Some("d")),
        plan(&[], &[], &[], Some("d")),
        noop(),
    ]);
    fixture.reconcile().await.unwrap();
    assert_eq!(fixture.executed(), ["slow", "d"]);
    assert_eq!(fixture.observations(), 3);
}

#[tokio::test]
async fn plans_without_progress_end_the_reconcile() {
    for name in ["conflict", "executed without effect"] {
        let fixture = Fixture::new((0..100).map(|_| plan(&[], &[], &[name], None)));
        let error = fixture.reconcile().await.unwrap_err();
        assert!(matches!(error, Error::NoProgress { .. }), "{error}");
        let observations = fixture.observations();
        assert!(observations <= 4, "{observations} observations, {name}");
    }
}

#[tokio::test]
async fn a_declined_disruption_is_retried_soon() {
    let fixture = Fixture::new([plan(&[], &[], &[], Some("declined"))]);
    assert_eq!(
        fixture.reconcile().await.unwrap(),
        KubeAction::requeue(RETRY_DELAY)
    );
    assert_eq!(*fixture.statuses.lock(), ["observed"]);
}

#[tokio::test]
async fn a_doubtful_plan_without_actions_is_confirmed_live() {
    let doubtful = || {
        Ok(PlannedFacts {
            is_doubtful: true,
            ..PlannedFacts::default()
        })
    };
    let fixture = Fixture::new([doubtful(), doubtful()]);
    fixture.context.prober.watch(&key_of(&resource()));
    fixture.context.prober.record(&key_of(&resource()), ());
    fixture.reconcile().await.unwrap();
    assert_eq!(*fixture.reconciler().live.lock(), [false, true]);
}

#[tokio::test]
async fn an_observe_error_is_reported_at_once_or_if_transient_once_it_lasts() {
    let fixture = Fixture::new([Err(Error::invalid_spec("3.4 is too old"))]);
    fixture.reconcile().await.unwrap_err();
    let text = "cannot accept the spec: 3.4 is too old";
    assert_eq!(*fixture.statuses.lock(), [text]);
    assert_eq!(*fixture.events.lock(), [text]);

    let transient = || {
        let error = kube::Error::LinesCodecMaxLineLengthExceeded;
        Err(Error::kubernetes("list pods")(error))
    };
    let fixture = Fixture::new([transient(), transient(), transient(), transient()]);
    for attempts in 0..4 {
        assert_eq!(fixture.statuses.lock().len(), 0, "after {attempts}");
        fixture.reconcile().await.unwrap_err();
        fixture.context.backoff.failed(&key_of(&resource()));
    }
    assert_eq!(fixture.statuses.lock().len(), 1);
}

#[tokio::test]
async fn changes_of_resources_reach_another_controller() {
    let pod = |name: &str| Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    };
    let store = kube::runtime::reflector::store::Writer::default().as_reader();
    let mut triggers = Triggers {
        resources: (store, stream::iter([Ok(pod("a")), Ok(pod("b"))]).boxed()),
        related: stream::pending().boxed(),
        all: stream::pending().boxed(),
    };
    let mut changes = triggers.resource_changes();
    assert!(changes.next().now_or_never().is_none());
    let own = triggers.resources.1.map(|pod| pod.unwrap().name_any());
    assert_eq!(own.collect::<Vec<_>>().await, ["a", "b"]);
    let keys = changes.map(|key| key.to_string());
    assert_eq!(keys.collect::<Vec<_>>().await, ["shop/a", "shop/b"]);
}
