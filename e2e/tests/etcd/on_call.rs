//! What a person on call sees: failures of all kinds, looked at 1 s, 10 s and 60 s after the fault with `kubectl get`,
//! `kubectl evenkeel status` and `why` alone. No two statements contradict each other, the cause is named, and the advice
//! resolves it.

mod alone;
mod full;
mod look;

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_lab::faults::PodFaults;

use crate::assertions::{create_orders, events, follower, wait_healthy};
use crate::interrupts::spec;
use look::{Look, Looks};

/// The times after a fault at which the story compares all outputs.
const LOOKS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
];

/// What the last look must show.
struct Expected<'a> {
    /// The reason of the problem.
    reason: &'a str,
    /// Words of the cause, on the screen and in the explanation.
    cause: &'a [&'a str],
    /// Words of the advice on the screen; empty if no action is needed.
    advice: &'a [&'a str],
}

/// Looks at a cluster three times after a fault; the last look must show the expected problem.
fn look_at(looks: &mut Looks<'_>, fault: Instant, expected: &Expected<'_>) -> Look {
    let mut last = None;
    for after in LOOKS {
        std::thread::sleep(after.saturating_sub(fault.elapsed()));
        last = Some(looks.take(&format!("{} s after the fault", after.as_secs())));
    }
    let look = last.unwrap_or_else(|| panic!("there was a look"));
    expect(&look, expected);
    look
}

/// Asserts that a look shows the expected problem, cause and advice.
fn expect(look: &Look, expected: &Expected<'_>) {
    let reasons = look.reasons();
    assert!(
        reasons.iter().any(|reason| reason == expected.reason),
        "{} is not among {reasons:?}\n{}",
        expected.reason,
        look.screen
    );
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (screen, why) = (flat(&look.screen), flat(&look.why));
    for word in expected.cause {
        assert!(screen.contains(word), "{word} is not in {}", look.screen);
        assert!(why.contains(word), "{word} is not in {}", look.why);
    }
    for word in expected.advice {
        assert!(screen.contains(word), "{word} is not in {}", look.screen);
    }
    if expected.advice.is_empty() {
        return;
    }
    assert!(screen.contains("You can"), "{}", look.screen);
}

/// Waits until a cluster is healthy, its report is OK, and the event of its recovery is there.
fn expect_recovery(story: &Story, cluster: &Cluster<'_>, looks: &mut Looks<'_>, event: &str) {
    wait_healthy(story, cluster, cluster.pods().len());
    let look = looks.take("after the recovery");
    assert_eq!(look.report["health"]["state"], "OK", "{}", look.screen);
    story.eventually(&format!("there is an event {event}"), || {
        events(story, cluster)
            .iter()
            .any(|(reason, _)| reason == event)
    });
}

/// Lets a pod continue. If the kubelet has restarted its container meanwhile, nothing is frozen.
fn thaw(pod: &PodFaults<'_>) {
    if let Err(error) = pod.thaw(None, None) {
        println!("not thawed: {error}");
    }
}

#[test]
fn a_frozen_member_is_named_and_its_recovery_is_reported() {
    let story = Story::begin("oncall-frozen");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    let healthy = looks.take("before the fault");
    assert_eq!(healthy.code, 0, "{}", healthy.screen);
    let victim = follower(&story, &cluster);
    let pod = story.lab().pod(story.namespace(), &victim.name).unwrap();
    pod.freeze(None, None).unwrap();
    let fault = Instant::now();
    let expected = Expected {
        reason: "MemberDown",
        cause: &[&victim.name, "does not respond"],
        advice: &["kubectl evenkeel logs orders"],
    };
    let look = look_at(&mut looks, fault, &expected);
    assert_eq!(look.code, 3, "{}", look.screen);
    thaw(&pod);
    expect_recovery(&story, &cluster, &mut looks, "MemberRecovered");
}
