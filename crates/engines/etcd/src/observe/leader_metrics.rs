//! Facts from etcd's metrics: the members that the leader is connected to, and whether a member has a leader. A member that
//! the operator cannot reach may still be connected to the leader: it is not replaced then.

use std::collections::BTreeSet;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::build::service::METRICS_PORT;
use crate::client::Endpoint;
use crate::identity::MemberId;

/// The deadline of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest response that is read. The metrics of a member are some 200 kB.
const MAX_METRICS_BYTES: usize = 8 << 20;

/// Returns the members that the leader is connected to; `None` if it does not answer or is not the leader.
pub(super) async fn connected_peers(leader: &Endpoint) -> Option<BTreeSet<MemberId>> {
    let text = tokio::time::timeout(REQUEST_TIMEOUT, metrics(leader))
        .await
        .ok()??;
    parse_connected(&text)
}

/// Returns true if a member's metrics show that it has a leader. A member serves metrics long before it serves clients.
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
    let response = client
        .request(request)
        .await
        .ok()
        .filter(|response| response.status().is_success())?;
    let body = Limited::new(response.into_body(), MAX_METRICS_BYTES)
        .collect()
        .await
        .ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

/// Returns the connected members in a leader's metrics. A member that was never connected does not appear in them.
fn parse_connected(metrics: &str) -> Option<BTreeSet<MemberId>> {
    let samples = || metrics.lines().filter_map(|line| line.rsplit_once(' '));
    let is_leader = samples().any(|(name, value)| name == "etcd_server_is_leader" && value == "1");
    let peers = samples().filter_map(|(name, value)| {
        let labels = name.strip_prefix("etcd_network_active_peers{")?;
        let (_, remote) = labels.split_once("Remote=\"")?;
        let id = u64::from_str_radix(remote.split('"').next()?, 16).ok()?;
        (value.parse::<f64>().ok()? > 0.0).then_some(MemberId(id))
    });
    is_leader.then(|| peers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics of etcd 3.6.16.
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
    fn only_connected_members_are_returned() {
        assert_eq!(
            parse_connected(METRICS),
            Some([MemberId(0x91bc_3c39_8fb3_c146)].into())
        );
    }

    #[test]
    fn metrics_of_a_follower_are_ignored() {
        let follower = METRICS.replace("is_leader 1\n", "is_leader 0\n");
        assert_eq!(parse_connected(&follower), None);
        assert_eq!(parse_connected("not metrics"), None);
    }
}
