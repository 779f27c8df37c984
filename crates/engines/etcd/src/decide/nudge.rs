//! Nudges: a stuck member starts to serve with the next raft log entry, and an idle cluster writes
//! none. The operator appends one.

use std::time::Duration;

use evenkeel_runtime::UnixTime;

use crate::facts::StuckMember;
use crate::plan::EtcdPatch;
use crate::view::ClusterView;

/// How long a member that starts normally may have a leader before it answers clients.
const START_GRACE: Duration = Duration::from_secs(5);
/// The shortest and the longest time between two nudges of a cluster.
const MIN_NUDGE_INTERVAL: Duration = Duration::from_secs(10);
const MAX_NUDGE_INTERVAL: Duration = Duration::from_secs(300);

/// Appends an entry to the log for a stuck member, unless the last one is too recent.
pub(super) fn nudge_stuck_member(view: &ClusterView<'_>) -> Option<EtcdPatch> {
    let stuck = stuck_member(view)?;
    let member = stuck.serial;
    (view.facts.now >= next_nudge_at(view, stuck)).then_some(EtcdPatch::NudgeMember { member })
}

/// Returns when a member that is still stuck is nudged again.
pub(super) fn next_nudge(view: &ClusterView<'_>) -> Option<UnixTime> {
    let stuck = stuck_member(view)?;
    Some(next_nudge_at(view, stuck)).filter(|time| *time > view.facts.now)
}

/// Returns the time of the next nudge. One nudge is enough for a member that waits for an entry: a
/// member that stays stuck has another problem, and the intervals double.
fn next_nudge_at(view: &ClusterView<'_>, stuck: StuckMember) -> UnixTime {
    let first = stuck.since.after(START_GRACE);
    // A clock that was set back must not delay nudges.
    let last = view.facts.last_nudge.filter(|last| *last <= view.facts.now);
    last.map_or(first, |last| {
        let stuck_for = last.since(stuck.since);
        let interval = stuck_for.clamp(MIN_NUDGE_INTERVAL, MAX_NUDGE_INTERVAL);
        last.after(interval).max(first)
    })
}

/// Returns the member that waits for a log entry. Without a leader no entry can be appended; a new
/// leader appends one by itself.
fn stuck_member(view: &ClusterView<'_>) -> Option<StuckMember> {
    let stuck = view.facts.stuck?;
    let member = view.listed().find(|member| member.serial == stuck.serial)?;
    let has_leader = view
        .voters()
        .any(|voter| voter.is_leader() && voter.is_serving());
    (member.health.is_none() && has_leader).then_some(stuck)
}

#[cfg(test)]
mod tests {
    use evenkeel_runtime::{Observed, Requeue};
    use serde_json::json;

    use super::*;
    use crate::decide::next_deadline;
    use crate::names::Serial;
    use crate::testing::{NOW, Scene};

    /// Returns a cluster of three healthy members and a learner that is stuck.
    fn with_stuck_learner() -> Scene {
        let mut scene = Scene::with_newcomer();
        scene.stop_answering(3);
        scene.state.stuck = stuck(3, 60);
        scene
    }

    /// Returns a member that has been stuck for this many seconds.
    fn stuck(serial: u16, seconds: i64) -> Option<StuckMember> {
        let serial = Serial(serial);
        let since = UnixTime(NOW.0 - seconds);
        Some(StuckMember { serial, since })
    }

    fn nudges(scene: &Scene) -> Vec<EtcdPatch> {
        let patches = scene.plan().patch.into_iter();
        patches
            .filter(|patch| matches!(patch, EtcdPatch::NudgeMember { .. }))
            .collect()
    }

    fn seconds_ago(seconds: i64) -> Option<UnixTime> {
        Some(UnixTime(NOW.0 - seconds))
    }

    #[test]
    fn a_stuck_member_is_nudged_after_a_grace_and_then_less_and_less_often() {
        let mut scene = with_stuck_learner();
        // Each row: stuck for so many seconds, last nudged so many seconds ago, nudged now.
        let rows = [
            (4, None, false),
            (5, None, true),
            (14, Some(9), false),
            (15, Some(10), true),
            (29, Some(14), false),
            (30, Some(15), true),
            (59, Some(29), false),
            (60, Some(30), true),
            (3600, Some(299), false),
            (3600, Some(300), true),
            // The last nudge was for a member that was stuck earlier.
            (5, Some(9), false),
            (5, Some(10), true),
            // The clock was set back.
            (60, Some(-3600), true),
        ];
        for (stuck_for, last, is_nudged) in rows {
            scene.state.stuck = stuck(3, stuck_for);
            scene.observed.last_nudge = last.and_then(seconds_ago);
            let expected = is_nudged.then_some(EtcdPatch::NudgeMember { member: Serial(3) });
            let row = format!("stuck for {stuck_for} s, last nudge {last:?} s ago");
            assert_eq!(nudges(&scene), Vec::from_iter(expected), "{row}");
        }
    }

    #[test]
    fn the_next_nudge_is_a_deadline_of_the_plan() {
        let mut scene = Scene::converged(3);
        scene.stop_answering(2);
        scene.state.reachable.insert(Serial(2));
        scene.make_unready(2, "2027-01-15T07:59:00Z", json!({}));
        scene.state.stuck = stuck(2, 9);
        scene.observed.last_nudge = seconds_ago(4);
        let plan = scene.plan();
        assert!(plan.is_noop(), "{plan:?}");
        assert_ne!(plan.requeue, Requeue::OnChange);
        let deadline = next_deadline(&scene.facts(), &plan);
        assert_eq!(deadline, Some(UnixTime(NOW.0 + 6)));
        scene.state.stuck = None;
        let deadline = next_deadline(&scene.facts(), &scene.plan());
        assert_eq!(deadline, None, "no longer stuck");
    }

    #[test]
    fn without_a_leader_that_answers_no_member_is_nudged() {
        let mut scene = with_stuck_learner();
        for health in scene.state.health.values_mut() {
            if let Observed::Present(health) = health {
                health.is_leader = false;
            }
        }
        assert_eq!(nudges(&scene), []);
        let mut scene = with_stuck_learner();
        scene.lose_quorum(&[0, 1]);
        assert_eq!(nudges(&scene), []);
    }

    #[test]
    fn a_member_that_answers_or_was_removed_is_not_nudged() {
        let mut scene = with_stuck_learner();
        scene.state(3);
        assert_eq!(nudges(&scene), [], "it answers");
        let mut scene = with_stuck_learner();
        scene.state.stuck = stuck(4, 60);
        assert_eq!(nudges(&scene), [], "etcd does not list it");
        let mut scene = Scene::converged(3);
        scene.observed.last_nudge = seconds_ago(3600);
        assert!(scene.plan().is_noop(), "{:?}", scene.plan());
    }
}
