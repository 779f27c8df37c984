//! Whom a member is connected to, from its metrics. Unreachable for the operator is not dead for etcd: before a member is
//! taken for lost, those who would know are asked.

use std::collections::BTreeSet;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::ask::Endpoint;
use crate::build::service::METRICS_PORT;
use crate::identity::MemberId;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(2);
/// How much is read of it: a member's metrics are some two hundred kilobytes.
const MOST: usize = 8 << 20;

/// What a member's metrics say of the others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Peers {
    /// Whether it leads.
    pub(super) leads: bool,
    /// Whom it has a connection to. One to whom there was never any is not among its metrics at all.
    pub(super) connected: BTreeSet<MemberId>,
}

/// Whom a member is connected to, if it says so.
pub(super) async fn of(member: &Endpoint) -> Option<Peers> {
    let text = tokio::time::timeout(LIMIT, metrics(member)).await.ok()??;
    read(&text)
}

/// Whether a member runs and knows a leader, by its own metrics: they are told long before it answers anything else.
pub(super) async fn has_leader(member: &Endpoint) -> bool {
    let text = tokio::time::timeout(LIMIT, metrics(member)).await.ok().flatten();
    text.is_some_and(|text| text.lines().any(|line| line == "etcd_server_has_leader 1"))
}

async fn metrics(member: &Endpoint) -> Option<String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri = format!("http://{}:{METRICS_PORT}/metrics", member.host());
    let request = Request::get(uri).body(Empty::new()).ok()?;
    let answer = client.request(request).await.ok().filter(|answer| answer.status().is_success())?;
    let body = Limited::new(answer.into_body(), MOST).collect().await.ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

fn read(metrics: &str) -> Option<Peers> {
    let samples = || metrics.lines().filter_map(|line| line.rsplit_once(' '));
    let leads =
        samples().find(|(name, _)| *name == "etcd_server_is_leader").map(|(_, value)| value == "1")?;
    let peers = samples().filter_map(|(name, value)| {
        let labels = name.strip_prefix("etcd_network_active_peers{")?;
        let (_, remote) = labels.split_once("Remote=\"")?;
        let id = u64::from_str_radix(remote.split('"').next()?, 16).ok()?;
        (value.parse::<f64>().ok()? > 0.0).then_some(MemberId(id))
    });
    Some(Peers { leads, connected: peers.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As etcd 3.6.16 prints them.
    const METRICS: &str = "\
# HELP etcd_network_active_peers The current number of active peer connections.
# TYPE etcd_network_active_peers gauge
etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 1
etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"fd422379fda50e48\"} 0
# HELP etcd_server_is_leader Whether or not this member is a leader. 1 if is, 0 otherwise.
# TYPE etcd_server_is_leader gauge
etcd_server_is_leader 1
";

    #[test]
    fn whoever_a_member_is_connected_to_is_told_from_whoever_it_lost() {
        let connected = [MemberId(0x91bc_3c39_8fb3_c146)].into();
        assert_eq!(read(METRICS), Some(Peers { leads: true, connected }));
    }

    #[test]
    fn whether_it_leads_is_told_and_what_is_no_metrics_tells_nothing() {
        let follows = METRICS.replace("is_leader 1\n", "is_leader 0\n");
        assert!(read(&follows).is_some_and(|peers| !peers.leads));
        assert_eq!(read("nothing of the kind"), None);
    }
}
