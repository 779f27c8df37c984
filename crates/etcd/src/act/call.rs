//! A change of etcd's membership. The call cannot be pinned, so its intent is written down first, by compare-and-swap; whoever
//! finds an open intent settles it before anything else.

use evenkeel::{Error, Outcome, Sight};

use super::swap;
use super::write::Hand;
use crate::facts::Voice;
use crate::identity::{Change, Identity, Intent, MemberId};
use crate::names::{Serial, member_name, peer_url};
use crate::observe::ask::{self, Endpoint, Reply, Request};
use crate::observe::{Found, member};
use crate::operator::{Operator, endpoint};
use crate::tell::named;

/// Notes the intent, unless it is noted already, and asks etcd.
pub(super) async fn call(
    hand: &Hand<'_>,
    sight: &Sight<Operator>,
    from: &Identity,
    intent: &Intent,
    holds: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, Error> {
    let found = &sight.found;
    let (Some(access), Some(request), Some(asked)) =
        (&found.tls.access, request(sight, intent.change), asked(sight))
    else {
        return Ok(Outcome::Overtaken);
    };
    let noted = from.noting(intent);
    if noted != *from {
        match swap(hand, found, from, &noted).await? {
            Outcome::Done => tracing::info!(resource = %hand.key, intent = ?intent.change, "intent noted"),
            other => return Ok(other),
        }
    }
    let connections = hand.operator.connections(hand.key);
    match ask::change(&connections, access, &asked, &request, holds).await {
        Reply::Done => {
            tracing::info!(resource = %hand.key, change = ?intent.change, "etcd has done it");
            Ok(Outcome::Done)
        }
        Reply::Withheld => Ok(Outcome::Overtaken),
        Reply::Not(why) => {
            Ok(Outcome::Declined(format!("etcd, asked to {}: {why}", in_words(found, intent.change))))
        }
    }
}

/// What etcd is asked for, as in "asked to".
fn in_words(found: &Found, change: Change) -> String {
    match change {
        Change::Add(serial) => format!("add {} as a learner", named(found, serial)),
        Change::Promote(serial) => format!("give {} its vote", named(found, serial)),
        Change::Remove(serial) => format!("remove {}", named(found, serial)),
        Change::Expel(id) => format!("remove the unknown member {:x}", id.0),
    }
}

/// Has the one who goes hand the lead to its heir, if it has one. That this fails is no reason not to go on.
pub(super) async fn hand_over(
    hand: &Hand<'_>,
    sight: &Sight<Operator>,
    (intent, heir): (&Intent, Option<Serial>),
    holds: &(dyn Fn() -> bool + Sync),
) {
    let (Some(heir), Some(access)) = (heir, &sight.found.tls.access) else { return };
    let leader = intent.change.member().and_then(|serial| endpoint_of(sight, serial));
    let (Some(leader), Some(id)) = (leader, id_of(sight, heir)) else { return };
    let connections = hand.operator.connections(hand.key);
    match ask::hand_over(&connections, access, &leader, id, holds).await {
        Ok(()) => tracing::info!(resource = %hand.key, leader = %leader.name, ?heir, "handed the lead over"),
        Err(why) => tracing::info!(resource = %hand.key, leader = %leader.name, why, "kept the lead"),
    }
}

fn request(sight: &Sight<Operator>, change: Change) -> Option<Request> {
    let wanted = &sight.found.wanted;
    let (_, identity) = sight.found.identity.as_ref()?;
    Some(match change {
        Change::Add(serial) => {
            let name = member_name(&wanted.name, identity.lineage, serial);
            Request::Add(peer_url(&wanted.name, &wanted.namespace, &name))
        }
        Change::Promote(serial) => Request::Promote(id_of(sight, serial)?),
        Change::Remove(serial) => Request::Remove(id_of(sight, serial)?),
        Change::Expel(id) => Request::Remove(id),
    })
}

/// Who is asked to change the members: whoever leads, or else the one that told who they are. A follower passes a promotion on
/// without saying who asked, and where users must have names the leader refuses it (tried on 3.6.16).
fn asked(sight: &Sight<Operator>) -> Option<Endpoint> {
    let told = sight.facts.membership.present()?;
    let leads = |serial: Serial| {
        let voice = sight.facts.voices.get(&serial).and_then(|voice| voice.present());
        voice.is_some_and(|voice: &Voice| {
            voice.leads && voice.serves && Some(voice.id) == id_of(sight, serial)
        })
    };
    let leader = told.members.iter().map(|entry| entry.serial).find(|serial| leads(*serial));
    endpoint_of(sight, leader.unwrap_or(told.told_by))
}

/// What etcd calls a member.
fn id_of(sight: &Sight<Operator>, serial: Serial) -> Option<MemberId> {
    let told = sight.facts.membership.present()?;
    told.members.iter().find(|entry| entry.serial == serial).map(|entry| entry.id)
}

/// Where a member answers.
fn endpoint_of(sight: &Sight<Operator>, serial: Serial) -> Option<Endpoint> {
    let found: &Found = &sight.found;
    let (_, identity) = found.identity.as_ref()?;
    let mut pods = found.pods.values();
    let pod = pods.find(|pod| {
        member(&pod.metadata).is_some_and(|member| {
            member.serial == serial && member.epoch == identity.epoch && member.lineage == identity.lineage
        })
    })?;
    endpoint(&found.wanted, pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, name};

    #[test]
    fn what_etcd_declines_is_told_by_the_members_name() {
        let found = Scene::converged(2).found;
        assert_eq!(in_words(&found, Change::Add(Serial(1))), format!("add {} as a learner", name(1)));
        assert_eq!(in_words(&found, Change::Promote(Serial(1))), format!("give {} its vote", name(1)));
        assert_eq!(in_words(&found, Change::Remove(Serial(1))), format!("remove {}", name(1)));
    }
}
