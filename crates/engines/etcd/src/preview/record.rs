//! Follows a simulated cluster and records its actions, steps and effects.

use std::collections::BTreeSet;

use evenkeel_kit::preview::{Preview, PreviewStep, Simulation, follow};
use evenkeel_runtime::{Plan, UnixTime};

use super::effects::{Counts, Effects, ToleranceChange};
use super::notes::notes;
use super::outline::Outline;
use super::schedule::{Scheduler, Spread};
use super::simulate::SimulatedCluster;
use super::step::IndexedAction;
use super::{EtcdPreview, PreviewInput};
use crate::actions::ActionContext;
use crate::decide::{Etcd, next_deadline};
use crate::facts::EtcdFacts;
use crate::identity::Uid;
use crate::observe::ObservedCluster;
use crate::status;
use crate::view::ClusterView;

/// A simulated cluster whose course is recorded.
pub(super) struct Recorder<'o> {
    observed: &'o ObservedCluster,
    pub(super) cluster: SimulatedCluster,
    first: EtcdFacts,
    actions: Vec<PreviewStep>,
    outline: Outline,
    tolerance: ToleranceChange,
}

/// A recorded preview.
pub(super) struct Recorded {
    pub(super) preview: EtcdPreview,
    /// Whether more actions follow.
    pub(super) is_truncated: bool,
}

impl<'o> Recorder<'o> {
    pub(super) fn new(
        observed: &'o ObservedCluster,
        facts: EtcdFacts,
        failing: BTreeSet<Uid>,
        input: PreviewInput,
    ) -> Self {
        let PreviewInput { remembered, nodes } = input;
        let scheduler = Scheduler::new(nodes, Spread::of(&observed.desired));
        let outline = Outline::new(&facts);
        let cluster = SimulatedCluster::new(facts.clone(), failing, remembered, scheduler);
        let tolerance = cluster.tolerance();
        Self {
            observed,
            cluster,
            first: facts,
            actions: Vec::new(),
            outline,
            tolerance: ToleranceChange {
                before: tolerance,
                lowest: tolerance,
                after: tolerance,
            },
        }
    }

    /// Follows the cluster to its end.
    pub(super) fn run(mut self) -> Recorded {
        let plan = follow(&mut self, |_, _, _| {});
        let Self {
            observed,
            cluster,
            first,
            actions,
            mut outline,
            tolerance,
        } = self;
        let idle = status::describe_idle(observed, &cluster.facts, &plan);
        let is_truncated = !plan.is_noop();
        let counts = Counts {
            leader_transfers: outline.leader_transfers,
            outages: outline.outages,
            stopped: outline.stopped,
            volumes_resized: outline.resized.len(),
            tolerance,
            ends_converged: !is_truncated && plan.waits.is_empty(),
        };
        let volumes = std::mem::take(&mut outline.volumes);
        let steps = outline.finish();
        let effects = Effects::new(&steps, counts);
        let notes = notes(observed, &first, &cluster.facts, &effects);
        let course = Preview {
            steps: actions,
            ends: idle.summary,
            waits_for: idle.waits,
            assumes: Vec::new(),
        };
        let preview = EtcdPreview {
            course,
            steps,
            volumes,
            effects,
            notes,
        };
        Recorded {
            preview,
            is_truncated,
        }
    }

    fn record(&mut self, plan: &Plan<Etcd>) {
        let facts = &self.cluster.facts;
        let after = facts.now.0.saturating_sub(self.first.now.0);
        let described = status::describe_actions(self.observed, facts, plan);
        let view = ClusterView::from_facts(facts);
        let context = ActionContext::new(self.observed, facts, view.as_ref());
        for (action, described) in plan.actions().zip(described) {
            let index = self.actions.len();
            let indexed = IndexedAction {
                action,
                index,
                after,
            };
            self.outline.add(&context, &indexed);
            self.actions.push(PreviewStep {
                after,
                action: described.name,
                does: described.description,
                reason: described.reason,
                is_note: described.is_bookkeeping,
            });
        }
    }

    fn measure_tolerance(&mut self) {
        let now = self.cluster.tolerance();
        self.tolerance.after = now;
        self.tolerance.lowest = match (self.tolerance.lowest, now) {
            (Some(lowest), Some(now)) => Some(lowest.min(now)),
            (lowest, now) => lowest.or(now),
        };
    }
}

impl Simulation for Recorder<'_> {
    type Engine = Etcd;

    fn facts(&self) -> &EtcdFacts {
        &self.cluster.facts
    }

    fn now(&self) -> UnixTime {
        self.cluster.facts.now
    }

    fn set_now(&mut self, now: UnixTime) {
        self.cluster.facts.now = now;
    }

    fn execute(&mut self, plan: &Plan<Etcd>) {
        self.record(plan);
        self.cluster.execute(plan);
        self.measure_tolerance();
    }

    fn advance(&mut self) -> bool {
        let has_changed = self.cluster.advance();
        self.measure_tolerance();
        has_changed
    }

    fn next_deadline(&self, plan: &Plan<Etcd>) -> Option<UnixTime> {
        next_deadline(&self.cluster.facts, plan)
    }
}
