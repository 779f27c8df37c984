//! What only the members themselves can tell: how large their data is, and how far behind they are. Asked through the API
//! server, as far as the user may.

use std::collections::BTreeMap;

use evenkeel_api::EtcdCluster;
use futures::future::join_all;
use http::Request;
use kube::{Client, ResourceExt};

/// Where members tell their metrics, in their pods.
const PORT: u16 = 2381;

/// What a member tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metrics {
    /// How large its data is, in bytes.
    pub(crate) size: Option<u64>,
    /// Up to which entry of the log it has applied.
    pub(crate) applied: Option<u64>,
    /// Up to which entry it knows that the cluster has agreed.
    pub(crate) committed: Option<u64>,
    /// Whether it leads: 1 if it does.
    pub(crate) leads: Option<u64>,
}

/// What the members tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    members: BTreeMap<String, Metrics>,
    /// Why they could not be asked, if nobody could.
    pub(crate) trouble: Option<String>,
}

impl Live {
    /// Asks all members at once.
    pub(crate) async fn of(client: &Client, cluster: &EtcdCluster) -> Self {
        let namespace = cluster.namespace().unwrap_or_default();
        let members = cluster.status.as_ref().map(|status| status.member_list.as_slice()).unwrap_or_default();
        let asked = members.iter().map(|member| ask(client, &namespace, &member.name));
        let answers = join_all(asked).await;
        let mut live = Self::default();
        for (member, answer) in members.iter().zip(answers) {
            match answer {
                Ok(metrics) => {
                    live.members.insert(member.name.clone(), metrics);
                }
                Err(Some(trouble)) => live.trouble = Some(trouble),
                Err(None) => {}
            }
        }
        live
    }

    /// What a member tells.
    pub(crate) fn size(&self, member: &str) -> Option<u64> {
        self.members.get(member)?.size
    }

    /// Who leads, if that is known by its own word: the status may be some seconds old.
    pub(crate) fn leader(&self) -> Option<&str> {
        let leads = |metrics: &Metrics| metrics.leads == Some(1);
        self.members.iter().find(|(_, metrics)| leads(metrics)).map(|(name, _)| name.as_str())
    }

    /// By how many entries a member is behind whoever knows most.
    pub(crate) fn lag(&self, member: &str) -> Option<u64> {
        let newest = self.members.values().filter_map(|metrics| metrics.committed).max()?;
        Some(newest.saturating_sub(self.members.get(member)?.applied?))
    }
}

/// What a member tells; or why the user may not ask; or nothing, if it does not answer.
async fn ask(client: &Client, namespace: &str, pod: &str) -> Result<Metrics, Option<String>> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{PORT}/proxy/metrics");
    let request = Request::get(path).body(Vec::new()).map_err(|_| None)?;
    match client.request_text(request).await {
        Ok(text) => Ok(read(&text)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Err(Some("lag and size need the right to get pods/proxy in this namespace".to_owned()))
        }
        Err(_) => Err(None),
    }
}

/// Reads metrics as Prometheus writes them.
fn read(text: &str) -> Metrics {
    let mut metrics = Metrics::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let place = match name {
            "etcd_mvcc_db_total_size_in_bytes" => &mut metrics.size,
            "etcd_server_proposals_applied_total" => &mut metrics.applied,
            "etcd_server_proposals_committed_total" => &mut metrics.committed,
            "etcd_server_is_leader" => &mut metrics.leads,
            _ => continue,
        };
        *place = number(value);
    }
    metrics
}

/// A count that may be written as 1.234e+06.
fn number(text: &str) -> Option<u64> {
    let value: f64 = text.trim().parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, all far below 2^53")]
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_as_etcd_writes_them() {
        let text = "# HELP etcd_mvcc_db_total_size_in_bytes Total size\netcd_mvcc_db_total_size_in_bytes 2.0971520e+07\n\
            etcd_server_proposals_applied_total 41\netcd_server_proposals_committed_total 42\nother{a=\"b c\"} 1\n\
            etcd_server_is_leader 1\n";
        let read = read(text);
        let known =
            Metrics { size: Some(20_971_520), applied: Some(41), committed: Some(42), leads: Some(1) };
        assert_eq!(read, known);
    }

    #[test]
    fn lag_is_counted_from_whoever_knows_most() {
        let metrics = |applied, committed| Metrics {
            applied: Some(applied),
            committed: Some(committed),
            ..Metrics::default()
        };
        let members = [("a", metrics(100, 100)), ("b", metrics(90, 95))];
        let members = members.map(|(name, metrics)| (name.to_owned(), metrics)).into();
        let live = Live { members, trouble: None };
        assert_eq!((live.lag("a"), live.lag("b"), live.lag("c")), (Some(0), Some(10), None));
    }
}
