//! The loop, with an engine that does what it is told and hands that do or refuse what the test says.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::clock::TestClock;
use crate::decision_log::Explanation;
use crate::fake;
use crate::random::TestRandom;
use crate::reconciler::Outcome;

/// What the facts say is what is planned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    create: Vec<String>,
    mark: Vec<String>,
    apply: Vec<String>,
    step: Option<String>,
    doubtful: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Obedient;

impl Engine for Obedient {
    type Facts = Told;
    type Create = String;
    type Apply = String;
    type Patch = String;
    type Disruption = String;
    type Wait = ();

    fn decide(facts: &Told) -> Plan<Self> {
        let Told {
            create,
            mark,
            apply,
            step,
            doubtful,
        } = facts.clone();
        Plan {
            create,
            patch: mark,
            apply,
            disruption: step,
            waits: if doubtful { vec![()] } else { Vec::new() },
            requeue: Requeue::OnChange,
        }
    }
}

/// Looks in a row, and what was done. Actions named `refused…` are refused, `refused slowly…` after five
/// seconds, `slow…` take five seconds, `declined…`, `ongoing…` and
/// `overtaken…` speak for themselves; what begins with `!` is something that the rest of the plan rests on.
struct Hands {
    looks: Mutex<VecDeque<Result<Told, Error>>>,
    live: Mutex<Vec<bool>>,
    done: Mutex<Vec<String>>,
    /// How often something was refused.
    refused: Mutex<usize>,
    clock: TestClock,
}

fn text(action: &Action<'_, Obedient>) -> String {
    match action {
        Action::Create(text)
        | Action::Patch(text)
        | Action::Apply(text)
        | Action::Disruption(text) => (*text).clone(),
    }
}

impl Reconciler for Hands {
    type Engine = Obedient;
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
        look: ObserveFrom<'_, ()>,
    ) -> Result<Option<Observation<Self>>, Error> {
        let live = look == ObserveFrom::Live;
        lock(&self.live).push(live);
        // One that is looked at live after what was remembered finds the same.
        let facts = match lock(&self.looks).pop_front() {
            Some(facts) => facts?,
            None => return Ok(None),
        };
        if !live && facts != Told::default() {
            lock(&self.looks).push_front(Ok(facts.clone()));
        }
        Ok(Some(Observation {
            facts,
            objects: resource(),
            probe_result: (),
            is_live: live,
        }))
    }

    async fn execute(
        &self,
        _: &Observation<Self>,
        action: &Action<'_, Obedient>,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let text = text(action);
        let what = text.trim_start_matches('!');
        if what.starts_with("refused slowly") {
            self.clock.advance(Duration::from_secs(5));
        }
        if what.starts_with("refused") {
            *lock(&self.refused) += 1;
            return Err(Error::other(format!("write {what}"), "a webhook said no"));
        }
        if what.starts_with("slow") {
            self.clock.advance(Duration::from_secs(5));
        }
        if what.starts_with("slow step") && !holds() {
            return Ok(Outcome::Conflict);
        }
        if what.starts_with("declined") {
            return Ok(Outcome::RetryLater("not now".into()));
        }
        if what.starts_with("overtaken") {
            return Ok(Outcome::Conflict);
        }
        if what.starts_with("ongoing") {
            return Ok(Outcome::InProgress("half".into()));
        }
        lock(&self.done).push(text);
        Ok(Outcome::Done)
    }

    fn explain(&self, _: &Observation<Self>, plan: &Plan<Obedient>) -> Explanation {
        Explanation {
            actions: plan.actions().map(|action| text(&action)).collect(),
            ..Explanation::default()
        }
    }

    fn decision_log_meta(&self, _: &Pod) -> Option<ObjectMeta> {
        None
    }

    fn is_prerequisite(action: &Action<'_, Obedient>) -> bool {
        text(action).starts_with('!')
    }

    fn confirm_live(plan: &Plan<Obedient>) -> bool {
        !plan.waits.is_empty()
    }

    fn status(
        &self,
        _: &Observation<Self>,
        _: &Plan<Obedient>,
        refused: Option<&Error>,
    ) -> Option<Value> {
        Some(json!({ "message": refused.map_or_else(|| "seen".to_owned(), ToString::to_string) }))
    }

    fn status_on_observe_error(&self, _: &Pod, why: &Error) -> Option<Value> {
        Some(json!({ "message": why.to_string() }))
    }

    fn resource<'s>(&self, sight: &'s Observation<Self>) -> &'s Pod {
        &sight.objects
    }

    fn event_for(&self, _: &Observation<Self>, action: &Action<'_, Obedient>) -> Option<EventSpec> {
        Some(EventSpec::normal("Did", "Do", text(action)))
    }

    fn warning_events(&self, _: &Observation<Self>, _: &Plan<Obedient>) -> Vec<EventSpec> {
        vec![EventSpec::warning("Trouble", "Do", "always")]
    }

    fn action_name(_: &Action<'_, Obedient>) -> &'static str {
        "do"
    }

    fn on_status_written(&self, _: &Pod) {}

    fn forget(&self, _: &ResourceKey) {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

fn resource() -> Pod {
    let pod = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1" } });
    serde_json::from_value(pod).unwrap()
}

/// A loop, and the events and statuses that it wrote.
struct Stage {
    this: ReconcileContext<Hands>,
    events: Arc<Mutex<Vec<String>>>,
    statuses: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    fn new(looks: impl IntoIterator<Item = Result<Told, Error>>) -> Self {
        let clock = TestClock::default();
        let (events, statuses) = <(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<String>>>)>::default();
        let (noted, written) = (events.clone(), statuses.clone());
        let client = fake::client(move |head, body| {
            match (head.uri.path().ends_with("/status"), body["note"].as_str()) {
                (true, _) => {
                    lock(&written).push(body["status"]["message"].as_str().unwrap().to_owned())
                }
                (false, note) => lock(&noted).push(note.unwrap_or_default().to_owned()),
            }
            async move { (200, body) }
        });
        let (done, live, refused) = (Mutex::default(), Mutex::default(), Mutex::default());
        let looks = Mutex::new(looks.into_iter().collect());
        let parts = ControllerParts {
            reconciler: Arc::new(Hands {
                looks,
                live,
                done,
                refused,
                clock: clock.clone(),
            }),
            client: client.clone(),
            leadership: Leadership::always(clock.shared()),
            events: EventRecorder::new(client, "evenkeel.dev/test", "me", clock.shared()),
            metrics: Metrics::new(),
            clock: clock.shared(),
            random: TestRandom::shared(1),
            probe_intervals: ProbeIntervals::default(),
        };
        Self {
            this: ReconcileContext::new(parts),
            events,
            statuses,
        }
    }

    async fn go(&self) -> Result<Next, Error> {
        let resource = resource();
        self.this
            .reconcile_passes(&resource, &key_of(&resource))
            .await
    }

    fn done(&self) -> Vec<String> {
        lock(&self.this.parts.reconciler.done).clone()
    }
}

fn plan(create: &[&str], mark: &[&str], apply: &[&str], step: Option<&str>) -> Result<Told, Error> {
    let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Ok(Told {
        create: all(create),
        mark: all(mark),
        apply: all(apply),
        step: step.map(str::to_owned),
        doubtful: false,
    })
}

fn nothing() -> Result<Told, Error> {
    Ok(Told::default())
}

#[tokio::test]
async fn all_of_a_plan_is_done_in_order_and_told_before_the_next_look() {
    let stage = Stage::new([plan(&["c"], &["m"], &["a"], Some("s")), nothing()]);
    stage.go().await.unwrap();
    assert_eq!(stage.done(), ["c", "m", "a", "s"]);
    assert_eq!(*lock(&stage.events), ["c", "m", "a", "s", "always"]);
    assert_eq!(*lock(&stage.statuses), ["seen"]);
}

#[tokio::test]
async fn what_is_refused_holds_up_nothing_else_and_is_told_with_the_status() {
    let left = plan(&["refused pod"], &[], &["refused service"], None);
    let stage = Stage::new([
        plan(
            &["refused pod", "c"],
            &["m"],
            &["refused service", "a"],
            Some("s"),
        ),
        left,
    ]);
    let error = stage.go().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write refused pod: a webhook said no"
    );
    assert_eq!(stage.done(), ["c", "m", "a", "s"]);
    assert_eq!(
        lock(&stage.events)
            .iter()
            .filter(|note| note.contains("webhook"))
            .count(),
        1
    );
    assert_eq!(*lock(&stage.statuses), ["seen"]);
}

#[tokio::test]
async fn what_fails_again_and_again_is_told_in_the_status_like_a_refusal() {
    let left = || plan(&["refused pod"], &[], &[], None);
    let stage = Stage::new([left(), left(), left()]);
    for failures in 0..=FAILURES_BEFORE_REPORT {
        lock(&stage.this.parts.reconciler.looks).extend([left()]);
        stage.go().await.unwrap_err();
        let last = lock(&stage.statuses).last().cloned().unwrap();
        assert_eq!(
            last.contains("again and again"),
            failures >= FAILURES_BEFORE_REPORT,
            "{failures}: {last}"
        );
        stage.this.backoff.failed(&key_of(&resource()));
    }
}

#[tokio::test]
async fn what_is_refused_slowly_does_not_keep_a_step_from_going_out_and_is_told_all_the_same() {
    let many = [
        "refused slowly",
        "refused slowly too",
        "refused slowly as well",
    ];
    let told = |step| plan(&many, &["!m"], &["a"], step);
    let rest = || plan(&many, &[], &["a"], None);
    let stage = Stage::new([
        told(Some("s")),
        told(Some("s")),
        rest(),
        plan(&many, &[], &[], None),
    ]);
    let error = stage.go().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write refused slowly: a webhook said no"
    );
    assert_eq!(
        stage.done(),
        ["!m", "s", "a"],
        "the step, and what it rests on, as soon as one was refused so slowly; then the rest"
    );
    assert_eq!(
        lock(&stage.events)
            .iter()
            .filter(|note| note.contains("webhook"))
            .count(),
        1
    );
}

#[tokio::test]
async fn all_else_goes_on_though_something_beside_it_is_refused_which_is_asked_for_once() {
    let with = |create: &[&str], step| plan(create, &["refused growth"], &[], step);
    let looks = [
        with(&[], Some("s")),
        with(&["claim"], Some("t")),
        with(&["pod"], None),
        with(&[], None),
        nothing(),
    ];
    let stage = Stage::new(looks);
    let error = stage.go().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write refused growth: a webhook said no"
    );
    assert_eq!(stage.done(), ["s", "claim", "t", "pod"]);
    assert_eq!(*lock(&stage.this.parts.reconciler.refused), 1);
    assert_eq!(
        lock(&stage.events)
            .iter()
            .filter(|note| note.contains("webhook"))
            .count(),
        1
    );
    assert_eq!(*lock(&stage.statuses), ["seen"]);
}

#[tokio::test]
async fn what_is_declined_or_goes_on_does_so_though_something_beside_it_is_refused() {
    for (step, next) in [("declined", RETRY_DELAY), ("ongoing", CONTINUE_DELAY)] {
        let stage = Stage::new([plan(&[], &["refused growth"], &[], Some(step))]);
        assert_eq!(stage.go().await.unwrap(), Next::requeue(next));
        assert_eq!(
            lock(&stage.events)
                .iter()
                .filter(|note| note.contains("webhook"))
                .count(),
            1
        );
    }
}

#[tokio::test]
async fn a_refused_step_is_told_rather_than_what_is_refused_beside_it() {
    let stage = Stage::new([plan(&[], &["refused growth"], &[], Some("refused step"))]);
    assert_eq!(
        stage.go().await.unwrap_err().to_string(),
        "cannot write refused step: a webhook said no"
    );
}

#[tokio::test]
async fn steps_go_out_one_after_the_other_though_much_beside_them_is_refused_slowly() {
    let many = ["refused slowly", "refused slowly too"];
    let told = |step| plan(&many, &[], &[], Some(step));
    let left = plan(&many, &[], &[], None);
    let stage = Stage::new([told("s"), told("s"), told("t"), told("t"), told("u"), left]);
    stage.go().await.unwrap_err();
    assert_eq!(stage.done(), ["s", "t", "u"]);
}

#[tokio::test]
async fn the_same_step_over_and_over_ends_in_a_pause_also_when_something_beside_it_is_refused() {
    let stage =
        Stage::new((0..100).map(|_| plan(&[], &["refused growth"], &[], Some("to no effect"))));
    stage.go().await.unwrap_err();
    let looks = lock(&stage.this.parts.reconciler.live).len();
    assert!(looks <= 5, "{looks} looks");
}

#[tokio::test]
async fn what_was_refused_in_one_go_is_asked_for_again_in_the_next() {
    let refused = |step| plan(&[], &["refused growth"], &[], step);
    let stage = Stage::new([refused(Some("s")), refused(None), refused(None)]);
    for times in [1, 2] {
        stage.go().await.unwrap_err();
        assert_eq!(*lock(&stage.this.parts.reconciler.refused), times);
    }
    assert_eq!(stage.done(), ["s"]);
}

#[tokio::test]
async fn what_the_rest_rests_on_ends_the_plan_when_it_is_refused() {
    let stage = Stage::new([plan(&["c"], &[], &["!refused budget", "a"], Some("s"))]);
    stage.go().await.unwrap_err();
    assert_eq!(stage.done(), ["c"]);
}

#[tokio::test]
async fn the_same_refusal_is_told_once_in_ten_minutes() {
    let stage = Stage::new([
        plan(&["refused pod"], &[], &[], None),
        plan(&["refused pod"], &[], &[], None),
        plan(&["refused pod"], &[], &[], None),
    ]);
    for _ in 0..3 {
        stage.go().await.unwrap_err();
    }
    assert_eq!(
        lock(&stage.events).len(),
        2,
        "{:?}: the write_rejected, and the trouble",
        lock(&stage.events)
    );
}

#[tokio::test]
async fn a_step_that_took_long_before_it_goes_out_does_not_go_out() {
    let stage = Stage::new([
        plan(&[], &[], &[], Some("slow step")),
        plan(&[], &[], &[], Some("s")),
        nothing(),
    ]);
    stage.go().await.unwrap();
    assert_eq!(stage.done(), ["s"], "decided anew");
}

#[tokio::test]
async fn a_step_is_not_taken_on_what_was_seen_long_ago() {
    let stage = Stage::new([
        plan(&["slow"], &[], &[], Some("s")),
        plan(&[], &[], &[], Some("s")),
        nothing(),
    ]);
    stage.go().await.unwrap();
    assert_eq!(stage.done(), ["slow", "s"], "taken after another look");
    assert_eq!(lock(&stage.this.parts.reconciler.live).len(), 3);
}

#[tokio::test]
async fn what_changes_nothing_and_what_is_always_overtaken_is_not_tried_at_full_speed() {
    for what in ["overtaken", "done to no effect"] {
        let stage = Stage::new((0..100).map(|_| plan(&[], &[], &[what], None)));
        let error = stage.go().await.unwrap_err();
        assert!(error.to_string().contains("again and again"), "{error}");
        let looks = lock(&stage.this.parts.reconciler.live).len();
        assert!(looks <= 4, "{looks} looks, {what}");
    }
}

#[tokio::test]
async fn what_the_application_declines_is_tried_again_shortly() {
    let stage = Stage::new([plan(&[], &[], &[], Some("declined"))]);
    assert_eq!(stage.go().await.unwrap(), Next::requeue(RETRY_DELAY));
    assert_eq!(*lock(&stage.statuses), ["seen"]);
}

#[tokio::test]
async fn nothing_is_done_and_nothing_doubtful_is_told_on_what_is_only_remembered() {
    let doubtful = || {
        Ok(Told {
            doubtful: true,
            ..Told::default()
        })
    };
    let stage = Stage::new([doubtful(), doubtful()]);
    stage.this.prober.watch(&key_of(&resource()));
    stage.this.prober.record(&key_of(&resource()), ());
    stage.go().await.unwrap();
    assert_eq!(*lock(&stage.this.parts.reconciler.live), [false, true]);
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_told_and_the_api_server_is_given_time() {
    let stage = Stage::new([Err(Error::other("accept its spec", "3.4 is too old"))]);
    stage.go().await.unwrap_err();
    assert_eq!(
        *lock(&stage.statuses),
        ["cannot accept its spec: 3.4 is too old"]
    );
    assert_eq!(
        *lock(&stage.events),
        ["cannot accept its spec: 3.4 is too old"]
    );

    let away = || {
        Err(Error::kubernetes("list pods")(
            kube::Error::LinesCodecMaxLineLengthExceeded,
        ))
    };
    let stage = Stage::new([away(), away(), away(), away()]);
    for tries in 0..4 {
        assert_eq!(lock(&stage.statuses).len(), 0, "after {tries}");
        stage.go().await.unwrap_err();
        stage.this.backoff.failed(&key_of(&resource()));
    }
    assert_eq!(lock(&stage.statuses).len(), 1);
}
