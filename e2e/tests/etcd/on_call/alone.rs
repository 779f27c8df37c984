//! The failures of whole nodes.

use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;

use super::look::Looks;
use super::{Expected, expect_recovery, look_at};
use crate::assertions::{create_orders, follower, wait_healthy};
use crate::interrupts::spec;

#[test]
fn a_lost_node_is_named_as_the_cause() {
    let story = Story::alone("oncall-node");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    let victim = follower(&story, &cluster);
    story.lab().freeze(&victim.node).unwrap();
    let not_ready = format!("node {} is NotReady", victim.node);
    let delete = format!("kubectl delete node {}", victim.node);
    let expected = Expected {
        reason: "NodeNotReady",
        cause: &[&victim.name, &not_ready],
        advice: &[&delete],
    };
    let look = look_at(&mut looks, Instant::now(), &expected);
    assert_eq!(look.code, 3, "{}", look.screen);
    story.lab().thaw(&victim.node).unwrap();
    expect_recovery(&story, &cluster, &mut looks, "MemberRecovered");
}

#[test]
fn a_drain_raises_no_alarm_and_the_cordoned_node_is_named() {
    let story = Story::alone("oncall-drain");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let mut looks = Looks::at(&story, &cluster);
    let victim = follower(&story, &cluster);
    let alarms = crate::alarms::Recorder::start(&story, &cluster);
    story.kubectl(&["cordon", &victim.node]);
    story.evict(&victim.name).unwrap();
    let fault = Instant::now();
    std::thread::sleep(Duration::from_secs(75).saturating_sub(fault.elapsed()));
    let look = looks.take("75 s after the eviction");
    assert_eq!(look.code, 0, "{}", look.screen);
    let screen: Vec<_> = look.screen.split_whitespace().collect();
    let screen = screen.join(" ");
    for text in [
        format!("its volume is on node {}, which is cordoned", victim.node),
        format!("the operator replaces member {}", victim.name),
    ] {
        assert!(screen.contains(&text), "{text} is missing: {}", look.screen);
    }
    story.kubectl(&["uncordon", &victim.node]);
    wait_healthy(&story, &cluster, 3);
    assert_eq!(looks.take("after the maintenance").code, 0);
    alarms.assert_none();
}
