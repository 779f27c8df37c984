//! Asks etcd which member is the leader. The status of the resource names the leader that the operator observed last, which may be
//! ten seconds old.
//!
//! The members' metrics answer first, through the API server's proxy. If the user may not use the proxy, or if the answers
//! do not agree, `etcdctl endpoint status` in the members' pods decides.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_api::{EtcdCluster, MemberStatus, labels};
use evenkeel_etcd::build::service::METRICS_PORT;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::connection::{Connection, request};
use crate::error::CliError;
use crate::{etcdctl, permission};

/// How long the members have to answer. Only members that are down take long.
const QUERY_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the other members have to answer after one has reported that it is the leader.
const EXTRA_TIME: Duration = Duration::from_secs(1);

/// The answer of a member to the question whether it is the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaderAnswer {
    /// The member is the leader.
    Leader,
    /// The member follows a leader.
    Follower,
    /// The member knows no leader.
    NoLeader,
    /// The member did not answer, for this reason.
    NoAnswer(String),
    /// The user may not ask.
    Forbidden,
}

/// The answers of the members to the question which of them is the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaderAnswers {
    /// The answers, by the members' names.
    pub(crate) members: BTreeMap<String, LeaderAnswer>,
    /// The leader, if etcd reports one.
    pub(crate) leader: Option<String>,
    /// What was tried without a result.
    pub(crate) tried: Vec<String>,
}

impl LeaderAnswers {
    /// Asks the members' metrics, then their etcdctl.
    pub(crate) async fn query(
        connection: &Connection,
        cluster: &EtcdCluster,
    ) -> Result<Self, CliError> {
        let pods = list_pods(connection, cluster).await?;
        let mut answers = Self::from_metrics(connection, &pods).await;
        if answers.leader.is_none() {
            answers.ask_etcdctl(connection, cluster, &pods).await?;
        }
        Ok(answers)
    }

    /// Asks the members' metrics.
    async fn from_metrics(connection: &Connection, pods: &[MemberPod]) -> Self {
        let mut queries: FuturesUnordered<_> = pods
            .iter()
            .map(|pod| async move {
                let (client, namespace) = (&connection.client, &connection.namespace);
                let answer = query_metrics(client, namespace, &pod.name).await;
                (pod.name.clone(), answer)
            })
            .collect();
        let mut deadline = Instant::now() + QUERY_TIMEOUT;
        let no_answer = LeaderAnswer::NoAnswer("timed out".to_owned());
        let mut members: BTreeMap<_, _> = pods
            .iter()
            .map(|pod| (pod.name.clone(), no_answer.clone()))
            .collect();
        while let Ok(Some((pod, answer))) = timeout_at(deadline, queries.next()).await {
            if answer == LeaderAnswer::Leader {
                deadline = deadline.min(Instant::now() + EXTRA_TIME);
            }
            members.insert(pod, answer);
        }
        Self::from_answers(members)
    }

    fn from_answers(members: BTreeMap<String, LeaderAnswer>) -> Self {
        let leaders: Vec<_> = members
            .iter()
            .filter(|(_, answer)| **answer == LeaderAnswer::Leader)
            .map(|(name, _)| name.clone())
            .collect();
        // A leader that was cut off reports itself until its election timeout has passed.
        let leader = match leaders.as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        };
        let tried = if leader.is_none() {
            vec![describe_metrics(&members)]
        } else {
            Vec::new()
        };
        Self {
            members,
            leader,
            tried,
        }
    }

    /// Runs `etcdctl endpoint status` in the pods that responded, or else in a Ready one. The answer with the highest term
    /// counts.
    async fn ask_etcdctl(
        &mut self,
        connection: &Connection,
        cluster: &EtcdCluster,
        pods: &[MemberPod],
    ) -> Result<(), CliError> {
        let candidates = self.etcdctl_candidates(pods);
        if candidates.is_empty() {
            return Ok(());
        }
        permission::require_exec(connection, "ask etcd for its leader").await?;
        let is_disputed = self
            .members
            .values()
            .any(|answer| *answer == LeaderAnswer::Leader);
        let mut statuses = Vec::new();
        for pod in candidates {
            match endpoint_status(connection, &pod) {
                Ok(status) if status.leader != 0 => {
                    statuses.push(status);
                    if !is_disputed {
                        break;
                    }
                }
                Ok(_) => self
                    .tried
                    .push(format!("etcdctl in Pod {pod}: the member knows no leader")),
                Err(error) => self.tried.push(format!("etcdctl in Pod {pod}: {error}")),
            }
        }
        let Some(newest) = statuses.iter().max_by_key(|status| status.raft_term) else {
            return Ok(());
        };
        let members = cluster
            .status
            .as_ref()
            .map(|status| status.member_list.as_slice())
            .unwrap_or_default();
        match newest.leader_name(members) {
            Ok(leader) => self.leader = Some(leader),
            Err(reason) => self.tried.push(format!("etcdctl: {reason}")),
        }
        Ok(())
    }

    /// Returns the pods in which etcdctl is worth a try. On a node that does not respond it would take long.
    fn etcdctl_candidates(&self, pods: &[MemberPod]) -> Vec<String> {
        let has_responded = |pod: &&MemberPod| {
            let answer = self.members.get(&pod.name);
            !matches!(answer, None | Some(LeaderAnswer::NoAnswer(_)))
        };
        let responded: Vec<_> = pods.iter().filter(has_responded).collect();
        let candidates = if responded.is_empty() {
            pods.iter().filter(|pod| pod.is_ready).take(1).collect()
        } else {
            responded
        };
        candidates.into_iter().map(|pod| pod.name.clone()).collect()
    }

    /// Returns whether a member answers. `None` if the user may not ask.
    pub(crate) fn is_responding(&self, member: &str) -> Option<bool> {
        match self.members.get(member) {
            Some(LeaderAnswer::Forbidden) => None,
            Some(LeaderAnswer::Leader | LeaderAnswer::Follower | LeaderAnswer::NoLeader) => {
                Some(true)
            }
            Some(LeaderAnswer::NoAnswer(_)) | None => Some(false),
        }
    }

    /// Returns the leader, or an error that names what was tried.
    pub(crate) fn require_leader(&self) -> Result<&str, CliError> {
        self.leader.as_deref().ok_or_else(|| {
            CliError::new(format!(
                "the leader is unknown. Tried: {}",
                self.tried_text()
            ))
            .help(
                "etcd has no leader while a majority of its members does not respond: `kubectl evenkeel why` shows the \
                 reason. Asking the members requires get on pods/proxy or create on pods/exec",
            )
        })
    }

    /// Returns what was tried without a result.
    pub(crate) fn tried_text(&self) -> String {
        self.tried.join("; ")
    }
}

/// The pod of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MemberPod {
    name: String,
    is_ready: bool,
}

/// Lists the members' pods. Members without a pod cannot be the leader.
async fn list_pods(
    connection: &Connection,
    cluster: &EtcdCluster,
) -> Result<Vec<MemberPod>, CliError> {
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let of_cluster = ListParams::default().labels(&labels::selector(&cluster.name_any()));
    let pods = request("list the members' pods", api.list(&of_cluster)).await?;
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        let ready = conditions.iter().find(|one| one.type_ == "Ready")?;
        Some(ready.status == "True")
    };
    let pods = pods.items.iter().map(|pod| MemberPod {
        name: pod.name_any(),
        is_ready: is_ready(pod) == Some(true),
    });
    Ok(pods.collect())
}

async fn query_metrics(client: &Client, namespace: &str, pod: &str) -> LeaderAnswer {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{METRICS_PORT}/proxy/metrics");
    let Ok(request) = Request::get(path).body(Vec::new()) else {
        return LeaderAnswer::NoAnswer("invalid name".to_owned());
    };
    match client.request_text(request).await {
        Ok(metrics) => parse_metrics(&metrics),
        Err(kube::Error::Api(status)) if status.code == 403 => LeaderAnswer::Forbidden,
        Err(kube::Error::Api(status)) => {
            LeaderAnswer::NoAnswer(format!("the API server's proxy responded {}", status.code))
        }
        Err(error) => LeaderAnswer::NoAnswer(error.to_string()),
    }
}

/// Reads the answer from the metrics in the Prometheus text format.
fn parse_metrics(text: &str) -> LeaderAnswer {
    let value = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(metric, _)| *metric == name)
            .map(|(_, value)| value.trim() == "1")
    };
    match (
        value("etcd_server_is_leader"),
        value("etcd_server_has_leader"),
    ) {
        (Some(true), _) => LeaderAnswer::Leader,
        (Some(false), Some(true)) => LeaderAnswer::Follower,
        (Some(false), _) => LeaderAnswer::NoLeader,
        (None, _) => LeaderAnswer::NoAnswer("its metrics do not name a leader".to_owned()),
    }
}

/// Describes answers from which no leader follows.
fn describe_metrics(members: &BTreeMap<String, LeaderAnswer>) -> String {
    if members.is_empty() {
        return "no pod of a member exists".to_owned();
    }
    if members
        .values()
        .all(|answer| *answer == LeaderAnswer::Forbidden)
    {
        return "the members' metrics (needs get on pods/proxy)".to_owned();
    }
    let each = members.iter().map(|(name, answer)| {
        let answer = match answer {
            LeaderAnswer::Leader => "reports that it is the leader".to_owned(),
            LeaderAnswer::Follower => "is a follower".to_owned(),
            LeaderAnswer::NoLeader => "knows no leader".to_owned(),
            LeaderAnswer::NoAnswer(reason) => format!("does not respond ({reason})"),
            LeaderAnswer::Forbidden => "needs get on pods/proxy".to_owned(),
        };
        format!("{name} {answer}")
    });
    format!(
        "the members' metrics: {}",
        each.collect::<Vec<_>>().join(", ")
    )
}

/// Runs `etcdctl endpoint status` for the member of a pod. The error says why that failed.
fn endpoint_status(connection: &Connection, pod: &str) -> Result<EndpointStatus, String> {
    let arguments = ["endpoint", "status", "--write-out=json"].map(str::to_owned);
    let output = etcdctl::run_in_pod(connection, pod, &arguments).map_err(|error| error.message)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(crate::kubectl_error::exec_error("query the member", pod, &stderr).message);
    }
    EndpointStatus::parse(&String::from_utf8_lossy(&output.stdout))
}

/// The part of `etcdctl endpoint status` that names the leader.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointStatus {
    /// The ID of the leader. 0 if the member knows none.
    #[serde(default)]
    leader: u64,
    /// The term of the leader.
    #[serde(default)]
    raft_term: u64,
}

impl EndpointStatus {
    fn parse(json: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Endpoint {
            #[serde(rename = "Status")]
            status: EndpointStatus,
        }
        let endpoints: Vec<Endpoint> = serde_json::from_str(json)
            .map_err(|error| format!("cannot parse the endpoint status: {error}"))?;
        let first = endpoints.into_iter().next();
        first
            .map(|endpoint| endpoint.status)
            .ok_or_else(|| "no endpoint status".to_owned())
    }

    /// Returns the name of the leader, or why it is unknown.
    fn leader_name(&self, members: &[MemberStatus]) -> Result<String, String> {
        let id = format!("{:x}", self.leader);
        let named = members.iter().find(|member| member.id == id);
        named
            .map(|member| member.name.clone())
            .ok_or_else(|| format!("the leader has the ID {id}, which status.memberList lacks"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answers(members: &[(&str, LeaderAnswer)]) -> LeaderAnswers {
        let members = members
            .iter()
            .map(|(name, answer)| ((*name).to_owned(), answer.clone()));
        LeaderAnswers::from_answers(members.collect())
    }

    #[test]
    fn the_metrics_of_a_member_say_whether_it_leads() {
        let metrics = |is_leader, has_leader| {
            parse_metrics(&format!(
                "# HELP etcd_server_is_leader Whether\netcd_server_has_leader {has_leader}\netcd_server_is_leader {is_leader}\n"
            ))
        };
        assert_eq!(metrics(1, 1), LeaderAnswer::Leader);
        assert_eq!(metrics(0, 1), LeaderAnswer::Follower);
        assert_eq!(metrics(0, 0), LeaderAnswer::NoLeader);
        assert!(matches!(
            parse_metrics("other 1\n"),
            LeaderAnswer::NoAnswer(_)
        ));
    }

    #[test]
    fn only_a_single_claim_is_accepted() {
        use LeaderAnswer::{Follower, Leader, NoAnswer};
        let one = answers(&[("a", Follower), ("b", Leader)]);
        assert_eq!(one.require_leader().unwrap(), "b");
        let two = answers(&[
            ("a", Leader),
            ("b", Leader),
            ("c", NoAnswer("x".to_owned())),
        ]);
        let error = two.require_leader().unwrap_err().to_string();
        assert!(
            error.contains("a reports that it is the leader, b reports that it is the leader"),
            "{error}"
        );
        assert_eq!(two.is_responding("c"), Some(false));
        assert_eq!(two.is_responding("a"), Some(true));
    }

    #[test]
    fn an_unknown_leader_comes_with_what_was_tried() {
        use LeaderAnswer::{Forbidden, NoAnswer, NoLeader};
        let text = |members: &[(&str, LeaderAnswer)]| answers(members).tried_text();
        assert_eq!(
            text(&[("a", NoLeader), ("b", NoAnswer("timed out".to_owned()))]),
            "the members' metrics: a knows no leader, b does not respond (timed out)"
        );
        let forbidden = answers(&[("a", Forbidden), ("b", Forbidden)]);
        assert_eq!(
            forbidden.tried_text(),
            "the members' metrics (needs get on pods/proxy)"
        );
        assert_eq!(forbidden.is_responding("a"), None);
        assert_eq!(text(&[]), "no pod of a member exists");
    }

    #[test]
    fn etcdctl_names_the_leader_by_its_id() {
        let json = r#"[{"Endpoint":"https://localhost:2379","Status":{"header":{"cluster_id":3,"member_id":10252489371282431437,
            "raft_term":4},"version":"3.6.16","dbSize":20480,"leader":18249187646912138824,"raftIndex":8,"raftTerm":4}}]"#;
        let status = EndpointStatus::parse(json).unwrap();
        assert_eq!(status.raft_term, 4);
        let members: Vec<MemberStatus> = serde_json::from_value(json!([
            { "name": "a", "id": "8e9e05c52164694d", "role": "Voter" },
            { "name": "b", "id": "fd422379fda50e48", "role": "Voter" },
        ]))
        .unwrap();
        assert_eq!(status.leader_name(&members).as_deref(), Ok("b"));
        let error = status.leader_name(&members[..1]).unwrap_err();
        assert!(error.contains("ID fd422379fda50e48"), "{error}");
        let none = r#"[{"Endpoint":"https://localhost:2379","Status":{"raftTerm":4}}]"#;
        assert_eq!(EndpointStatus::parse(none).unwrap().leader, 0);
        assert!(EndpointStatus::parse("[]").is_err());
    }

    #[test]
    fn etcdctl_runs_where_a_member_responds() {
        use LeaderAnswer::{Forbidden, NoAnswer, NoLeader};
        let pod = |name: &str, is_ready| MemberPod {
            name: name.to_owned(),
            is_ready,
        };
        let pods = [pod("a", false), pod("b", true), pod("c", true)];
        let silent = || NoAnswer("timed out".to_owned());
        let candidates =
            |members: &[(&str, LeaderAnswer)]| answers(members).etcdctl_candidates(&pods);
        assert_eq!(
            candidates(&[("a", NoLeader), ("b", silent()), ("c", Forbidden)]),
            ["a", "c"]
        );
        assert_eq!(
            candidates(&[("a", silent()), ("b", silent()), ("c", silent())]),
            ["b"]
        );
    }
}
