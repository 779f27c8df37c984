//! Membership changes. A call to etcd cannot carry a precondition, so its intent is recorded first, by compare-and-swap. An
//! open intent is settled before anything else happens.
//!
//! The leader is asked first. It may wrongly consider other members unreachable: if a raft message
//! is lost while a member restarts, and the leader gives up sending it only after the member is
//! back, the leader marks the member as unreachable until its connections break again, and rejects
//! every addition (`rafthttp`'s pipeline; seen for four minutes in a story, reproduced on 3.5, 3.6
//! and 3.7 by the explorer's `replay`). An addition that the leader rejects for that reason is sent
//! to the other voters, which have their own view. A removal is not: a member that considers the
//! removed one unreachable does not check the quorum.

use evenkeel_runtime::{Error, Outcome};

use super::context::ExecuteContext;
use super::update_identity;
use crate::actions::member_display_name;
use crate::client::{self, Endpoint, MembershipReply, MembershipRequest};
use crate::facts::{EtcdFacts, MemberHealth};
use crate::identity::{Identity, Intent, MemberId, MembershipChange};
use crate::names::{Serial, member_name, peer_url};
use crate::observe::ObservedCluster;
use crate::observe::endpoints::member_endpoint;

/// Records the intent, unless it is recorded already, and sends the change to etcd.
pub(super) async fn change_membership(
    context: &ExecuteContext<'_>,
    from: &Identity,
    intent: &Intent,
) -> Result<Outcome, Error> {
    let observed = context.observed;
    let request = request(observed, context.facts, intent.change);
    let (Some(credentials), Some(request)) = (context.credentials(), request) else {
        return Ok(Outcome::Conflict);
    };
    let with_intent = from.with_intent(intent);
    if with_intent != *from {
        match update_identity(context, from, &with_intent).await? {
            Outcome::Done => {
                tracing::info!(resource = %context.key(), intent = ?intent.change, "intent recorded");
            }
            other => return Ok(other),
        }
    }
    let mut rejection = None;
    for member in membership_endpoints(observed, context.facts) {
        let reply = client::change_membership(
            context.connections(),
            credentials,
            &member,
            &request,
            context.holds_lease,
        );
        match reply.await {
            MembershipReply::Done => {
                tracing::info!(resource = %context.key(), change = ?intent.change, by = %member.name, "membership changed");
                return Ok(Outcome::Done);
            }
            MembershipReply::NotSent if rejection.is_none() => return Ok(Outcome::Conflict),
            MembershipReply::NotSent => break,
            MembershipReply::UnhealthyCluster(error)
                if matches!(request, MembershipRequest::Add(_)) =>
            {
                tracing::info!(resource = %context.key(), by = %member.name, error, "membership change rejected, asking another member");
                rejection.get_or_insert(error);
            }
            MembershipReply::UnhealthyCluster(error) | MembershipReply::Failed(error) => {
                rejection = Some(error);
                break;
            }
        }
    }
    Ok(rejection.map_or(Outcome::Conflict, |error| {
        let change = describe(observed, intent.change);
        Outcome::RetryLater(format!("failed to {change}: {error}"))
    }))
}

/// Returns the change as an infinitive.
fn describe(observed: &ObservedCluster, change: MembershipChange) -> String {
    let name = |serial| member_display_name(observed, serial);
    match change {
        MembershipChange::Add(serial) => format!("add member {} as a learner", name(serial)),
        MembershipChange::Promote(serial) => format!("promote learner {} to voter", name(serial)),
        MembershipChange::Remove(serial) => format!("remove member {}", name(serial)),
        MembershipChange::RemoveUnknown(id) => format!("remove unknown member {:x}", id.0),
    }
}

/// Makes a leader that is about to stop transfer leadership, if there is a target. A failure does not stop the action:
/// the remaining members elect a leader.
pub(super) async fn transfer_leadership(
    context: &ExecuteContext<'_>,
    from: Serial,
    to: Option<Serial>,
) {
    let (Some(to), Some(credentials)) = (to, context.credentials()) else {
        return;
    };
    let (Some(leader), Some(id)) = (
        member_endpoint(context.observed, from),
        member_id(context.facts, to),
    ) else {
        return;
    };
    let moved = client::move_leader(
        context.connections(),
        credentials,
        &leader,
        id,
        context.holds_lease,
    );
    match moved.await {
        Ok(()) => {
            tracing::info!(resource = %context.key(), leader = %leader.name, ?to, "leadership transferred");
        }
        Err(error) => {
            tracing::info!(resource = %context.key(), leader = %leader.name, error, "failed to transfer leadership");
        }
    }
}

fn request(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    change: MembershipChange,
) -> Option<MembershipRequest> {
    let desired = &observed.desired;
    let (_, identity) = observed.identity.as_ref()?;
    Some(match change {
        MembershipChange::Add(serial) => {
            let name = member_name(&desired.name, identity.lineage, serial);
            MembershipRequest::Add(peer_url(&desired.name, &desired.namespace, &name))
        }
        MembershipChange::Promote(serial) => MembershipRequest::Promote(member_id(facts, serial)?),
        MembershipChange::Remove(serial) => MembershipRequest::Remove(member_id(facts, serial)?),
        MembershipChange::RemoveUnknown(id) => MembershipRequest::Remove(id),
    })
}

/// Returns the members that are asked to change the membership: the leader, then the member that reported the list, then
/// the other serving voters. A follower forwards a promotion without the caller's identity, and with authentication enabled
/// the leader rejects it (tried on 3.6.16).
pub(super) fn membership_endpoints(observed: &ObservedCluster, facts: &EtcdFacts) -> Vec<Endpoint> {
    let Some(membership) = facts.membership.present() else {
        return Vec::new();
    };
    let serving_health = |serial: Serial| -> Option<&MemberHealth> {
        let health = facts.health.get(&serial)?.present()?;
        let is_serving = health.is_serving && Some(health.member_id) == member_id(facts, serial);
        is_serving.then_some(health)
    };
    let voters = membership
        .members
        .iter()
        .filter(|member| !member.is_learner);
    let mut members: Vec<_> = voters
        .map(|member| member.serial)
        .filter(|serial| serving_health(*serial).is_some())
        .collect();
    if !members.contains(&membership.reported_by) {
        members.push(membership.reported_by);
    }
    members.sort_by_key(|serial| {
        let is_leader = serving_health(*serial).is_some_and(|health| health.is_leader);
        (!is_leader, *serial != membership.reported_by, *serial)
    });
    members
        .into_iter()
        .filter_map(|serial| member_endpoint(observed, serial))
        .collect()
}

/// Returns the ID that etcd gave a member.
fn member_id(facts: &EtcdFacts, serial: Serial) -> Option<MemberId> {
    let mut members = facts.membership.present()?.members.iter();
    members
        .find(|member| member.serial == serial)
        .map(|member| member.id)
}

#[cfg(test)]
mod tests {
    use evenkeel_runtime::Observed;

    use super::*;
    use crate::testing::{Scene, id, name};

    /// Returns the names of the members that are asked to change the membership.
    fn endpoint_names(scene: &Scene) -> Vec<String> {
        membership_endpoints(&scene.observed, &scene.facts())
            .into_iter()
            .map(|endpoint| {
                endpoint
                    .name
                    .split('.')
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn the_leader_is_asked_first_and_then_the_other_serving_voters() {
        let mut scene = Scene::with_newcomer();
        assert_eq!(endpoint_names(&scene), [name(0), name(1), name(2)]);
        for health in scene.state.health.values_mut() {
            if let Observed::Present(health) = health {
                health.is_leader = health.member_id == id(2);
            }
        }
        scene.stop_answering(1);
        assert_eq!(endpoint_names(&scene), [name(2), name(0)]);
    }

    #[test]
    fn without_a_leader_the_member_that_reported_the_list_is_asked() {
        let mut scene = Scene::converged(1);
        scene.stop_answering(0);
        assert_eq!(endpoint_names(&scene), [name(0)]);
    }

    #[test]
    fn a_rejected_change_is_described_with_the_members_name() {
        let observed = Scene::converged(2).observed;
        let describe = |change| describe(&observed, change);
        assert_eq!(
            describe(MembershipChange::Add(Serial(1))),
            format!("add member {} as a learner", name(1))
        );
        assert_eq!(
            describe(MembershipChange::Promote(Serial(1))),
            format!("promote learner {} to voter", name(1))
        );
        assert_eq!(
            describe(MembershipChange::Remove(Serial(1))),
            format!("remove member {}", name(1))
        );
    }
}
