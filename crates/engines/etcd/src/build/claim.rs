//! A member's claim.

use evenkeel_api::{labels, quantity};
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::{BuildError, MemberRef, common_labels, from_json, owner_reference};
use crate::desired::{DesiredCluster, DesiredStorage};
use crate::identity::Uid;
use crate::names::member_name;

/// The claim of a member. It is named like the member: "an instance is a reflection of its volume".
pub fn claim(
    desired: &DesiredCluster,
    member: MemberRef,
) -> Result<Option<PersistentVolumeClaim>, BuildError> {
    let DesiredStorage::Persistent { size, class, owned } = &desired.data else {
        return Ok(None);
    };
    let name = member_name(&desired.name, member.lineage, member.serial);
    let owners = if *owned {
        vec![owner_reference(desired)]
    } else {
        Vec::new()
    };
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": size } },
    });
    let mut annotations = member.annotations();
    if let Some(class) = class {
        spec["storageClassName"] = json!(class);
        annotations[labels::STORAGE_CLASS] = json!(class);
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": desired.namespace,
            "labels": common_labels(desired),
            "annotations": annotations,
            "ownerReferences": owners,
        },
        "spec": spec,
    });
    from_json("a claim", object).map(Some)
}

/// What is written on a claim when its member joins: which claim this is, and which volume.
pub fn joined_on(claim: Uid, volume: &str) -> String {
    format!("{claim}/{volume}")
}

/// What was written on a claim when its member joined.
pub fn read_joined_on(claim: &PersistentVolumeClaim) -> Option<(Uid, Uid)> {
    let text = claim
        .metadata
        .annotations
        .as_ref()?
        .get(labels::JOINED_VOLUME)?;
    match text
        .split_once('/')
        .and_then(|(uid, volume)| Some((uid.parse().ok()?, Uid::of_name(volume))))
    {
        Some(joined) => Some(joined),
        // Something is written there that nobody can read: it has joined, and not on this.
        None => Some((Uid(0), Uid(0))),
    }
}

/// How large a volume a claim asks for, in bytes.
pub fn requested_size(claim: &PersistentVolumeClaim) -> u64 {
    let requests = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests
        .and_then(|requests| quantity::bytes(requests.get("storage")?).ok())
        .unwrap_or_default()
}

/// How large a volume a claim has been given, in bytes. What waits for its pod to be started anew is as good as given.
pub fn granted_size(claim: &PersistentVolumeClaim) -> u64 {
    let status = claim.status.as_ref();
    let waits = status
        .and_then(|status| status.conditions.as_ref())
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|one| one.type_ == "FileSystemResizePending" && one.status == "True")
        });
    let capacity = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    let capacity = capacity
        .and_then(|capacity| quantity::bytes(capacity).ok())
        .unwrap_or_default();
    if waits {
        requested_size(claim)
    } else {
        capacity
    }
}

/// What is written on a claim when its member was found to be removed.
pub fn removed_at(claim: Uid, at: UnixTime) -> String {
    format!(
        "{claim}/{}",
        jiff::Timestamp::from_second(at.0).unwrap_or_default()
    )
}

/// When a claim's member was found to be removed. What cannot be read, or is of another claim, says nothing.
pub fn read_removed_at(claim: &PersistentVolumeClaim) -> Option<UnixTime> {
    let text = claim
        .metadata
        .annotations
        .as_ref()?
        .get(labels::REMOVED_AT)?;
    let (uid, at) = text.split_once('/')?;
    let own = claim.metadata.uid.as_ref().is_some_and(|own| own == uid);
    at.parse::<jiff::Timestamp>()
        .ok()
        .filter(|_| own)
        .map(|at| UnixTime(at.as_second()))
}
