//! Reads the state of a cluster at this moment: the answers of its members, and its pods, nodes, PodDisruptionBudget and
//! events. Each part is optional: the user may not have the permission, and the report then says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use evenkeel_api::{Backup, BackupSchedule, EtcdCluster, labels};
use evenkeel_etcd::names::ObjectNames;
use evenkeel_etcd::view::quorum;
use evenkeel_kit::nodes::NodeState;
use evenkeel_kit::pods;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::backup::objects::{self, BackupObjects, missing_kind};
use crate::error::CliError;
use crate::member_metrics::{self, LiveAnswer, LiveHealth, QUERY_TIMEOUT};

/// The number of events that are shown.
const MAX_EVENTS: usize = 3;

/// How often members without a leader are queried again, and the time between. An election takes about two seconds, and
/// clients retry meanwhile.
const ELECTION_RETRIES: usize = 3;
const ELECTION_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The state of a cluster at this moment.
#[derive(Debug)]
pub(crate) struct LiveView {
    /// The answers of the members, by name.
    pub(crate) answers: BTreeMap<String, LiveAnswer>,
    /// The pods of the members, by name.
    pub(crate) pods: ReadResult<BTreeMap<String, Pod>>,
    /// The nodes of the pods, by name; `None` for a node that does not exist. `None` if the user may not read nodes.
    pub(crate) nodes: Option<BTreeMap<String, Option<NodeState>>>,
    /// The number of PersistentVolumeClaims of members, without those of removed members.
    pub(crate) volume_count: ReadResult<usize>,
    /// The number of pods that may be evicted now. `None` without a PodDisruptionBudget.
    pub(crate) disruptions_allowed: ReadResult<Option<i32>>,
    /// The last events of the cluster, the oldest first.
    pub(crate) events: ReadResult<Vec<LiveEvent>>,
    /// The backups and schedules of the namespace.
    pub(crate) backups: ReadResult<BackupObjects>,
}

/// The result of a read that may fail without failing the command.
pub(crate) type ReadResult<T> = Result<T, ReadError>;

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The user needs this permission, such as `list on pods in namespace shop`.
    Forbidden(String),
    /// The request failed with this error.
    Failed(String),
    /// The data was not requested.
    NotRequested,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(permission) => write!(f, "needs {permission}"),
            Self::Failed(error) => f.write_str(error),
            Self::NotRequested => f.write_str("not requested"),
        }
    }
}

/// An event of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveEvent {
    pub(crate) time: Timestamp,
    pub(crate) is_warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Which data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveScope {
    /// The members and their pods.
    Members,
    /// Also nodes, the PodDisruptionBudget, events and backups.
    Everything,
}

impl LiveView {
    /// Reads the state of a cluster.
    pub(crate) async fn query(client: &Client, cluster: &EtcdCluster, scope: LiveScope) -> Self {
        let namespace = cluster.namespace().unwrap_or_default();
        let reader = Reader {
            client,
            cluster,
            namespace: &namespace,
        };
        match scope {
            LiveScope::Members => {
                let (pods, answers) = reader.members().await;
                Self {
                    answers,
                    pods,
                    nodes: None,
                    volume_count: Err(ReadError::NotRequested),
                    disruptions_allowed: Err(ReadError::NotRequested),
                    events: Err(ReadError::NotRequested),
                    backups: Err(ReadError::NotRequested),
                }
            }
            LiveScope::Everything => {
                let ((pods, answers, nodes), volume_count, disruptions_allowed, events, backups) = futures::join!(
                    reader.members_and_nodes(),
                    reader.volume_count(),
                    reader.disruptions_allowed(),
                    reader.events(),
                    reader.backups(),
                );
                Self {
                    answers,
                    pods,
                    nodes,
                    volume_count,
                    disruptions_allowed,
                    events,
                    backups,
                }
            }
        }
    }

    /// Returns the answer of a member; `None` if it was not queried.
    pub(crate) fn answer(&self, member: &str) -> Option<&LiveAnswer> {
        self.answers.get(member)
    }

    /// Returns the pod of a member. `None` if it does not exist or pods are unknown.
    pub(crate) fn pod(&self, member: &str) -> Option<&Pod> {
        self.pods.as_ref().ok()?.get(member)
    }
}

type PodsAndAnswers = (
    ReadResult<BTreeMap<String, Pod>>,
    BTreeMap<String, LiveAnswer>,
);

struct Reader<'r> {
    client: &'r Client,
    cluster: &'r EtcdCluster,
    namespace: &'r str,
}

impl Reader<'_> {
    async fn members(&self) -> PodsAndAnswers {
        let pods = self.pods().await;
        let answers = self.answers(&pods).await;
        (pods, answers)
    }

    async fn members_and_nodes(
        &self,
    ) -> (
        ReadResult<BTreeMap<String, Pod>>,
        BTreeMap<String, LiveAnswer>,
        Option<BTreeMap<String, Option<NodeState>>>,
    ) {
        let pods = self.pods().await;
        let (answers, nodes) = futures::join!(self.answers(&pods), self.nodes(&pods));
        (pods, answers, nodes)
    }

    async fn pods(&self) -> ReadResult<BTreeMap<String, Pod>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let of_cluster = ListParams::default().labels(&labels::selector(&self.cluster.name_any()));
        let pods = self.read("list on pods", api.list(&of_cluster)).await?;
        let pods = pods.items.into_iter().map(|pod| (pod.name_any(), pod));
        Ok(pods.collect())
    }

    /// Queries the members of the status and those that only have a pod yet.
    async fn answers(
        &self,
        pods: &ReadResult<BTreeMap<String, Pod>>,
    ) -> BTreeMap<String, LiveAnswer> {
        let status = self.cluster.status.iter();
        let listed =
            status.flat_map(|status| status.member_list.iter().map(|one| one.name.clone()));
        let with_pod = pods.iter().flat_map(|pods| pods.keys().cloned());
        let names: BTreeSet<String> = listed.chain(with_pod).collect();
        if let Err(ReadError::Failed(error)) = pods {
            // Without the API server, the proxy would report every member as down.
            return names
                .into_iter()
                .map(|name| (name, LiveAnswer::unknown(error)))
                .collect();
        }
        let mut answers = self.query_members(names).await;
        for _ in 0..ELECTION_RETRIES {
            let waiting = members_in_election(&answers);
            if waiting.is_empty() {
                break;
            }
            tokio::time::sleep(ELECTION_RETRY_INTERVAL).await;
            answers.extend(self.query_members(waiting).await);
        }
        answers
    }

    async fn query_members(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> BTreeMap<String, LiveAnswer> {
        let queries = names.into_iter().map(|name| async move {
            let answer = member_metrics::query(self.client, self.namespace, &name).await;
            (name, answer)
        });
        join_all(queries).await.into_iter().collect()
    }

    async fn nodes(
        &self,
        pods: &ReadResult<BTreeMap<String, Pod>>,
    ) -> Option<BTreeMap<String, Option<NodeState>>> {
        let pods = pods.as_ref().ok()?.values();
        let names: BTreeSet<_> = pods.filter_map(pods::node).collect();
        let api: Api<Node> = Api::all(self.client.clone());
        let reads = names.into_iter().map(|name| {
            let api = &api;
            async move {
                let node = self.read("get on nodes", api.get_opt(name)).await.ok()?;
                Some((name.to_owned(), node.as_ref().map(NodeState::of)))
            }
        });
        join_all(reads).await.into_iter().collect()
    }

    async fn volume_count(&self) -> ReadResult<usize> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), self.namespace);
        let of_cluster = ListParams::default().labels(&labels::selector(&self.cluster.name_any()));
        let claims = api.list_metadata(&of_cluster);
        let claims = self.read("list on persistentvolumeclaims", claims).await?;
        let is_removed = |claim: &&PartialObjectMeta<PersistentVolumeClaim>| {
            claim.annotations().contains_key(labels::REMOVED_AT)
        };
        let removed = claims.items.iter().filter(is_removed).count();
        Ok(claims.items.len() - removed)
    }

    async fn disruptions_allowed(&self) -> ReadResult<Option<i32>> {
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), self.namespace);
        let name = ObjectNames(&self.cluster.name_any()).pod_disruption_budget();
        let budget = self
            .read("get on poddisruptionbudgets", api.get_opt(&name))
            .await?;
        Ok(budget.and_then(|budget| Some(budget.status?.disruptions_allowed)))
    }

    async fn events(&self) -> ReadResult<Vec<LiveEvent>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
        let name = self.cluster.name_any();
        let of_cluster = ListParams::default().fields(&format!(
            "involvedObject.kind=EtcdCluster,involvedObject.name={name}"
        ));
        let events = self.read("list on events", api.list(&of_cluster)).await?;
        // A former cluster of the same name may have left events.
        let uid = self.cluster.uid();
        let is_own = |event: &Event| uid.is_none() || event.involved_object.uid == uid;
        Ok(last_events(
            events.items.into_iter().filter(is_own).collect(),
        ))
    }

    async fn backups(&self) -> ReadResult<BackupObjects> {
        let (backups, schedules) = futures::join!(
            self.objects::<Backup>("list on backups"),
            self.objects::<BackupSchedule>("list on backupschedules"),
        );
        Ok(BackupObjects {
            backups: backups?,
            schedules: schedules?,
        })
    }

    /// Lists the objects of a kind. One that this release of the plugin does not understand makes all unknown.
    async fn objects<K>(&self, permission: &str) -> ReadResult<Vec<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let api = objects::api::<K>(self.client, Some(self.namespace));
        let all = ListParams::default();
        let list = match self.read(permission, api.list(&all)).await {
            Err(ReadError::Failed(error)) if error == CliError::not_installed().message => {
                return Err(ReadError::Failed(missing_kind(&K::kind(&())).message));
            }
            list => list?,
        };
        let (objects, mut errors) = objects::deserialize(list.items);
        match errors.pop() {
            Some(error) => Err(ReadError::Failed(error.message)),
            None => Ok(objects),
        }
    }

    /// Waits for a request, up to [`QUERY_TIMEOUT`]. `permission` is what the user needs for it.
    async fn read<T>(
        &self,
        permission: &str,
        response: impl Future<Output = Result<T, kube::Error>>,
    ) -> ReadResult<T> {
        match tokio::time::timeout(QUERY_TIMEOUT, response).await {
            Ok(Ok(object)) => Ok(object),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(ReadError::Forbidden(
                format!("{permission} in namespace {}", self.namespace),
            )),
            Ok(Err(error)) => Err(ReadError::Failed(
                CliError::kubernetes(&format!("read ({permission})"), &error).message,
            )),
            Err(_) => Err(ReadError::Failed(format!(
                "the Kubernetes API did not respond within {QUERY_TIMEOUT:?}"
            ))),
        }
    }
}

/// Returns the members that answer without a quorum, if no member serves and enough of them answer to elect a leader.
fn members_in_election(answers: &BTreeMap<String, LiveAnswer>) -> Vec<String> {
    let with = |health| {
        let answers = answers.iter();
        answers.filter(move |(_, answer)| answer.health == health)
    };
    let waiting: Vec<_> = with(LiveHealth::NoQuorum)
        .map(|(name, _)| name.clone())
        .collect();
    if with(LiveHealth::Ok).next().is_some() || waiting.len() < quorum(answers.len()) {
        return Vec::new();
    }
    waiting
}

/// Returns the last events, the oldest first.
fn last_events(events: Vec<Event>) -> Vec<LiveEvent> {
    let mut events: Vec<_> = events.into_iter().filter_map(live_event).collect();
    events.sort_by_key(|event| event.time);
    let skipped = events.len().saturating_sub(MAX_EVENTS);
    events.split_off(skipped)
}

fn live_event(event: Event) -> Option<LiveEvent> {
    let series = event.series.and_then(|series| series.last_observed_time);
    let micro = series.or(event.event_time).map(|time| time.0);
    let seconds = event.last_timestamp.or(event.first_timestamp);
    let time = micro.or(seconds.map(|time| time.0))?;
    Some(LiveEvent {
        time,
        is_warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_queried_again_only_if_they_can_elect_a_leader() {
        use LiveHealth::{NoAnswer, NoQuorum, Ok, Unknown};
        let waiting = |healths: [LiveHealth; 3]| {
            let answers = healths.into_iter().enumerate().map(|(index, health)| {
                let answer = LiveAnswer {
                    health,
                    ..LiveAnswer::unknown("")
                };
                (index.to_string(), answer)
            });
            members_in_election(&answers.collect())
        };
        assert_eq!(waiting([NoQuorum, NoAnswer, NoQuorum]), ["0", "2"]);
        assert!(waiting([NoQuorum, NoAnswer, NoAnswer]).is_empty());
        assert!(waiting([Ok, NoQuorum, NoQuorum]).is_empty());
        assert!(waiting([Unknown, Unknown, Unknown]).is_empty());
    }

    #[test]
    fn the_last_events_are_sorted_by_their_last_occurrence() {
        let event = |reason: &str, time: &str| {
            let event = json!({ "metadata": {}, "involvedObject": {}, "reason": reason, "type": "Warning",
                "message": "text", "eventTime": time });
            serde_json::from_value::<Event>(event).unwrap()
        };
        let mut repeated = event("Repeated", "2026-11-16T08:00:00.000000Z");
        repeated.series = serde_json::from_value(
            json!({ "count": 2, "lastObservedTime": "2026-11-16T11:00:00.000000Z" }),
        )
        .unwrap();
        let events = vec![
            repeated,
            event("Third", "2026-11-16T10:00:00.000000Z"),
            event("First", "2026-11-16T07:00:00.000000Z"),
            event("Second", "2026-11-16T09:00:00.000000Z"),
        ];
        let reasons: Vec<_> = last_events(events)
            .into_iter()
            .map(|event| event.reason)
            .collect();
        assert_eq!(reasons, ["Second", "Third", "Repeated"]);
    }
}
