//! Objects that are kept as described.

use evenkeel_runtime::EventSpec;

use super::{ActionContext, EtcdAction};
use crate::facts::Drift;
use crate::observe::ObservedCluster;
use crate::plan::EtcdApply;
use crate::view::ClusterView;

impl EtcdAction for EtcdApply {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn describe(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::Object(object) => format!("bringing {} up to date", context.object(*object)),
            Self::PodDisruptionBudget { min, .. } => {
                format!("having evictions leave {min} with a vote")
            }
        }
    }

    fn reason(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::Object(object) => {
                let drift = context.view.and_then(|view| view.facts.drift.get(object));
                let problem = if drift == Some(&Drift::Missing) {
                    "is missing"
                } else {
                    "is not as it should be"
                };
                format!("{} {problem}", context.object(*object))
            }
            Self::PodDisruptionBudget { min, .. } => {
                let voters = context.view.map_or(0, ClusterView::votes);
                format!("of {voters} with a vote, evictions must leave {min}")
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
