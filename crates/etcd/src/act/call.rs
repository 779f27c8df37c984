//! A change of etcd's membership. The call cannot be pinned, so its intent is written down first, by compare-and-swap; whoever
//! finds an open intent settles it before anything else.
//!
//! Whoever leads is asked first. It may be wrong about the others: a message of etcd's that is lost on the way to a member as it
//! restarts, and given up when the member has long been back, leaves that member marked as unreachable until its connections
//! break again, and every addition is declined (`rafthttp`'s pipeline; seen for four minutes in a story, reproduced on 3.5,
//! 3.6 and 3.7: the explorer's `replay`). An addition that it declines for that is asked of the others, who see for themselves.
//! A removal is not: whoever takes the leaver for unreachable removes it without looking at the quorum.

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
    let (Some(access), Some(request)) = (&found.tls.access, request(sight, intent.change)) else {
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
    let mut declined = None;
    for member in asked(sight) {
        match ask::change(&connections, access, &member, &request, holds).await {
            Reply::Done => {
                tracing::info!(resource = %hand.key, change = ?intent.change, by = %member.name, "etcd has done it");
                return Ok(Outcome::Done);
            }
            Reply::Withheld if declined.is_none() => return Ok(Outcome::Overtaken),
            Reply::Withheld => break,
            Reply::Doubted(why) if matches!(request, Request::Add(_)) => {
                tracing::info!(resource = %hand.key, by = %member.name, why, "declined: others are asked");
                declined.get_or_insert(why);
            }
            Reply::Doubted(why) | Reply::Not(why) => {
                declined = Some(why);
                break;
            }
        }
    }
    Ok(declined.map_or(Outcome::Overtaken, |why| {
        Outcome::Declined(format!("etcd, asked to {}: {why}", in_words(found, intent.change)))
    }))
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
    (goes, heir): (Serial, Option<Serial>),
    holds: &(dyn Fn() -> bool + Sync),
) {
    let (Some(heir), Some(access)) = (heir, &sight.found.tls.access) else { return };
    let (Some(leader), Some(id)) = (endpoint_of(sight, goes), id_of(sight, heir)) else { return };
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

/// Who is asked to change the members, in this order: whoever leads, the one that told who they are, and all others who vote
/// and serve. A follower passes a promotion on without saying who asked, and where users must have names the leader refuses it
/// (tried on 3.6.16).
pub(super) fn asked(sight: &Sight<Operator>) -> Vec<Endpoint> {
    let Some(told) = sight.facts.membership.present() else { return Vec::new() };
    let serves = |serial: &Serial| {
        let voice = sight.facts.voices.get(serial).and_then(|voice| voice.present());
        voice.filter(|voice: &&Voice| voice.serves && Some(voice.id) == id_of(sight, *serial))
    };
    let voters = told.members.iter().filter(|entry| !entry.learner).map(|entry| entry.serial);
    let mut asked: Vec<_> = voters.filter(|serial| serves(serial).is_some()).collect();
    if !asked.contains(&told.told_by) {
        asked.push(told.told_by);
    }
    asked.sort_by_key(|serial| {
        (!serves(serial).is_some_and(|voice| voice.leads), *serial != told.told_by, *serial)
    });
    asked.into_iter().filter_map(|serial| endpoint_of(sight, serial)).collect()
}

/// What etcd calls a member.
fn id_of(sight: &Sight<Operator>, serial: Serial) -> Option<MemberId> {
    let told = sight.facts.membership.present()?;
    told.members.iter().find(|entry| entry.serial == serial).map(|entry| entry.id)
}

/// Where a member answers.
pub(super) fn endpoint_of(sight: &Sight<Operator>, serial: Serial) -> Option<Endpoint> {
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

    fn asked_of(scene: Scene) -> Vec<String> {
        let by_name = asked(&scene.sight()).into_iter().map(|endpoint| endpoint.name);
        by_name.map(|name| name.split('.').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn whoever_leads_is_asked_first_and_then_everybody_else_who_votes_and_serves() {
        let mut scene = Scene::with_newcomer();
        assert_eq!(asked_of(Scene::with_newcomer()), [name(0), name(1), name(2)]);
        for voice in scene.answers.voices.values_mut() {
            if let evenkeel::Seen::Present(voice) = voice {
                voice.leads = voice.id == crate::testing::id(2);
            }
        }
        scene.falls_silent(1);
        assert_eq!(asked_of(scene), [name(2), name(0)]);
    }

    #[test]
    fn where_nobody_leads_the_one_that_told_who_the_members_are_is_asked() {
        let mut scene = Scene::converged(1);
        scene.falls_silent(0);
        assert_eq!(asked_of(scene), [name(0)]);
    }

    #[test]
    fn what_etcd_declines_is_told_by_the_members_name() {
        let found = Scene::converged(2).found;
        assert_eq!(in_words(&found, Change::Add(Serial(1))), format!("add {} as a learner", name(1)));
        assert_eq!(in_words(&found, Change::Promote(Serial(1))), format!("give {} its vote", name(1)));
        assert_eq!(in_words(&found, Change::Remove(Serial(1))), format!("remove {}", name(1)));
    }
}
