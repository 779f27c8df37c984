//! Objects that are created.

use evenkeel_runtime::EventSpec;

use super::{ActionContext, EtcdAction, member_display_name, normal, warning};
use crate::facts::StartMode;
use crate::identity::Identity;
use crate::names::Serial;
use crate::observe::ObservedCluster;
use crate::plan::EtcdCreate;

impl EtcdAction for EtcdCreate {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn describe(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::Identity(_) => "giving the cluster its identity".to_owned(),
            Self::Claim { serial, .. } => {
                format!("creating the volume of {}", context.member(*serial))
            }
            Self::Pod { serial, .. } => format!("creating the pod of {}", context.member(*serial)),
        }
    }

    fn reason(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::Identity(identity) if is_rebuilt(identity) => {
                "it was gone, and volumes and pods tell what it was".to_owned()
            }
            Self::Identity(_) => "the resource is new".to_owned(),
            Self::Claim { serial, .. } => {
                format!(
                    "{} is to join, and has no volume yet",
                    context.member(*serial)
                )
            }
            Self::Pod {
                serial,
                start_mode: StartMode::ExistingData,
                ..
            } => {
                format!(
                    "the pod of {} is gone, and its data is there",
                    context.member(*serial)
                )
            }
            Self::Pod { serial, .. } => format!("{} is to join", context.member(*serial)),
        }
    }

    fn event(&self, observed: &ObservedCluster) -> Option<EventSpec> {
        match self {
            Self::Identity(identity) if is_rebuilt(identity) => warning(
                "IdentityRebuilt",
                "the identity was gone; it was rebuilt from what is written on volumes and pods",
            ),
            Self::Identity(_) => None,
            Self::Claim { serial, .. } => normal(
                "ClaimCreated",
                format!(
                    "created the claim of {}",
                    member_display_name(observed, *serial)
                ),
            ),
            Self::Pod { serial, .. } => normal(
                "PodCreated",
                format!(
                    "created the pod of {}",
                    member_display_name(observed, *serial)
                ),
            ),
        }
    }

    /// Every later action depends on the first identity.
    fn is_prerequisite(&self) -> bool {
        matches!(self, Self::Identity(_))
    }

    fn is_bookkeeping(&self) -> bool {
        false
    }
}

/// Returns true if the identity was rebuilt from claims and pods: a new one has used the seed's
/// serial only.
fn is_rebuilt(identity: &Identity) -> bool {
    identity.next_serial > Serial(1)
}
