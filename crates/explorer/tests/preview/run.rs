//! The run of the explorer's model that a preview predicts. In each state of the model many events are possible; the run
//! takes them in the order that a preview assumes: the operator acts as long as it has something to do, then kubelets,
//! Kubernetes and etcd act, then time passes.

use std::collections::BTreeSet;

use evenkeel_etcd::Etcd;
use evenkeel_etcd::actions::etcd_action;
use evenkeel_etcd::facts::EtcdFacts;
use evenkeel_etcd::identity::{MembershipChange, Uid};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::observe::ObservedCluster;
use evenkeel_etcd::plan::EtcdDisruption;
use evenkeel_etcd::status;
use evenkeel_explorer::apply::pass_time;
use evenkeel_explorer::effect::{Effect, plan_writes};
use evenkeel_explorer::event::ModelEvent;
use evenkeel_explorer::model::ClusterModel;
use evenkeel_explorer::observe::{Visibility, observe};
use evenkeel_explorer::{Decider, RealDecider};
use evenkeel_runtime::{Engine, Observed, Plan, Requeue};

use crate::deliberate_bugs::DeliberateBug;
use crate::objects::{KubeObjects, within_model};

/// The maximum number of decisions, as in a preview.
const MAX_DECISIONS: usize = 400;

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    /// The machine name.
    pub(crate) action: &'static str,
    /// The description, which names the member.
    pub(crate) does: String,
}

/// The actions of a run, and its end.
#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) steps: Vec<Step>,
    pub(crate) ends: String,
    pub(crate) waits_for: Vec<String>,
}

/// A decider that never acts: only the events of kubelets, Kubernetes and etcd are left.
struct NoOperator;

impl Decider for NoOperator {
    fn decide(&self, _: &EtcdFacts) -> Plan<Etcd> {
        Plan::default()
    }
}

/// A run of the model.
#[derive(Clone)]
pub(crate) struct ModelRun {
    pub(crate) model: ClusterModel,
    /// The objects in addition to the model; without them the operator observes the model itself.
    pub(crate) kube: Option<KubeObjects>,
    /// The pods that do not change by themselves until the operator deletes them.
    pub(crate) failing: BTreeSet<Uid>,
    pub(crate) bug: Option<DeliberateBug>,
    /// The states in which the operator decided.
    pub(crate) visited: Vec<ClusterModel>,
    leader: Option<Serial>,
    /// The pods that the operator deleted, in order.
    deleted: Vec<Uid>,
    /// The pods that served until the operator deleted them or removed their members.
    shut_down: BTreeSet<Uid>,
    /// The pods whose kubelet reports a container that does not run.
    idle: BTreeSet<Uid>,
}

impl ModelRun {
    pub(crate) fn new(model: ClusterModel, kube: Option<KubeObjects>) -> Self {
        let mut run = Self {
            leader: model
                .leader()
                .filter(|leader| !model.pods[leader].is_unreachable)
                .or_else(|| first_leader(&model)),
            idle: BTreeSet::new(),
            model,
            kube,
            failing: BTreeSet::new(),
            bug: None,
            visited: Vec::new(),
            deleted: Vec::new(),
            shut_down: BTreeSet::new(),
        };
        run.report_idle_pods();
        run
    }

    /// Runs until nothing changes any more. `observed` names the members in descriptions.
    pub(crate) fn finish(&mut self, observed: &ObservedCluster) -> Result<Course, String> {
        let mut steps = Vec::new();
        for _ in 0..MAX_DECISIONS {
            let facts = self.facts()?;
            let plan = Etcd::decide(&facts);
            self.visited.push(self.model.clone());
            if !plan.is_noop() {
                steps.extend(describe(observed, &facts, &plan));
                self.execute(&plan)?;
            } else if !self.advance()? && !self.advance_clock(&plan) {
                return Ok(Course {
                    steps,
                    ends: status::status(observed, &facts, &plan, None).summary,
                    waits_for: status::explain(observed, &facts, &plan).waits,
                });
            }
        }
        Err("the model does not become idle".to_owned())
    }

    /// Returns the facts that the operator observes.
    pub(crate) fn facts(&self) -> Result<EtcdFacts, String> {
        let mut facts = observe(&self.model, Visibility::Full);
        // In the model all timeouts expire at once.
        facts.cluster.replace_after = facts.cluster.bootstrap_timeout;
        // The model lets the newest voter lead, which is the worst case. etcd keeps its leader.
        for (serial, health) in &mut facts.health {
            if let Observed::Present(health) = health {
                health.is_leader = self.leader == Some(*serial);
            }
        }
        for pod in facts.pods.present_mut().into_iter().flatten() {
            if pod.node.is_some() && !self.idle.contains(&pod.uid) {
                (pod.is_idle, pod.crashing_since) = (false, None);
            }
            // In the model a pod that exceeded one timeout has exceeded every timeout. A member
            // that the operator shuts down is unreachable from now on.
            if self.shut_down.contains(&pod.uid) {
                pod.unready_since = None;
                facts.unreachable_since.remove(&pod.serial);
            }
        }
        if facts.membership.is_present() {
            facts.client_read = Observed::Present(());
        }
        match &self.kube {
            None => Ok(facts),
            Some(kube) => kube.observe(&facts).map(|(_, facts)| facts),
        }
    }

    /// Returns the observation of the objects.
    pub(crate) fn observed(&self) -> Result<ObservedCluster, String> {
        let facts = observe(&self.model, Visibility::Full);
        let kube = self.kube.as_ref().ok_or("there are no objects")?;
        kube.observe(&facts).map(|(observed, _)| observed)
    }

    fn apply(&mut self, event: &ModelEvent) -> Result<(), String> {
        let applied = event.apply(&mut self.model, &RealDecider);
        applied.map_err(|violation| violation.0)?;
        if !self
            .leader
            .is_some_and(|leader| is_running_voter(&self.model, leader))
        {
            self.leader = first_leader(&self.model);
        }
        if let Some(kube) = &mut self.kube {
            kube.sync(&observe(&self.model, Visibility::Full));
        }
        Ok(())
    }

    fn execute(&mut self, plan: &Plan<Etcd>) -> Result<(), String> {
        if let Some(
            EtcdDisruption::ChangeMembership { transfer_to, .. }
            | EtcdDisruption::RestartMember { transfer_to, .. },
        ) = &plan.disruption
        {
            self.leader = transfer_to.or(self.leader);
        }
        let writes = match &mut self.kube {
            None => plan_writes(plan),
            Some(kube) => {
                let facts = observe(&self.model, Visibility::Full);
                kube.record_desired(&facts)?;
                kube.execute(&facts, plan)?;
                plan_writes(&within_model(plan))
            }
        };
        self.apply(&ModelEvent::Decide(writes))?;
        while let Some(effect) = self.model.pending_writes.first().cloned() {
            if let Effect::Delete(
                EtcdDisruption::RestartMember { pod, serial, .. }
                | EtcdDisruption::DeletePod { pod, serial, .. },
            ) = &effect
            {
                self.failing.remove(pod);
                self.deleted.push(*pod);
                self.shut_down.extend(self.serving_pod(*serial));
            }
            if let Effect::ChangeMembership(intent) = &effect
                && let MembershipChange::Remove(serial) = intent.change
            {
                self.shut_down.extend(self.serving_pod(serial));
            }
            self.apply(&ModelEvent::Write(effect.clone()))?;
            if let Some(bug) = self.bug {
                bug(&mut self.model, &effect);
            }
        }
        Ok(())
    }

    /// Removes the pod that was deleted first and applies all other events that happen without a fault. Returns false if
    /// nothing has changed.
    fn advance(&mut self) -> Result<bool, String> {
        let before = (self.model.clone(), self.idle.clone());
        self.apply_events()?;
        let removals = self.possible_events().into_iter().filter(is_removal);
        if let Some(event) = removals.min_by_key(|event| self.deletion_order(event)) {
            self.apply(&event)?;
            self.apply_events()?;
        }
        self.report_idle_pods();
        Ok((&self.model, &self.idle) != (&before.0, &before.1))
    }

    /// Applies all events but the removal of pods.
    fn apply_events(&mut self) -> Result<(), String> {
        loop {
            let mut events = self.possible_events().into_iter();
            let Some(event) = events.find(|event| !is_removal(event)) else {
                return Ok(());
            };
            self.apply(&event)?;
        }
    }

    fn possible_events(&self) -> Vec<ModelEvent> {
        let events = ModelEvent::enabled(&self.model, &NoOperator).into_iter();
        events.filter(|event| !self.is_failing(event)).collect()
    }

    fn pod_uid(&self, serial: Serial) -> Option<Uid> {
        self.model.pods.get(&serial).map(|pod| pod.uid)
    }

    fn serving_pod(&self, serial: Serial) -> Option<Uid> {
        self.pod_uid(serial)
            .filter(|_| self.model.is_serving(serial))
    }

    fn deletion_order(&self, event: &ModelEvent) -> Option<usize> {
        let ModelEvent::PodRemoved(serial) = event else {
            return None;
        };
        let uid = self.pod_uid(*serial)?;
        self.deleted.iter().position(|deleted| *deleted == uid)
    }

    fn is_failing(&self, event: &ModelEvent) -> bool {
        match event {
            ModelEvent::KubeletSynced(serial)
            | ModelEvent::ContainerStarted(serial)
            | ModelEvent::PodRemoved(serial)
            | ModelEvent::NodeRecovered(serial)
            | ModelEvent::MemberReachable(serial) => self
                .pod_uid(*serial)
                .is_some_and(|uid| self.failing.contains(&uid)),
            _ => false,
        }
    }

    /// Kubelets report a container that has exited when they act, not at once.
    fn report_idle_pods(&mut self) {
        let facts = observe(&self.model, Visibility::Full);
        let pods = facts.pods.present().into_iter().flatten();
        self.idle = pods.filter(|pod| pod.is_idle).map(|pod| pod.uid).collect();
    }

    fn advance_clock(&mut self, plan: &Plan<Etcd>) -> bool {
        if let Some(kube) = &mut self.kube {
            return match plan.requeue {
                Requeue::At(time) if time > kube.now => {
                    kube.now = time;
                    true
                }
                _ => false,
            };
        }
        let before = self.model.clone();
        pass_time(&mut self.model);
        self.model != before
    }
}

fn is_running_voter(model: &ClusterModel, serial: Serial) -> bool {
    let cluster = model.running_cluster(serial);
    cluster.is_some_and(|cluster| model.is_voter(cluster, serial))
}

/// Returns the voter that is elected next. The operator cannot know a leader that it does not reach.
fn first_leader(model: &ClusterModel) -> Option<Serial> {
    let pods = model.pods.iter().filter(|(_, pod)| !pod.is_unreachable);
    let mut serving = pods
        .map(|(serial, _)| *serial)
        .filter(|serial| model.is_serving(*serial));
    serving.find(|serial| is_running_voter(model, *serial))
}

fn is_removal(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::PodRemoved(_))
}

/// Describes the actions of a plan as a preview does.
fn describe(observed: &ObservedCluster, facts: &EtcdFacts, plan: &Plan<Etcd>) -> Vec<Step> {
    let texts = status::explain(observed, facts, plan).actions;
    let actions = plan.actions().zip(texts);
    actions
        .map(|(action, does)| Step {
            action: etcd_action(&action).name(),
            does,
        })
        .collect()
}
