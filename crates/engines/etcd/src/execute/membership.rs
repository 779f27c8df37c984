//! A change of etcd's membership. The call cannot be pinned, so its intent is written down first, by compare-and-swap; whoever
//! finds an open intent settles it before anything else.
//!
//! Whoever leads is asked first. It may be wrong about the others: a message of etcd's that is lost on the way to a member as it
//! restarts, and given up when the member has long been back, leaves that member marked as unreachable until its connections
//! break again, and every addition is declined (`rafthttp`'s pipeline; seen for four minutes in a story, reproduced on 3.5,
//! 3.6 and 3.7: the explorer's `replay`). An addition that it declines for that is asked of the others, who see for themselves.
//! A removal is not: whoever takes the leaver for unreachable removes it without looking at the quorum.

use evenkeel_runtime::{Error, Observation, Outcome};

use super::update_identity;
use super::writer::EtcdWriter;
use crate::actions::member_display_name;
use crate::facts::MemberHealth;
use crate::identity::{Identity, Intent, MemberId, MembershipChange};
use crate::names::{Serial, member_name, peer_url};
use crate::observe::etcd::{self, Endpoint, MembershipReply, MembershipRequest};
use crate::observe::{ObservedCluster, member_ref};
use crate::reconciler::{EtcdReconciler, endpoint};

/// Notes the intent, unless it is noted already, and asks etcd.
pub(super) async fn change_membership(
    writer: &EtcdWriter<'_>,
    observation: &Observation<EtcdReconciler>,
    from: &Identity,
    intent: &Intent,
    holds: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, Error> {
    let observed = &observation.objects;
    let (Some(access), Some(request)) = (
        &observed.tls.credentials,
        request(observation, intent.change),
    ) else {
        return Ok(Outcome::Conflict);
    };
    let noted = from.with_intent(intent);
    if noted != *from {
        match update_identity(writer, observed, from, &noted).await? {
            Outcome::Done => {
                tracing::info!(resource = %writer.key, intent = ?intent.change, "intent noted")
            }
            other => return Ok(other),
        }
    }
    let connections = writer.reconciler.connections(writer.key);
    let mut declined = None;
    for member in membership_endpoints(observation) {
        match etcd::change_membership(&connections, access, &member, &request, holds).await {
            MembershipReply::Done => {
                tracing::info!(resource = %writer.key, change = ?intent.change, by = %member.name, "etcd has done it");
                return Ok(Outcome::Done);
            }
            MembershipReply::NotSent if declined.is_none() => return Ok(Outcome::Conflict),
            MembershipReply::NotSent => break,
            MembershipReply::UnhealthyCluster(why)
                if matches!(request, MembershipRequest::Add(_)) =>
            {
                tracing::info!(resource = %writer.key, by = %member.name, why, "declined: others are asked");
                declined.get_or_insert(why);
            }
            MembershipReply::UnhealthyCluster(why) | MembershipReply::Failed(why) => {
                declined = Some(why);
                break;
            }
        }
    }
    Ok(declined.map_or(Outcome::Conflict, |why| {
        Outcome::RetryLater(format!(
            "etcd, asked to {}: {why}",
            describe(observed, intent.change)
        ))
    }))
}

/// What etcd is asked for, as in "asked to".
fn describe(observed: &ObservedCluster, change: MembershipChange) -> String {
    match change {
        MembershipChange::Add(serial) => {
            format!("add {} as a learner", member_display_name(observed, serial))
        }
        MembershipChange::Promote(serial) => {
            format!("give {} its vote", member_display_name(observed, serial))
        }
        MembershipChange::Remove(serial) => {
            format!("remove {}", member_display_name(observed, serial))
        }
        MembershipChange::RemoveUnknown(id) => format!("remove the unknown member {:x}", id.0),
    }
}

/// Has the one who goes hand the lead to its heir, if it has one. That this fails is no reason not to go on.
pub(super) async fn transfer_leadership(
    writer: &EtcdWriter<'_>,
    observation: &Observation<EtcdReconciler>,
    (goes, transfer_to): (Serial, Option<Serial>),
    holds: &(dyn Fn() -> bool + Sync),
) {
    let (Some(transfer_to), Some(access)) = (transfer_to, &observation.objects.tls.credentials)
    else {
        return;
    };
    let (Some(leader), Some(id)) = (
        endpoint_of(observation, goes),
        id_of(observation, transfer_to),
    ) else {
        return;
    };
    let connections = writer.reconciler.connections(writer.key);
    match etcd::move_leader(&connections, access, &leader, id, holds).await {
        Ok(()) => {
            tracing::info!(resource = %writer.key, leader = %leader.name, ?transfer_to, "handed the lead over")
        }
        Err(why) => {
            tracing::info!(resource = %writer.key, leader = %leader.name, why, "kept the lead")
        }
    }
}

fn request(
    observation: &Observation<EtcdReconciler>,
    change: MembershipChange,
) -> Option<MembershipRequest> {
    let desired = &observation.objects.desired;
    let (_, identity) = observation.objects.identity.as_ref()?;
    Some(match change {
        MembershipChange::Add(serial) => {
            let name = member_name(&desired.name, identity.lineage, serial);
            MembershipRequest::Add(peer_url(&desired.name, &desired.namespace, &name))
        }
        MembershipChange::Promote(serial) => {
            MembershipRequest::Promote(id_of(observation, serial)?)
        }
        MembershipChange::Remove(serial) => MembershipRequest::Remove(id_of(observation, serial)?),
        MembershipChange::RemoveUnknown(id) => MembershipRequest::Remove(id),
    })
}

/// Who is asked to change the members, in this order: whoever leads, the one that told who they are, and all others who vote
/// and serve. A follower passes a promotion on without saying who asked, and where users must have names the leader refuses it
/// (tried on 3.6.16).
pub(super) fn membership_endpoints(observation: &Observation<EtcdReconciler>) -> Vec<Endpoint> {
    let Some(told) = observation.facts.membership.present() else {
        return Vec::new();
    };
    let serves = |serial: &Serial| {
        let health = observation
            .facts
            .health
            .get(serial)
            .and_then(|health| health.present());
        health.filter(|health: &&MemberHealth| {
            health.is_serving && Some(health.member_id) == id_of(observation, *serial)
        })
    };
    let voters = told
        .members
        .iter()
        .filter(|entry| !entry.is_learner)
        .map(|entry| entry.serial);
    let mut asked: Vec<_> = voters.filter(|serial| serves(serial).is_some()).collect();
    if !asked.contains(&told.reported_by) {
        asked.push(told.reported_by);
    }
    asked.sort_by_key(|serial| {
        (
            !serves(serial).is_some_and(|health| health.is_leader),
            *serial != told.reported_by,
            *serial,
        )
    });
    asked
        .into_iter()
        .filter_map(|serial| endpoint_of(observation, serial))
        .collect()
}

/// What etcd calls a member.
fn id_of(observation: &Observation<EtcdReconciler>, serial: Serial) -> Option<MemberId> {
    let told = observation.facts.membership.present()?;
    told.members
        .iter()
        .find(|entry| entry.serial == serial)
        .map(|entry| entry.id)
}

/// Where a member answers.
pub(super) fn endpoint_of(
    observation: &Observation<EtcdReconciler>,
    serial: Serial,
) -> Option<Endpoint> {
    let observed: &ObservedCluster = &observation.objects;
    let (_, identity) = observed.identity.as_ref()?;
    let mut pods = observed.pods.values();
    let pod = pods.find(|pod| {
        member_ref(&pod.metadata).is_some_and(|member| {
            member.serial == serial
                && member.epoch == identity.epoch
                && member.lineage == identity.lineage
        })
    })?;
    endpoint(&observed.desired, pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, name};

    fn asked_of(scene: Scene) -> Vec<String> {
        let by_name = membership_endpoints(&scene.observation())
            .into_iter()
            .map(|endpoint| endpoint.name);
        by_name
            .map(|name| name.split('.').next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn whoever_leads_is_asked_first_and_then_everybody_else_who_votes_and_serves() {
        let mut scene = Scene::with_newcomer();
        assert_eq!(
            asked_of(Scene::with_newcomer()),
            [name(0), name(1), name(2)]
        );
        for health in scene.state.health.values_mut() {
            if let evenkeel_runtime::Observed::Present(health) = health {
                health.is_leader = health.member_id == crate::testing::id(2);
            }
        }
        scene.stops_answering(1);
        assert_eq!(asked_of(scene), [name(2), name(0)]);
    }

    #[test]
    fn where_nobody_leads_the_one_that_told_who_the_members_are_is_asked() {
        let mut scene = Scene::converged(1);
        scene.stops_answering(0);
        assert_eq!(asked_of(scene), [name(0)]);
    }

    #[test]
    fn what_etcd_declines_is_told_by_the_members_name() {
        let observed = Scene::converged(2).observed;
        assert_eq!(
            describe(&observed, MembershipChange::Add(Serial(1))),
            format!("add {} as a learner", name(1))
        );
        assert_eq!(
            describe(&observed, MembershipChange::Promote(Serial(1))),
            format!("give {} its vote", name(1))
        );
        assert_eq!(
            describe(&observed, MembershipChange::Remove(Serial(1))),
            format!("remove {}", name(1))
        );
    }
}
