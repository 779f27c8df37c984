//! Objects that are created.

use evenkeel_runtime::EventSpec;

use super::{ActionContext, EtcdAction, member_display_name, normal, warning};
use crate::facts::OwnedObject;
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
            Self::Identity(_) => format!("creating {}", context.object(OwnedObject::Identity)),
            Self::Claim { serial, .. } => {
                format!("creating PersistentVolumeClaim {}", context.member(*serial))
            }
            Self::Pod { serial, .. } => format!("creating Pod {}", context.member(*serial)),
            Self::RestorePod {
                serial, restore, ..
            } => format!(
                "creating Pod {}, which restores Backup {}",
                context.restore_pod(*serial),
                restore.backup
            ),
        }
    }

    fn reason(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::Identity(identity) if rebuild_pod(identity) => {
                format!(
                    "{} is missing, and PersistentVolumeClaims or pods of the cluster exist",
                    context.object(OwnedObject::Identity)
                )
            }
            Self::Identity(_) => "the EtcdCluster is new".to_owned(),
            Self::Claim { serial, .. } => {
                format!(
                    "new member {} has no PersistentVolumeClaim",
                    context.member(*serial)
                )
            }
            Self::Pod { serial, .. } if context.has_joined(*serial) => {
                format!(
                    "PersistentVolumeClaim {} exists and the pod does not",
                    context.member(*serial)
                )
            }
            Self::Pod { serial, .. } => {
                format!("new member {} has no pod", context.member(*serial))
            }
            Self::RestorePod {
                serial, restore, ..
            } => format!(
                "{} with the data of Backup {}, and the volume of first member {} is empty",
                if restore.is_in_place() {
                    "a Restore replaces the cluster by one"
                } else {
                    "the cluster begins"
                },
                restore.backup,
                context.member(*serial)
            ),
        }
    }

    fn event(&self, observed: &ObservedCluster) -> Option<EventSpec> {
        match self {
            Self::Identity(identity) if rebuild_pod(identity) => warning(
                "IdentityRebuilt",
                format!(
                    "Rebuilt ConfigMap {} from the annotations of PersistentVolumeClaims and pods: it was missing",
                    observed.desired.names().identity()
                ),
            ),
            Self::Identity(_) => None,
            Self::Claim { serial, .. } => normal(
                "ClaimCreated",
                format!(
                    "Created PersistentVolumeClaim {}",
                    member_display_name(observed, *serial)
                ),
            ),
            Self::Pod { serial, .. } => normal(
                "PodCreated",
                format!("Created Pod {}", member_display_name(observed, *serial)),
            ),
            Self::RestorePod {
                serial, restore, ..
            } => normal(
                "RestoreStarted",
                format!(
                    "Restoring Backup {} onto PersistentVolumeClaim {}",
                    restore.backup,
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
fn rebuild_pod(identity: &Identity) -> bool {
    identity.next_serial > Serial(1)
}
