//! The check of quiescent states, in which no event happens without a fault: the cluster must be as desired, or lost
//! beyond repair.

use std::collections::HashSet;

use evenkeel_etcd::facts::StorageKind;
use evenkeel_etcd::identity::Identity;
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::view::quorum;

use crate::Decider;
use crate::apply::pass_time;
use crate::canonical::canonical;
use crate::compress::{Fingerprint, PartTables, fingerprint};
use crate::etcd_start::StartResult;
use crate::event::ModelEvent;
use crate::model::{
    ClusterModel, DiskState, FaultBudget, ModelClaim, RuleViolation, TemplateVariant,
};
use crate::observe::{Visibility, observe};

/// The maximum number of events until a run must be quiescent.
const MAX_EVENTS: usize = 400;

/// The events of a bad run, and the rule that it violates.
pub type BadRun = (Vec<ModelEvent>, RuleViolation);

/// Runs quiescent states on after time has passed.
#[derive(Debug, Default)]
pub struct QuiescenceChecker {
    /// States that are known to converge after time has passed.
    converging: HashSet<Fingerprint>,
}

impl QuiescenceChecker {
    /// Lets time pass in a quiescent state, then applies the fault-free events until the state is quiescent again,
    /// and checks it.
    pub fn check(
        &mut self,
        model: &ClusterModel,
        decider: &dyn Decider,
        parts: &PartTables,
    ) -> Result<(), BadRun> {
        let mut model = model.clone();
        // The fault budget does not matter to a run without faults.
        model.budget = FaultBudget::NONE;
        pass_time(&mut model);
        let (mut path, mut onward, mut words) = (vec![], vec![ModelEvent::TimePassed], vec![]);
        for _ in 0..MAX_EVENTS {
            let Some(event) = ModelEvent::enabled(&model, decider).into_iter().next() else {
                let mut later = model.clone();
                pass_time(&mut later);
                if later != model {
                    onward.push(ModelEvent::TimePassed);
                    model = later;
                    continue;
                }
                if let Some(template) = template_to_restore(&model) {
                    // The user reverts the template, and the cluster must converge.
                    onward.push(ModelEvent::TemplateEdited(template));
                    model.template = template;
                    continue;
                }
                if let Err(violation) = check_quiescent(&model) {
                    return Err((onward, with_waits(&violation, &model, decider)));
                }
                self.converging.extend(path);
                return Ok(());
            };
            parts.compress(&canonical(&model), &mut words);
            let at = fingerprint(&words);
            if self.converging.contains(&at) {
                self.converging.extend(path);
                return Ok(());
            }
            path.push(at);
            let outcome = event.apply(&mut model, decider);
            onward.push(event);
            if let Err(violation) = outcome {
                return Err((onward, violation));
            }
        }
        Err((onward, no_convergence()))
    }
}

/// Returns the violation of a run that never converges.
pub fn no_convergence() -> RuleViolation {
    RuleViolation("the run never converges although no more faults happen".to_owned())
}

/// Adds the operator's waits to a violation.
fn with_waits(
    violation: &RuleViolation,
    model: &ClusterModel,
    decider: &dyn Decider,
) -> RuleViolation {
    let waits = decider.decide(&observe(model, Visibility::Full)).waits;
    RuleViolation(format!("{}; the operator waits for {waits:?}", violation.0))
}

/// Returns the template to which a user reverts when a rollout has stopped at a member that does not start. The
/// operator cannot know whether the template is the cause, so it waits for the user.
fn template_to_restore(model: &ClusterModel) -> Option<TemplateVariant> {
    if model.template == TemplateVariant::Broken {
        return Some(TemplateVariant::Original);
    }
    let exits = |serial: &Serial| model.start_result(*serial) == Ok(StartResult::Exits);
    let mut current = model
        .pods
        .iter()
        .filter(|(_, pod)| pod.template == model.template && !pod.is_running);
    let others = model
        .pods
        .iter()
        .filter(|(serial, pod)| pod.template != model.template && model.is_serving(**serial));
    let none_serves = model
        .pods
        .iter()
        .all(|(serial, pod)| pod.template != model.template || !model.is_serving(*serial));
    let working = others.map(|(_, pod)| pod.template).next();
    working.filter(|_| none_serves && current.any(|(serial, _)| exits(serial)))
}

/// Checks that a quiescent state is as desired.
fn check_quiescent(model: &ClusterModel) -> Result<(), RuleViolation> {
    let bad = |what: &str| {
        Err(RuleViolation(format!(
            "the model is quiescent although {what}"
        )))
    };
    let Some(identity) = &model.identity else {
        return bad("there is no cluster");
    };
    let Some(cluster) = model.current_cluster() else {
        // A user deleted all objects, so their content is unknown.
        let mut disks = model
            .claims
            .keys()
            .chain(model.pods.keys())
            .map(|serial| model.disk(*serial));
        let no_data = disks.all(|disk| !matches!(disk, Some(DiskState::Data { .. })));
        let all_deleted = model.allows_tampering && identity.bootstrapped && no_data;
        // The data of the replaced cluster was lost while its members were not running, and the restore was undone.
        let is_lost = |claim: &ModelClaim| {
            claim.epoch != identity.epoch
                || claim.node_lost
                || !matches!(claim.disk, DiskState::Data { .. })
        };
        let replaced_lost =
            model.restores_in_place && identity.bootstrapped && model.claims.values().all(is_lost);
        return if all_deleted || replaced_lost {
            Ok(())
        } else {
            bad("no cluster was formed")
        };
    };
    if !identity.bootstrapped {
        return bad("the bootstrap is not finished");
    }
    if let Some(what) = restore_not_carried_out(model, identity) {
        return bad(what);
    }
    if !model.has_quorum(cluster) {
        return if quorum_lost_for_good(model, cluster) {
            Ok(())
        } else {
            bad("a quorum is possible")
        };
    }
    let members = &model.clusters[cluster].members;
    if model.clusters[cluster].unknown_voter.is_some() {
        return bad("an unknown member that never started is a voter");
    }
    if members.len() != usize::from(model.desired_members) {
        return bad("there are more or fewer members than desired");
    }
    let all_serve = members.iter().all(|(serial, member)| {
        let pod = model.pods.get(serial);
        !member.is_learner
            && model.is_serving(*serial)
            && pod.is_some_and(|pod| pod.is_routed && pod.joined_gate)
    });
    if !all_serve {
        return bad("a member does not serve or is not routed");
    }
    if model
        .pods
        .values()
        .any(|pod| pod.template != model.template)
    {
        return bad("a pod has an outdated template");
    }
    if model
        .claims
        .values()
        .any(|claim| claim.volume_template != model.volume_template())
    {
        return bad("a volume has an outdated template");
    }
    if !model.restore_pods.is_empty() {
        return bad("a restore pod is left");
    }
    let is_kept = |claim: &ModelClaim| claim.is_replaced && claim.epoch != identity.epoch;
    if model.pods.len() != members.len()
        || model
            .claims
            .iter()
            .any(|(serial, claim)| !members.contains_key(serial) && !is_kept(claim))
    {
        return bad("objects of a removed member are left");
    }
    Ok(())
}

/// Returns what is left to do of the `Restore`; `None` if it was carried out or cannot be. A deleted identity does not name the
/// replaced epoch any more.
fn restore_not_carried_out(model: &ClusterModel, identity: &Identity) -> Option<&'static str> {
    let restore = model.restore?;
    if identity.next_epoch.is_some() {
        return Some("an epoch is prepared");
    }
    if restore.undo {
        let was_replaced = identity.replaced.as_ref().is_some_and(|replaced| {
            replaced.epoch == restore.replaces && !replaced.is_undone(identity.epoch)
        });
        let is_kept = |claim: &ModelClaim| claim.epoch == restore.replaces && !claim.node_lost;
        return (was_replaced && model.claims.values().any(is_kept))
            .then_some("a restore is not undone");
    }
    let is_for_this_cluster = identity.epoch == restore.replaces;
    (is_for_this_cluster && model.storage == StorageKind::Persistent)
        .then_some("a restore is not carried out")
}

/// Returns true if so many voters have lost their data that the cluster can never have a quorum again.
fn quorum_lost_for_good(model: &ClusterModel, cluster: usize) -> bool {
    let voters: Vec<_> = model.clusters[cluster]
        .members
        .iter()
        .filter(|(_, member)| !member.is_learner)
        .collect();
    let intact = voters.iter().filter(|(serial, _)| {
        matches!(model.disk(**serial), Some(DiskState::Data { cluster: on, stale: false, .. }) if usize::from(on) == cluster)
    });
    intact.count() < quorum(model.voter_count(cluster))
}
