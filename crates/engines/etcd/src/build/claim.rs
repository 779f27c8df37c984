//! The PersistentVolumeClaim of a member.

use evenkeel_kit::claims::{self, ClaimParams};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{BuildError, MemberRef};
use crate::desired::{DesiredCluster, DesiredStorage};

/// Returns the PVC of a member; `None` if the storage is ephemeral. `is_owned` says whether it is deleted with the resource.
pub fn claim(
    desired: &DesiredCluster,
    member: MemberRef,
    is_owned: bool,
) -> Result<Option<PersistentVolumeClaim>, BuildError> {
    let DesiredStorage::Persistent { size, class, .. } = &desired.data else {
        return Ok(None);
    };
    let params = ClaimParams {
        member,
        size,
        class: class.as_deref(),
        is_owned,
    };
    claims::claim(desired.cluster_ref(), params).map(Some)
}
