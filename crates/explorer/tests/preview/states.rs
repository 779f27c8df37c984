//! The states from which previews are compared.

use evenkeel_etcd::facts::{Membership, StorageKind};
use evenkeel_explorer::RealDecider;
use evenkeel_explorer::apply::pass_time;
use evenkeel_explorer::event::ModelEvent;
use evenkeel_explorer::model::{ClusterModel, FaultBudget};
use evenkeel_explorer::observe::{Visibility, observe};
use evenkeel_explorer::search::run_to_quiescence;

use crate::comparison::difference;
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
    pub(crate) path: String,
    pub(crate) model: ClusterModel,
    /// The last member list that etcd reported.
    pub(crate) membership: Option<Membership>,
}

/// The events that lead to other states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Events {
    Faults,
    Edits,
    All,
}

impl State {
    fn new(path: String, model: ClusterModel, membership: Option<Membership>) -> Self {
        let facts = observe(&model, Visibility::Full);
        Self {
            path,
            model,
            membership: facts.membership.present().cloned().or(membership),
        }
    }

    /// Returns the difference between the preview from this state and the run of the model.
    pub(crate) fn difference(&self) -> Option<String> {
        difference(self.run(), self.membership.clone())
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
            let path = format!("{}, {event:?}", self.path);
            Some(Self::new(path, model, self.membership.clone()))
        });
        states.collect()
    }

    /// Returns the state after all timeouts.
    pub(crate) fn later(&self) -> Self {
        let mut later = self.clone();
        pass_time(&mut later.model);
        later.path.push_str(", later");
        later
    }

    pub(crate) fn run(&self) -> ModelRun {
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

/// Returns new clusters of so many members.
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
            State::new(path, model, None)
        }));
    }
    states
}

/// Returns converged clusters of so many members.
pub(crate) fn converged_clusters(members: u8) -> Vec<State> {
    let new = new_clusters(members).into_iter();
    new.map(|state| {
        let path = format!("{}, converged", state.path);
        State::new(path, run_to_quiescence(&state.model), None)
    })
    .collect()
}

/// Returns every state in which the operator decides on the way from a state to its end.
pub(crate) fn on_the_way(state: &State) -> Vec<State> {
    let mut run = state.run();
    let observed = crate::comparison::observation(&run.facts().unwrap());
    run.finish(&observed).unwrap();
    let mut membership = state.membership.clone();
    let visited = run.visited.into_iter().enumerate();
    visited
        .map(|(at, model)| {
            let path = format!("{}, decision {at}", state.path);
            let state = State::new(path, model, membership.take());
            membership.clone_from(&state.membership);
            state
        })
        .collect()
}
