//! Objects that are kept as described.

use evenkeel_runtime::EventSpec;

use super::{ActionContext, EtcdAction};
use crate::facts::{Drift, OwnedObject};
use crate::observe::ObservedCluster;
use crate::plan::EtcdApply;
use crate::view::ClusterView;

impl EtcdAction for EtcdApply {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn describe(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::Object(object) => {
                let verb = if is_missing(context, *object) {
                    "creating"
                } else {
                    "updating"
                };
                format!("{verb} {}", context.object(*object))
            }
            Self::PodDisruptionBudget { min, .. } => {
                format!("setting PodDisruptionBudget minAvailable to {min}")
            }
        }
    }

    fn reason(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::Object(object) => {
                let problem = if is_missing(context, *object) {
                    "is missing or unusable"
                } else {
                    "differs from its desired state"
                };
                format!("{} {problem}", context.object(*object))
            }
            Self::PodDisruptionBudget { min, .. } => {
                let voters = context.view.map_or(0, ClusterView::votes);
                format!("evictions must leave at least {min} voters, and the cluster has {voters}")
            }
        }
    }

    fn event(&self, _: &ObservedCluster) -> Option<EventSpec> {
        None
    }

    /// A membership change depends on the PodDisruptionBudget, which is raised before it.
    fn is_prerequisite(&self) -> bool {
        matches!(self, Self::PodDisruptionBudget { .. })
    }

    fn is_bookkeeping(&self) -> bool {
        false
    }
}

fn is_missing(context: &ActionContext<'_>, object: OwnedObject) -> bool {
    context.facts.drift.get(&object) == Some(&Drift::Missing)
}
