//! Carrying out what was decided, each thing pinned to what it was decided on. Thin: whatever there is to know is decided before.

mod apply;
mod call;
pub(crate) mod renew;
mod write;

use evenkeel::{Action, Error, Key, Outcome, Sight};
use evenkeel_api::{labels, quantity};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::build::claim::{claim, joined_on, removed_at};
use crate::build::pod::{Made, pod};
use crate::build::{self, Member, start};
use crate::decide::Etcd;
use crate::facts::Start;
use crate::identity::{Identity, Uid};
use crate::names::{Epoch, Serial};
use crate::observe::{Found, member, uid};
use crate::operator::Operator;
use crate::plan::{Create, Leaving, Mark, Owned, Step};
use crate::wanted::Data;
use renew::Renewed;
use write::Hand;

/// Carries out one thing.
pub(crate) async fn act(
    operator: &Operator,
    sight: &Sight<Operator>,
    action: &Action<'_, Etcd>,
    holds: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, Error> {
    let found = &sight.found;
    let key = Key { namespace: found.wanted.namespace.clone(), name: found.wanted.name.clone() };
    let hand = Hand::new(operator, &key);
    match action {
        Action::Create(what) => create(&hand, found, what).await,
        Action::Mark(what) => mark(&hand, found, what).await,
        Action::Apply(what) => apply::apply(&hand, found, **what).await,
        Action::Step(Step::Identity { from, to, .. }) => swap(&hand, found, from, to).await,
        Action::Step(Step::Call { from, intent, heir }) => {
            if let Some(goes) = intent.change.member() {
                call::hand_over(&hand, sight, (goes, *heir), holds).await;
            }
            call::call(&hand, sight, from, intent, holds).await
        }
        Action::Step(Step::Restart { pod, serial, heir, spared }) => {
            call::hand_over(&hand, sight, (*serial, *heir), holds).await;
            match found.pods.get(pod) {
                // Handing over takes its time, and whoever lost the lease meanwhile disturbs nobody.
                _ if !holds() => Ok(Outcome::Overtaken),
                Some(pod) if *spared => hand.evict(pod).await,
                pod => hand.delete_found(pod).await,
            }
        }
        Action::Step(Step::Renew { from, to }) => match renew::logs(&hand, sight, holds).await {
            Ok(Renewed::All) => swap(&hand, found, from, to).await,
            Ok(Renewed::UpTo { applied, ends }) => {
                Ok(Outcome::Ongoing(format!("the log has got to {applied} of {ends}")))
            }
            Err(why) => Ok(Outcome::Declined(why)),
        },
        // One that runs, and is only not heard, leaves only if disruption budgets allow that.
        Action::Step(Step::DeletePod { pod, why: Leaving::Outdated, .. }) if !is_idle(sight, *pod) => {
            match found.pods.get(pod) {
                Some(pod) => hand.evict(pod).await,
                None => Ok(Outcome::Overtaken),
            }
        }
        Action::Step(Step::DeletePod { pod, .. }) => hand.delete_found(found.pods.get(pod)).await,
        Action::Step(Step::DeleteClaim { claim, .. }) => hand.delete_found(found.claims.get(claim)).await,
    }
}

/// Whether a pod does not run, by what was decided on: nobody's budget is about that. It is deleted as it was found, so that one that has
/// come up meanwhile is not.
fn is_idle(sight: &Sight<Operator>, pod: Uid) -> bool {
    let pods = sight.facts.pods.present();
    pods.is_some_and(|pods| pods.iter().any(|one| one.uid == pod && one.idle))
}

fn built(error: build::BuildError) -> Error {
    Error::other("build an object", error)
}

async fn create(hand: &Hand<'_>, found: &Found, what: &Create) -> Result<Outcome, Error> {
    let of = |serial: Serial, epoch: Epoch| {
        let (_, identity) = found.identity.as_ref()?;
        Some((Member { lineage: identity.lineage, epoch, serial }, identity))
    };
    match what {
        Create::Identity(identity) => {
            hand.create(&build::identity(&found.wanted, identity).map_err(built)?).await
        }
        Create::Claim { serial, epoch } => {
            let Some((member, _)) = of(*serial, *epoch) else { return Ok(Outcome::Overtaken) };
            match claim(&found.wanted, member).map_err(built)? {
                Some(claim) => create_or_find(hand, found, &claim).await,
                None => Ok(Outcome::Overtaken),
            }
        }
        Create::Pod { serial, epoch, on, start, .. } => {
            let Some((member, identity)) = of(*serial, *epoch) else { return Ok(Outcome::Overtaken) };
            if matches!(found.wanted.data, Data::Persistent { .. })
                && !stands(hand, found, member, *on).await?
            {
                return Ok(Outcome::Overtaken);
            }
            let seed = *start == Start::Held && *serial == identity.seed && !identity.sealed;
            let made = Made { member, start: start.clone(), seed };
            create_or_find(hand, found, &pod(&found.wanted, &made).map_err(built)?).await
        }
    }
}

/// Creates an object of a member. Where that very object is there, and somebody took off the label by which it is found, it gets it back.
async fn create_or_find<K: evenkeel::Object>(
    hand: &Hand<'_>,
    found: &Found,
    object: &K,
) -> Result<Outcome, Error> {
    let created = hand.create(object).await?;
    if created != Outcome::Overtaken {
        return Ok(created);
    }
    let Some(there) = hand.find::<K>(&object.name_any()).await? else { return Ok(created) };
    let name = &found.wanted.name;
    let is_same =
        Member::read(there.annotations()).is_some_and(|it| Some(it) == Member::read(object.annotations()));
    if !is_same || there.labels().get(labels::CLUSTER) == Some(name) {
        return Ok(created);
    }
    hand.patch(&there, json!({ "metadata": { "labels": { labels::CLUSTER: name } } })).await
}

/// Whether the claim that a pod is to stand on is still that claim: a pod names its claim and cannot be pinned to it, so it
/// is looked at once more.
async fn stands(hand: &Hand<'_>, found: &Found, member: Member, on: Option<Uid>) -> Result<bool, Error> {
    let name = crate::names::member_name(&found.wanted.name, member.lineage, member.serial);
    let there: Option<PersistentVolumeClaim> = hand.read(&name).await?;
    let there = there.filter(|claim| claim.metadata.deletion_timestamp.is_none());
    Ok(on.is_some() && there.and_then(|claim| uid(&claim.metadata)) == on)
}

async fn mark(hand: &Hand<'_>, found: &Found, what: &Mark) -> Result<Outcome, Error> {
    match what {
        Mark::Start { pod, to, .. } => match found.pods.get(pod) {
            Some(pod) => hand.patch(pod, how_to_start(found, pod, to)).await,
            None => Ok(Outcome::Overtaken),
        },
        Mark::JoinedOn { claim: on, volume } => match found.claims.get(on) {
            Some(claim) => {
                let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
                if Uid::of_name(&name) != *volume {
                    return Ok(Outcome::Overtaken);
                }
                let text = joined_on(*on, &name);
                hand.patch(claim, json!({ "metadata": { "annotations": { labels::JOINED_ON: text } } })).await
            }
            None => Ok(Outcome::Overtaken),
        },
        Mark::Turn { pod, .. } => match found.pods.get(pod) {
            Some(pod) => hand.patch_status(pod, turned(hand, found, pod)).await,
            None => Ok(Outcome::Overtaken),
        },
        Mark::Route { pod } => {
            let label = json!({ labels::ROLE: labels::ROLE_VOTER });
            hand.patch_found(found.pods.get(pod), json!({ "metadata": { "labels": label } })).await
        }
        Mark::Unroute { pod } => {
            let no_label = json!({ labels::ROLE: null });
            hand.patch_found(found.pods.get(pod), json!({ "metadata": { "labels": no_label } })).await
        }
        Mark::Removed { claim, at } => match found.claims.get(claim) {
            Some(claim) => {
                let at = at.and_then(|at| Some(removed_at(uid(&claim.metadata)?, at)));
                hand.patch(claim, json!({ "metadata": { "annotations": { labels::REMOVED_AT: at } } })).await
            }
            None => Ok(Outcome::Overtaken),
        },
        Mark::Version { claim, version } => {
            let written = json!({ labels::VERSION: version });
            hand.patch_found(found.claims.get(claim), json!({ "metadata": { "annotations": written } })).await
        }
        Mark::Inputs { pod, inputs, version } => {
            let written = json!({ labels::INPUTS: inputs, labels::VERSION: version });
            hand.patch_found(found.pods.get(pod), json!({ "metadata": { "annotations": written } })).await
        }
        Mark::Grow { claim, to } => {
            let larger = json!({ "requests": { "storage": quantity::binary(*to) } });
            hand.patch_found(found.claims.get(claim), json!({ "spec": { "resources": larger } })).await
        }
        Mark::Accept => match &found.identity {
            Some((object, _)) => {
                hand.patch(object, json!({ "data": { build::SPEC_KEY: found.wanted.spec } })).await
            }
            None => Ok(Outcome::Overtaken),
        },
        Mark::Own { what, owned } => own(hand, found, *what, *owned).await,
    }
}

/// Tells a pod how its etcd finds its cluster, and lets one that waits go.
fn how_to_start(found: &Found, pod: &Pod, to: &Start) -> Value {
    let Some(member) = member(&pod.metadata) else { return json!({}) };
    let annotations = start::annotations(&found.wanted, member.lineage, member.serial, to);
    json!({ "metadata": { "annotations": annotations } })
}

/// How to start, and the gate, in one write: a pod's annotations can be written together with its status.
fn turned(hand: &Hand<'_>, found: &Found, pod: &Pod) -> Value {
    let mut change = joined(hand);
    if let Some(member) = member(&pod.metadata) {
        let own = start::annotations(&found.wanted, member.lineage, member.serial, &Start::OwnData);
        change["metadata"]["annotations"] = json!(own);
    }
    change
}

fn joined(hand: &Hand<'_>) -> Value {
    let now = hand.operator.clock.now();
    let now = jiff::Timestamp::from_second(now.0).unwrap_or_default();
    json!({ "status": { "conditions": [{
        "type": labels::GATE_JOINED,
        "status": "True",
        "reason": "Joined",
        "message": "etcd has joined, and starts on its own data only from now on",
        "lastTransitionTime": now.to_string(),
    }] } })
}

async fn own(hand: &Hand<'_>, found: &Found, what: Owned, owned: bool) -> Result<Outcome, Error> {
    let owners = if owned { json!([build::owner(&found.wanted)]) } else { json!([]) };
    let patch = json!({ "metadata": { "ownerReferences": owners } });
    match what {
        Owned::Identity => match &found.identity {
            Some((object, _)) => hand.patch(object, patch).await,
            None => Ok(Outcome::Overtaken),
        },
        Owned::Claim(uid) => hand.patch_found(found.claims.get(&uid), patch).await,
        Owned::Pod(uid) => hand.patch_found(found.pods.get(&uid), patch).await,
    }
}

/// Swaps the identity for another, if it is still what it was.
async fn swap(hand: &Hand<'_>, found: &Found, from: &Identity, to: &Identity) -> Result<Outcome, Error> {
    let Some((object, there)) = &found.identity else { return Ok(Outcome::Overtaken) };
    if there != from {
        return Ok(Outcome::Overtaken);
    }
    let mut changed: ConfigMap = object.clone();
    let text = serde_json::to_string(to).map_err(|why| Error::other("write the identity", why))?;
    let data = changed.data.get_or_insert_default();
    data.insert(build::IDENTITY_KEY.to_owned(), text);
    data.insert(build::SPEC_KEY.to_owned(), found.wanted.spec.clone());
    tracing::debug!(identity = %object.name_any(), ?to, "identity");
    hand.replace(&changed).await
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;
