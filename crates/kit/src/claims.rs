//! PersistentVolumeClaims of members: building them, and reading sizes, classes, and the annotations that the operator
//! writes on them.

use evenkeel_api::{labels, quantity};
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::ClusterRef;
use crate::identity::{MemberRef, Uid, member_name};
use crate::objects::{BuildError, annotation, from_json, has_annotation};
use crate::ownership::{common_labels, owner_reference};

/// The parameters of a member's PVC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimParams<'a> {
    /// The member.
    pub member: MemberRef,
    /// The size of the volume, as a Kubernetes quantity.
    pub size: &'a str,
    /// The StorageClass; the default class of the Kubernetes cluster if `None`.
    pub class: Option<&'a str>,
    /// Whether the PVC is deleted with the resource.
    pub is_owned: bool,
}

/// Returns the PVC of a member. It has the member's name.
pub fn claim(
    cluster: ClusterRef<'_>,
    params: ClaimParams<'_>,
) -> Result<PersistentVolumeClaim, BuildError> {
    let member = params.member;
    let owners = if params.is_owned {
        vec![owner_reference(cluster)]
    } else {
        Vec::new()
    };
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": params.size } },
    });
    let mut annotations = member.annotations();
    if let Some(class) = params.class {
        spec["storageClassName"] = json!(class);
        annotations[labels::STORAGE_CLASS] = json!(class);
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": member_name(cluster.name, member.lineage, member.serial),
            "namespace": cluster.namespace,
            "labels": common_labels(cluster),
            "annotations": annotations,
            "ownerReferences": owners,
        },
        "spec": spec,
    });
    from_json("PersistentVolumeClaim", object)
}

/// Returns the name of the PersistentVolume that a PVC is bound to.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

/// Returns the value of the annotation that records, when the member joins, the PVC and the volume that it joined on.
pub fn joined_on(claim: Uid, volume: &str) -> String {
    format!("{claim}/{volume}")
}

/// Returns the PVC and the volume that the member joined on, as [`joined_on`] recorded them; `None` if it never joined. A
/// malformed annotation returns uids that match no PVC and no volume: the member has joined, and not on this volume.
pub fn read_joined_on(claim: &PersistentVolumeClaim) -> Option<(Uid, Uid)> {
    let text = annotation(&claim.metadata, labels::JOINED_VOLUME)?;
    let joined = text
        .split_once('/')
        .and_then(|(uid, volume)| Some((uid.parse().ok()?, Uid::of_name(volume))));
    Some(joined.unwrap_or((Uid(0), Uid(0))))
}

/// Returns the value of the annotation that records when the operator observed that the member was removed.
pub fn removed_at(claim: Uid, at: UnixTime) -> String {
    time_of_claim(claim, at)
}

/// Returns when the operator observed that the member was removed, as [`removed_at`] recorded it. A malformed annotation,
/// and an annotation that was copied from another PVC, count as absent.
pub fn read_removed_at(claim: &PersistentVolumeClaim) -> Option<UnixTime> {
    read_time_of_claim(claim, labels::REMOVED_AT)
}

/// Returns the value of the annotation that records until when a claim of a replaced cluster is kept.
pub fn replaced_until(claim: Uid, until: UnixTime) -> String {
    time_of_claim(claim, until)
}

/// Returns until when a claim of a replaced cluster is kept, as [`replaced_until`] recorded it; `None` if nothing was recorded.
/// With a malformed annotation, or one that was copied from another PVC, the claim is kept for ever.
pub fn read_replaced_until(claim: &PersistentVolumeClaim) -> Option<UnixTime> {
    annotation(&claim.metadata, labels::REPLACED_UNTIL)?;
    Some(read_time_of_claim(claim, labels::REPLACED_UNTIL).unwrap_or(UnixTime(i64::MAX)))
}

fn time_of_claim(claim: Uid, at: UnixTime) -> String {
    format!(
        "{claim}/{}",
        jiff::Timestamp::from_second(at.0).unwrap_or_default()
    )
}

fn read_time_of_claim(claim: &PersistentVolumeClaim, key: &str) -> Option<UnixTime> {
    let (uid, at) = annotation(&claim.metadata, key)?.split_once('/')?;
    let is_of_this_claim = claim.metadata.uid.as_deref() == Some(uid);
    at.parse::<jiff::Timestamp>()
        .ok()
        .filter(|_| is_of_this_claim)
        .map(|at| UnixTime(at.as_second()))
}

/// Returns the requested size in bytes; 0 if it cannot be read.
pub fn requested_size(claim: &PersistentVolumeClaim) -> u64 {
    let requests = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests
        .and_then(|requests| quantity::bytes(requests.get("storage")?).ok())
        .unwrap_or_default()
}

/// Returns the size in bytes that Kubernetes granted; 0 if it granted none yet. A resize that only waits for a restart of
/// the pod (`FileSystemResizePending`) counts as granted.
pub fn granted_size(claim: &PersistentVolumeClaim) -> u64 {
    let status = claim.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    if conditions
        .any(|condition| condition.type_ == "FileSystemResizePending" && condition.status == "True")
    {
        return requested_size(claim);
    }
    status
        .and_then(|status| status.capacity.as_ref()?.get("storage"))
        .and_then(|capacity| quantity::bytes(capacity).ok())
        .unwrap_or_default()
}

/// Returns true if Kubernetes has not granted the requested size yet. `desired_size` limits the
/// comparison: a PVC cannot request less again, so a larger request that the user reverted may
/// never be granted, and no action waits for it.
pub fn is_resize_pending(claim: &PersistentVolumeClaim, desired_size: u64) -> bool {
    let granted = granted_size(claim);
    granted > 0 && granted < requested_size(claim).min(desired_size)
}

/// Returns true if a PVC has another StorageClass than the desired one. Three cases count as equal: the spec names no
/// class; the PVC is bound and names no class; the PVC was created with the desired class and something else (such as a
/// webhook) replaced it, because it would do so with the PVC's successor, too.
pub fn has_wrong_class(claim: &PersistentVolumeClaim, desired_class: Option<&str>) -> bool {
    let Some(desired_class) = desired_class else {
        return false;
    };
    if annotation(&claim.metadata, labels::STORAGE_CLASS) == Some(desired_class) {
        return false;
    }
    let spec = claim.spec.as_ref();
    match spec.and_then(|spec| spec.storage_class_name.as_deref()) {
        Some(class) => class != desired_class,
        None => spec.is_none_or(|spec| spec.volume_name.is_none()),
    }
}

/// Returns true if Kubernetes reports that the PVC's volume no longer exists.
pub fn is_lost(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Lost")
}

/// Returns the granted size of the largest volume in bytes, without the PVCs of removed members.
pub fn largest_volume<'c>(claims: impl Iterator<Item = &'c PersistentVolumeClaim>) -> u64 {
    claims
        .filter(|claim| !has_annotation(&claim.metadata, labels::REMOVED_AT))
        .map(granted_size)
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::{CLUSTER, change, member};

    const UID: Uid = Uid(0x2_0000);

    fn built(class: Option<&str>) -> PersistentVolumeClaim {
        let params = ClaimParams {
            member: member(1),
            size: "2Gi",
            class,
            is_owned: false,
        };
        let mut claim = claim(CLUSTER, params).unwrap();
        change(
            &mut claim,
            json!({ "metadata": { "uid": UID.to_string() } }),
        );
        claim
    }

    fn with(change_to: Value) -> PersistentVolumeClaim {
        let mut claim = built(Some("fast"));
        change(&mut claim, change_to);
        claim
    }

    #[test]
    fn the_joined_volume_is_read_as_it_was_recorded() {
        let annotated = |value: Value| {
            with(json!({ "metadata": { "annotations": { labels::JOINED_VOLUME: value } } }))
        };
        assert_eq!(read_joined_on(&built(None)), None);
        assert_eq!(
            read_joined_on(&annotated(json!(joined_on(UID, "pv-1")))),
            Some((UID, Uid::of_name("pv-1")))
        );
        assert_eq!(
            read_joined_on(&annotated(json!("malformed"))),
            Some((Uid(0), Uid(0)))
        );
    }

    #[test]
    fn the_removal_time_counts_only_on_the_claim_it_was_recorded_on() {
        let at = UnixTime(1_800_000_000);
        let annotated = |value: String| {
            with(json!({ "metadata": { "annotations": { labels::REMOVED_AT: value } } }))
        };
        assert_eq!(read_removed_at(&annotated(removed_at(UID, at))), Some(at));
        assert_eq!(read_removed_at(&annotated(removed_at(Uid(9), at))), None);
        assert_eq!(read_removed_at(&annotated("malformed".to_owned())), None);
    }

    #[test]
    fn a_resize_is_pending_until_it_is_granted_or_reverted() {
        let granted = |size: &str, conditions: Value| {
            with(json!({ "status": { "capacity": { "storage": size }, "conditions": conditions } }))
        };
        let two_gib = 2 << 30;
        assert!(is_resize_pending(&granted("1Gi", json!([])), two_gib));
        assert!(!is_resize_pending(&granted("2Gi", json!([])), two_gib));
        assert!(
            !is_resize_pending(&granted("1Gi", json!([])), 1 << 30),
            "the user reverted the larger size"
        );
        assert!(!is_resize_pending(&built(None), two_gib), "not bound yet");
        let waits = json!([{ "type": "FileSystemResizePending", "status": "True" }]);
        assert!(!is_resize_pending(&granted("1Gi", waits), two_gib));
    }

    #[test]
    fn a_class_is_wrong_only_if_the_claim_was_created_with_another() {
        assert!(!has_wrong_class(&built(Some("fast")), None));
        assert!(!has_wrong_class(&built(Some("fast")), Some("fast")));
        assert!(has_wrong_class(&built(Some("fast")), Some("slow")));
        let replaced = with(json!({ "spec": { "storageClassName": "replaced" } }));
        assert!(
            !has_wrong_class(&replaced, Some("fast")),
            "a webhook replaced the class"
        );
        assert!(has_wrong_class(&built(None), Some("fast")), "unbound");
        let mut bound = built(None);
        change(&mut bound, json!({ "spec": { "volumeName": "pv-1" } }));
        assert!(!has_wrong_class(&bound, Some("fast")));
    }

    #[test]
    fn the_largest_volume_ignores_removed_members() {
        let sized = |size: &str| with(json!({ "status": { "capacity": { "storage": size } } }));
        let mut removed = sized("8Gi");
        change(
            &mut removed,
            json!({ "metadata": { "annotations": { labels::REMOVED_AT: "x" } } }),
        );
        let claims = [sized("1Gi"), sized("2Gi"), removed];
        assert_eq!(largest_volume(claims.iter()), 2 << 30);
        assert_eq!(largest_volume([].iter()), 0);
    }
}
