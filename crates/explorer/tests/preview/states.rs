//! The states from which previews are compared.

use std::fmt;

use evenkeel_etcd::facts::{Membership, StorageKind};
use evenkeel_explorer::RealDecider;
use evenkeel_explorer::apply::pass_time;
use evenkeel_explorer::event::ModelEvent;
use evenkeel_explorer::model::{ClusterModel, FaultBudget};
use evenkeel_explorer::observe::{Visibility, observe};
use evenkeel_explorer::search::run_to_quiescence;

use crate::comparison::{difference, observation};
use crate::deliberate_bugs::DeliberateBug;
use crate::run::ModelRun;

/// One fault and one edit.
const BUDGET: FaultBudget = FaultBudget {
    faults: 1,
    crashes: 0,
    edits: 1,
    delays: 0,
};

/// A state of the model, and how it was reached.
#[derive(Clone)]
pub(crate) struct State {
    /// The initial state and the events.
    path: String,
    /// The faults and edits.
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) model: ClusterModel,
    /// The last member list that etcd reported.
    membership: Option<Membership>,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// The events that lead to other states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Events {
    Faults,
    Edits,
    All,
}

impl State {
    fn new(path: String, model: ClusterModel) -> Self {
        let facts = observe(&model, Visibility::Full);
        Self {
            path,
            events: Vec::new(),
            membership: facts.membership.present().cloned(),
            model,
        }
    }

    /// Returns another state that was reached from this one.
    fn next(&self, step: &str, model: ClusterModel) -> Self {
        let next = Self::new(format!("{}, {step}", self.path), model);
        Self {
            events: self.events.clone(),
            membership: next.membership.or_else(|| self.membership.clone()),
            ..next
        }
    }

    /// Returns the difference between the preview from this state and the run of the model.
    pub(crate) fn difference(&self) -> Option<String> {
        difference(self.run(), self.membership.clone())
    }

    /// Returns the difference from a run of the model with a deliberate bug.
    pub(crate) fn difference_with(&self, bug: DeliberateBug) -> Option<String> {
        let mut run = self.run();
        run.bug = Some(bug);
        difference(run, self.membership.clone())
    }

    /// Returns the states after one fault or edit.
    pub(crate) fn after(&self, which: Events) -> Vec<Self> {
        let mut model = self.model.clone();
        model.budget = BUDGET;
        let without_fault = ModelEvent::enabled(&model, &RealDecider);
        let mut events = ModelEvent::all(&model, &RealDecider);
        events.extend([2, 4, 5].map(ModelEvent::MembersEdited));
        events.retain(|event| {
            let is_edit = is_edit(event);
            let is_chosen = match which {
                Events::Faults => !is_edit,
                Events::Edits => is_edit,
                Events::All => true,
            };
            // A decision on a part of the facts has no effect before its writes.
            is_chosen
                && !without_fault.contains(event)
                && !matches!(event, ModelEvent::DecideWithout(..))
        });
        let states = events.iter().filter_map(|event| {
            let mut model = model.clone();
            event.apply(&mut model, &RealDecider).ok()?;
            let mut after = self.next(&format!("{event:?}"), model);
            after.events.push(event.clone());
            Some(after)
        });
        states.collect()
    }

    /// Returns the state after all timeouts.
    pub(crate) fn later(&self) -> Self {
        let mut model = self.model.clone();
        pass_time(&mut model);
        self.next("later", model)
    }

    fn run(&self) -> ModelRun {
        ModelRun::new(self.model.clone(), None)
    }
}

fn is_edit(event: &ModelEvent) -> bool {
    matches!(
        event,
        ModelEvent::MembersEdited(_)
            | ModelEvent::TemplateEdited(_)
            | ModelEvent::ResourceRecreated
            | ModelEvent::ResourceRecreatedOverOrphans
    )
}

/// Returns new clusters of this many members.
pub(crate) fn new_clusters(members: u8) -> Vec<State> {
    let mut states = Vec::new();
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        let new = || ClusterModel::new(members, storage, 2, FaultBudget::NONE);
        let variants = [
            ("plain", new()),
            ("tampering", new().with_tampering()),
            ("templates", new().with_template_edits()),
            ("volumes", new().with_volume_edits()),
            ("owned", new().with_owned_data()),
        ];
        states.extend(variants.map(|(name, model)| {
            let path = format!("{members} members, {storage:?}, {name}");
            State::new(path, model)
        }));
    }
    states
}

/// Returns converged clusters of this many members.
pub(crate) fn converged_clusters(members: u8) -> Vec<State> {
    let new = new_clusters(members).into_iter();
    new.map(|state| state.next("converged", run_to_quiescence(&state.model)))
        .collect()
}

/// Returns every state in which the operator decides on the way from a state to its end.
pub(crate) fn on_the_way(state: &State) -> Vec<State> {
    let mut run = state.run();
    let observed = observation(&run.facts().unwrap());
    run.finish(&observed).unwrap();
    let mut states: Vec<State> = Vec::new();
    for (at, model) in run.visited.into_iter().enumerate() {
        let before = states.last().unwrap_or(state);
        let next = before.next("", model);
        states.push(State {
            path: format!("{}, decision {at}", state.path),
            ..next
        });
    }
    states
}
