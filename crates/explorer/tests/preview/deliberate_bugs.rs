//! Deliberate bugs in the effect of a write: the comparison must find each of them. This shows that
//! it detects differences.

use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::plan::{EtcdCreate, EtcdDisruption, EtcdPatch};
use evenkeel_explorer::effect::Effect;
use evenkeel_explorer::model::ClusterModel;

use crate::states::{Events, State, converged_clusters};

/// A change of the model after a write.
pub(crate) type DeliberateBug = fn(&mut ClusterModel, &Effect);

const BUGS: [(&str, DeliberateBug); 6] = [
    ("a new pod is routed at once", |model, effect| {
        if let Effect::Create(EtcdCreate::Pod { serial, .. }) = effect
            && let Some(pod) = model.pods.get_mut(serial)
        {
            pod.is_routed = true;
        }
    }),
    ("a removed member stays routed", |model, effect| {
        if let Effect::Patch(EtcdPatch::DetachClients { pod: uid }) = effect
            && let Some(pod) = model.pods.values_mut().find(|pod| pod.uid == *uid)
        {
            pod.is_routed = true;
        }
    }),
    ("a new member votes at once", |model, effect| {
        if let Some((cluster, MembershipChange::Add(serial))) = membership_change(model, effect)
            && let Some(member) = model.clusters[cluster].members.get_mut(&serial)
        {
            member.is_learner = false;
        }
    }),
    ("a removed member stays a member", |model, effect| {
        if let Some((cluster, MembershipChange::Remove(serial))) = membership_change(model, effect)
        {
            let voter = model.clusters[cluster].members.values().next().copied();
            let members = &mut model.clusters[cluster].members;
            voter.and_then(|voter| members.insert(serial, voter));
        }
    }),
    ("a restart deletes the volume", |model, effect| {
        if let Effect::Delete(EtcdDisruption::RestartMember { serial, .. }) = effect {
            model.claims.remove(serial);
        }
    }),
    ("a volume is deleted with its pod", |model, effect| {
        if let Effect::Delete(EtcdDisruption::DeletePod { serial, .. }) = effect {
            model.claims.remove(serial);
        }
    }),
];

fn membership_change(model: &ClusterModel, effect: &Effect) -> Option<(usize, MembershipChange)> {
    match effect {
        Effect::ChangeMembership(intent) => Some((model.current_cluster()?, intent.change)),
        _ => None,
    }
}

#[test]
fn the_comparison_finds_every_deliberate_bug() {
    let states: Vec<State> = converged_clusters(3)
        .iter()
        .flat_map(|state| state.after(Events::Edits))
        .filter(|state| state.difference().is_none())
        .collect();
    for (name, bug) in BUGS {
        let found = states
            .iter()
            .filter(|state| state.difference_with(bug).is_some())
            .count();
        println!("{name}: found in {found} of {} states", states.len());
        assert!(found > 0, "not found: {name}");
    }
}
