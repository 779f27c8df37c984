//! Nudges: a stuck member starts to serve with the next raft log entry, and an idle cluster writes
//! none. The operator appends one.

use std::time::Duration;

use evenkeel_runtime::UnixTime;

use crate::names::Serial;
use crate::plan::EtcdPatch;
use crate::view::ClusterView;

/// The time between two nudges of a cluster.
const NUDGE_INTERVAL: Duration = Duration::from_secs(10);

/// Appends an entry to the log for a stuck member, unless the last one is too recent.
pub(super) fn nudge_stuck_member(view: &ClusterView<'_>) -> Option<EtcdPatch> {
    let member = stuck_member(view)?;
    is_due(view).then_some(EtcdPatch::NudgeMember { member })
}

/// Returns when a member that is still stuck is nudged again.
pub(super) fn next_nudge(view: &ClusterView<'_>) -> Option<UnixTime> {
    stuck_member(view)?;
    not_before(view).filter(|_| !is_due(view))
}

fn is_due(view: &ClusterView<'_>) -> bool {
    not_before(view).is_none_or(|time| view.facts.now >= time)
}

fn not_before(view: &ClusterView<'_>) -> Option<UnixTime> {
    Some(view.facts.last_nudge?.after(NUDGE_INTERVAL))
}

/// Returns the member that waits for a log entry. Without a leader no entry can be appended; a new
/// leader appends one by itself.
fn stuck_member(view: &ClusterView<'_>) -> Option<Serial> {
    let stuck = view.facts.stuck?;
    let member = view.listed().find(|member| member.serial == stuck)?;
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
    use crate::testing::{NOW, Scene};

    /// Returns a cluster of three healthy members and a learner that is stuck.
    fn with_stuck_learner() -> Scene {
        let mut scene = Scene::with_newcomer();
        scene.stops_answering(3);
        scene.state.stuck = Some(Serial(3));
        scene
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
    fn a_stuck_member_is_nudged_at_most_every_ten_seconds() {
        let mut scene = with_stuck_learner();
        let nudge = [EtcdPatch::NudgeMember { member: Serial(3) }];
        assert_eq!(nudges(&scene), nudge, "for the first time");
        scene.observed.last_nudge = seconds_ago(9);
        assert_eq!(nudges(&scene), []);
        scene.observed.last_nudge = seconds_ago(10);
        assert_eq!(nudges(&scene), nudge);
    }

    #[test]
    fn the_next_nudge_is_a_deadline_of_the_plan() {
        let mut scene = Scene::converged(3);
        scene.stops_answering(2);
        scene.state.reachable.insert(Serial(2));
        scene.is_unready(2, "2027-01-15T07:59:00Z", json!({}));
        scene.state.stuck = Some(Serial(2));
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
        scene.loses_its_quorum(&[0, 1]);
        assert_eq!(nudges(&scene), []);
    }

    #[test]
    fn a_member_that_answers_or_was_removed_is_not_nudged() {
        let mut scene = with_stuck_learner();
        scene.state(3);
        assert_eq!(nudges(&scene), [], "it answers");
        let mut scene = with_stuck_learner();
        scene.state.stuck = Some(Serial(4));
        assert_eq!(nudges(&scene), [], "etcd does not list it");
        let mut scene = Scene::converged(3);
        scene.observed.last_nudge = seconds_ago(3600);
        assert!(scene.plan().is_noop(), "{:?}", scene.plan());
    }
}
