//! The pod that fills the volume of a seed: the agent downloads the backup, `etcdutl` of the version that will run writes a
//! data directory under a temporary name, and the agent renames it to the directory that the seed reads.

use evenkeel_api::{labels, quantity};
use evenkeel_backup::agent_pod::StoreAccess;
use evenkeel_backup::restore::{BACKUP_FILE, RestorePod, TEMPORARY_PATH};
use evenkeel_kit::MemberRef;
use evenkeel_kit::objects::annotation;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::pod::{DATA_DIRECTORY, placement};
use super::{BuildError, common_labels, owner_reference};
use crate::desired::DesiredCluster;
use crate::identity::{RestoreOrigin, Uid};
use crate::names::{ENGINE, Epoch, Lineage, Serial, cluster_token, member_name, peer_url};

/// How many revisions a restored cluster skips: clients that have seen later revisions than the backup contains would
/// otherwise miss events.
const REVISION_BUMP: u64 = 1_000_000_000;
/// The free space that a restore needs, in percent of the size of the backup: the download, the restored copy, and the log.
const SPACE_PERCENT: u32 = 230;
/// The memory that `etcdutl` may use besides that of a member: it maps the whole file.
const EXTRA_MEMORY_BYTES: u64 = 1 << 30;
/// How long each step of the agent may take, in seconds.
const DEADLINE_SECONDS: u64 = 6 * 3600;

/// The parameters of a restore pod.
#[derive(Clone, Debug)]
pub struct RestorePodParams<'a> {
    /// The seed.
    pub member: MemberRef,
    /// The uid of the seed's PVC.
    pub claim: Uid,
    /// The restore.
    pub origin: &'a RestoreOrigin,
    /// The store of the backup.
    pub store: &'a StoreAccess,
    /// The place of the backup in the store.
    pub location: &'a str,
    /// The image of the agent.
    pub agent_image: &'a str,
}

/// Returns the pod that fills the volume of a seed. It is held.
pub fn restore_pod(
    desired: &DesiredCluster,
    params: &RestorePodParams<'_>,
) -> Result<Pod, BuildError> {
    let member = params.member;
    let claim = member_name(&desired.name, member.lineage, member.serial);
    let mut labels = common_labels(desired);
    labels[labels::RESTORE] = json!(params.origin.id);
    let annotations = json!({
        labels::RESTORE_MEMBER: member_annotation(member),
        labels::RESTORE_CLAIM: params.claim,
        labels::POD_TEMPLATE_HASH: desired.inputs,
    });
    let restored = RestoredMember {
        name: &claim,
        peer_url: &peer_url(&desired.name, &desired.namespace, &claim),
        token: &cluster_token(&desired.name, member.lineage, member.epoch),
    };
    let pod = RestorePod {
        metadata: json!({
            "name": format!("{claim}-restore"),
            "namespace": desired.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(desired)],
        }),
        placement: placement(desired),
        agent_image: params.agent_image,
        store: params.store,
        location: params.location,
        engine: ENGINE.engine,
        version: desired.version.to_string(),
        claim: &claim,
        data_directory: DATA_DIRECTORY,
        space_percent: SPACE_PERCENT,
        restore: json!({
            "image": desired.image,
            "command": ["/usr/local/bin/etcdutl"],
            "args": restored.etcdutl_args(BACKUP_FILE, TEMPORARY_PATH),
            "resources": resources(desired),
        }),
        deadline_seconds: DEADLINE_SECONDS,
    };
    pod.build()
}

/// The member that a data directory is written for. It is the only one of its cluster, with the token of the epoch: its
/// cluster ID and member ID differ from those of the cluster that the backup is from.
#[derive(Clone, Copy, Debug)]
pub struct RestoredMember<'a> {
    /// The name of the member.
    pub name: &'a str,
    /// The peer URL of the member.
    pub peer_url: &'a str,
    /// The cluster token.
    pub token: &'a str,
}

impl RestoredMember<'_> {
    /// Returns the arguments of `etcdutl`, which are the same in 3.5, 3.6 and 3.7 (tried).
    pub fn etcdutl_args(&self, backup_file: &str, data_dir: &str) -> Vec<String> {
        let Self {
            name,
            peer_url,
            token,
        } = self;
        vec![
            "snapshot".to_owned(),
            "restore".to_owned(),
            backup_file.to_owned(),
            format!("--data-dir={data_dir}"),
            format!("--name={name}"),
            format!("--initial-cluster={name}={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster-token={token}"),
            format!("--bump-revision={REVISION_BUMP}"),
            "--mark-compacted".to_owned(),
        ]
    }
}

/// Returns the resources of a member, with more memory.
fn resources(desired: &DesiredCluster) -> Value {
    let mut resources = desired.resources.clone();
    let limit = resources["limits"]["memory"].as_str().map(str::to_owned);
    let bytes = limit.and_then(|limit| quantity::bytes(&Quantity(limit)).ok());
    if let Some(bytes) = bytes {
        let limit = quantity::binary(bytes.saturating_add(EXTRA_MEMORY_BYTES));
        resources["limits"]["memory"] = json!(limit);
    }
    resources
}

/// Returns the value of the annotation that names the member whose volume a pod fills. Restore pods do not have the
/// annotations of members: they are none.
fn member_annotation(member: MemberRef) -> String {
    let MemberRef {
        lineage,
        epoch,
        serial,
    } = member;
    format!("{:08x}/{}/{}", lineage.0, epoch.0, serial.0)
}

/// Returns the member whose volume a pod fills; `None` if the annotation is missing or malformed.
pub fn member_of(metadata: &ObjectMeta) -> Option<MemberRef> {
    let text = annotation(metadata, labels::RESTORE_MEMBER)?;
    let mut parts = text.split('/');
    let lineage = u32::from_str_radix(parts.next()?, 16).ok()?;
    let epoch = parts.next()?.parse().ok()?;
    let serial = parts.next()?.parse().ok()?;
    Some(MemberRef {
        lineage: Lineage(lineage),
        epoch: Epoch(epoch),
        serial: Serial(serial),
    })
}
