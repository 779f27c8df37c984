//! Facts about the agent's pod of a resource. Its name is the lock: Kubernetes creates a pod of a name once.

use std::time::Duration;

use evenkeel_api::backup::labels;
use evenkeel_kit::objects::annotation;
use evenkeel_kit::pods;
use evenkeel_runtime::{Error, ObjectWriter, Outcome, ResourceKey, UnixTime};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::agent_pod::CONTAINER;
use crate::outcome::{AgentState, state};

/// The time after the deadline of a pod from which on its processes are known to have ended.
const EXPIRY_GRACE: Duration = Duration::from_secs(60);

/// The pod with the name of an agent's pod.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one value per observation"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodFacts {
    /// There is no such pod.
    #[default]
    Absent,
    /// The pod belongs to another resource.
    Foreign {
        /// The Backup that the pod belongs to, if it is a pod of the agent.
        backup: Option<String>,
        /// Whether the pod can be removed by force, see [`OwnPod::is_expired`].
        is_expired: bool,
    },
    /// The pod belongs to the resource.
    Own(OwnPod),
}

/// A pod of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnPod {
    /// The number of the attempt, for a Backup.
    pub attempt: u32,
    /// The member that the agent reads, for a Backup.
    pub member: String,
    /// The hash of the inputs that the pod checks, for a BackupStore.
    pub inputs: String,
    /// The state.
    pub state: AgentState,
    /// When the pod was created.
    pub created_at: UnixTime,
    /// Whether the pod is being deleted.
    pub is_terminating: bool,
    /// Whether the pod is being deleted and its deadline has passed. Its node may be lost, so that Kubernetes cannot confirm
    /// the end of its container; but the agent ends itself at its deadline, and the pod can be removed by force.
    pub is_expired: bool,
}

impl PodFacts {
    /// Returns the facts about a pod. `owner` is the uid of the resource.
    pub(crate) fn of(pod: Option<&Pod>, owner: Option<&str>, now: UnixTime) -> Self {
        let Some(pod) = pod else {
            return Self::Absent;
        };
        let mut owners = pod.owner_references().iter();
        let is_own = owner.is_some() && owners.any(|it| Some(it.uid.as_str()) == owner);
        if !is_own {
            let is_agent = pod.labels().contains_key(labels::TASK);
            return Self::Foreign {
                backup: pod.labels().get(labels::BACKUP).cloned(),
                is_expired: is_agent && is_expired(pod, now),
            };
        }
        let text = |key| annotation(&pod.metadata, key).unwrap_or_default();
        Self::Own(OwnPod {
            attempt: text(labels::ATTEMPT).parse().unwrap_or(1),
            member: text(labels::MEMBER).to_owned(),
            inputs: text(labels::INPUTS).to_owned(),
            state: state(pod, CONTAINER, now),
            created_at: pods::created_at(pod, now),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            is_expired: is_expired(pod, now),
        })
    }
}

fn is_expired(pod: &Pod, now: UnixTime) -> bool {
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    let limit = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.active_deadline_seconds);
    let (Some(started), Some(limit)) = (started, limit) else {
        return false;
    };
    let end = UnixTime(started.0.as_second().saturating_add(limit)).after(EXPIRY_GRACE);
    pod.metadata.deletion_timestamp.is_some() && now > end
}

/// Reads a pod by its name, whatever its labels are. A list, because the operator has no permission to get pods.
pub(crate) async fn find_pod(
    client: &Client,
    key: &ResourceKey,
    name: &str,
) -> Result<Option<Pod>, Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let listed = api.list(&params).await;
    let listed = listed.map_err(Error::kubernetes(format!("find Pod {name}")))?;
    Ok(listed.items.into_iter().next())
}

/// Deletes an observed pod. By force, Kubernetes does not wait for the kubelet.
pub(crate) async fn delete_pod(
    writer: &ObjectWriter<'_>,
    pod: Option<&Pod>,
    by_force: bool,
) -> Result<Outcome, Error> {
    let Some(pod) = pod.filter(|_| by_force) else {
        return writer.delete_if_observed(pod).await;
    };
    let api: Api<Pod> = Api::namespaced(writer.client.clone(), &writer.key.namespace);
    let params = DeleteParams::default()
        .grace_period(0)
        .preconditions(Preconditions {
            uid: pod.uid(),
            resource_version: pod.resource_version(),
        });
    match api.delete(&pod.name_any(), &params).await {
        Ok(_) => Ok(Outcome::Done),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Conflict),
        Err(error) => Err(Error::kubernetes(format!(
            "delete Pod {} by force",
            pod.name_any()
        ))(error)),
    }
}
