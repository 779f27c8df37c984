//! Nudging a stuck member: a new raft log entry makes it serve, see `observe/stuck.rs`. The entry is a short lease that no
//! client uses: it changes no key and no revision, and expires by itself.

use evenkeel_runtime::{Error, Outcome};

use super::context::ExecuteContext;
use super::membership::membership_endpoints;
use crate::actions::member_display_name;
use crate::client::{self, LeaseReply};
use crate::names::Serial;

/// The lifetime of the lease in seconds.
const LEASE_TTL_SECONDS: i64 = 10;

/// Grants a short lease on the leader. A failed attempt counts, too, so that the plan is empty until the next attempt is
/// due.
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
    let reply = client::grant_lease(
        context.connections(),
        credentials,
        &leader,
        LEASE_TTL_SECONDS,
        context.holds_lease,
    );
    match reply.await {
        LeaseReply::Granted => Ok(Outcome::Done),
        LeaseReply::NotSent => Ok(Outcome::Conflict),
        LeaseReply::Failed(error) => {
            let member = member_display_name(context.observed, stuck);
            let action = format!("grant an etcd lease, so that {member} starts to serve");
            Err(Error::other(action, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_kit::testing::{client, not_found};
    use evenkeel_runtime::{Expectations, ResourceKey, TestClock};

    use super::*;
    use crate::execute::Means;
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
        let means = Means {
            client: &client(|_, _| not_found()),
            clock: &clock,
            expectations: &Expectations::new(clock.clone()),
            key: &key,
            memory: &memory,
        };
        let context = ExecuteContext::new(&means, &scene.observed, &facts, &|| true);
        let outcome = nudge_member(&context, Serial(2)).await.unwrap();
        assert_eq!(outcome, Outcome::Conflict, "there are no credentials");
        assert_eq!(*memory.last_nudge.lock(), Some(NOW));
    }
}
