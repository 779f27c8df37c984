//! Nudging a stuck member: a new raft log entry makes it serve, see `observe/stuck.rs`. The entry is a request for the list
//! of alarms, which goes through the raft log and changes nothing, also when the database is full.

use evenkeel_runtime::{Error, Outcome};

use super::context::ExecuteContext;
use super::membership::membership_endpoints;
use crate::client;
use crate::names::Serial;

/// Lists the alarms on the leader. No other action depends on the result, and a member that stays stuck is nudged again: a
/// failure is logged and not reported. A failed attempt counts, so that the plan is empty until the next attempt is due.
pub(super) async fn nudge_member(
    context: &ExecuteContext<'_>,
    stuck: Serial,
) -> Result<Outcome, Error> {
    *context.memory.last_nudge.lock() = Some(context.clock.now());
    let leader = membership_endpoints(context.observed, context.facts)
        .into_iter()
        .next();
    let (Some(credentials), Some(leader)) = (context.credentials(), leader) else {
        return Ok(Outcome::Conflict);
    };
    match client::list_alarms(context.connections(), credentials, &leader).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => {
            tracing::debug!(
                member = stuck.0,
                error,
                "failed to append a log entry for a stuck member"
            );
            Ok(Outcome::Conflict)
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_kit::testing::{client, not_found};
    use evenkeel_runtime::{Expectations, ResourceKey, TestClock};

    use super::*;
    use crate::execute::ExecuteDeps;
    use crate::memory::ClusterMemory;
    use crate::testing::{NOW, Scene};

    #[tokio::test]
    async fn a_nudge_that_cannot_be_sent_counts_as_the_last_one() {
        let scene = Scene::converged(3);
        let (facts, memory) = (scene.facts(), ClusterMemory::default());
        let clock = TestClock::new(NOW).shared();
        let key = ResourceKey {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
        };
        let means = ExecuteDeps {
            client: &client(|_, _| not_found()),
            clock: &clock,
            expectations: &Expectations::new(clock.clone()),
            key: &key,
            memory: &memory,
            agent_image: None,
        };
        let context = ExecuteContext::new(&means, &scene.observed, &facts, &|| true);
        let outcome = nudge_member(&context, Serial(2)).await.unwrap();
        assert_eq!(outcome, Outcome::Conflict, "there are no credentials");
        assert_eq!(*memory.last_nudge.lock(), Some(NOW));
    }
}
