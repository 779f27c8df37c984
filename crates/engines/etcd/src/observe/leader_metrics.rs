//! Whom the leader is connected to, from its metrics. Unreachable for the operator is not dead for etcd: before a member is
//! taken for lost, the one who would know best is asked.

use std::collections::BTreeSet;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::etcd::Endpoint;
use crate::build::service::METRICS_PORT;
use crate::identity::MemberId;

/// How long an answer may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How much is read of it: a member's metrics are some two hundred kilobytes.
const MAX_METRICS_BYTES: usize = 8 << 20;

/// The members that the leader has a connection to; nothing if it does not say, or does not lead.
pub(super) async fn connected_peers(leader: &Endpoint) -> Option<BTreeSet<MemberId>> {
    let text = tokio::time::timeout(REQUEST_TIMEOUT, metrics(leader))
        .await
        .ok()??;
    parse_connected(&text)
}

/// Whether a member runs and knows a leader, by its own metrics: they are told long before it answers anything else.
pub(super) async fn has_leader(member: &Endpoint) -> bool {
    let text = tokio::time::timeout(REQUEST_TIMEOUT, metrics(member))
        .await
        .ok()
        .flatten();
    text.is_some_and(|text| text.lines().any(|line| line == "etcd_server_has_leader 1"))
}

async fn metrics(member: &Endpoint) -> Option<String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri = format!("http://{}:{METRICS_PORT}/metrics", member.host());
    let request = Request::get(uri).body(Empty::new()).ok()?;
    let answer = client
        .request(request)
        .await
        .ok()
        .filter(|answer| answer.status().is_success())?;
    let body = Limited::new(answer.into_body(), MAX_METRICS_BYTES)
        .collect()
        .await
        .ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

/// What a leader's metrics say. One to whom there was never a connection is not in them at all.
fn parse_connected(metrics: &str) -> Option<BTreeSet<MemberId>> {
    let samples = || metrics.lines().filter_map(|line| line.rsplit_once(' '));
    let leads = samples().any(|(name, value)| name == "etcd_server_is_leader" && value == "1");
    let peers = samples().filter_map(|(name, value)| {
        let labels = name.strip_prefix("etcd_network_active_peers{")?;
        let (_, remote) = labels.split_once("Remote=\"")?;
        let id = u64::from_str_radix(remote.split('"').next()?, 16).ok()?;
        (value.parse::<f64>().ok()? > 0.0).then_some(MemberId(id))
    });
    leads.then(|| peers.collect())
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
    fn whoever_the_leader_is_connected_to_is_told_from_whoever_it_lost() {
        assert_eq!(
            parse_connected(METRICS),
            Some([MemberId(0x91bc_3c39_8fb3_c146)].into())
        );
    }

    #[test]
    fn one_that_does_not_lead_has_no_say() {
        let follows = METRICS.replace("is_leader 1\n", "is_leader 0\n");
        assert_eq!(parse_connected(&follows), None);
        assert_eq!(parse_connected("nothing of the kind"), None);
    }
}
