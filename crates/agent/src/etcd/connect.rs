//! Connections to one member of etcd. Requests are sent once and have a time limit.

use std::path::Path;
use std::time::Duration;

use etcd_client::{Channel, Client, Error, ResponseHeader};
use evenkeel_archive::tasks::FailureReason;
use http::Uri;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::AgentFailure;
use crate::failure::chain;

/// The interval of keep-alives and the time that the member has to answer one: a member that is frozen is noticed after
/// both.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Connects to a member with mutual TLS. The directory has `ca.crt`, `tls.crt` and `tls.key`.
pub(crate) async fn connect(
    url: &str,
    tls: &Path,
    timeout: Duration,
) -> Result<Client, AgentFailure> {
    if parse(url)?.scheme_str() != Some("https") {
        return Err(invalid(format!("The URL {url} is not https.")));
    }
    let read = |name: &str| {
        let path = tls.join(name);
        std::fs::read(&path).map_err(|error| AgentFailure::file("read", &path, &error))
    };
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.crt")?))
        .identity(Identity::from_pem(read("tls.crt")?, read("tls.key")?));
    let endpoint = endpoint(url)?
        .tls_config(tls)
        .map_err(|error| AgentFailure::source("configure TLS", &error))?;
    open(url, endpoint, timeout).await
}

/// Connects to a member on loopback, with mutual TLS if a directory with certificates is given.
pub(crate) async fn connect_on_loopback(
    url: &str,
    tls: Option<&Path>,
    timeout: Duration,
) -> Result<Client, AgentFailure> {
    let uri = parse(url)?;
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host
        .parse::<std::net::IpAddr>()
        .is_ok_and(|ip| ip.is_loopback());
    if !is_loopback {
        return Err(invalid(format!(
            "The URL {url} is not on a loopback address."
        )));
    }
    if let Some(tls) = tls {
        return connect(url, tls, timeout).await;
    }
    if uri.scheme_str() != Some("http") {
        return Err(invalid(format!("The URL {url} is not http.")));
    }
    open(url, endpoint(url)?, timeout).await
}

fn endpoint(url: &str) -> Result<Endpoint, AgentFailure> {
    let endpoint = Endpoint::from_shared(url.to_owned());
    let endpoint =
        endpoint.map_err(|error| invalid(format!("The URL {url} is invalid: {error}")))?;
    Ok(endpoint
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true))
}

async fn open(url: &str, endpoint: Endpoint, timeout: Duration) -> Result<Client, AgentFailure> {
    let action = format!("connect to {url}");
    let connect = async {
        let channel = endpoint.connect_timeout(timeout).connect().await;
        let channel = channel.map_err(|error| AgentFailure::source(&action, &error))?;
        let client = Client::from_channel(Channel::Tonic(channel), None).await;
        client.map_err(|error| call_failure(&action, &error))
    };
    match tokio::time::timeout(timeout, connect).await {
        Ok(result) => result,
        Err(_) => Err(no_answer(&action, timeout)),
    }
}

/// Returns the answer of a call, or its failure. `action` completes the sentence "failed to …".
pub(crate) async fn call<T>(
    action: &str,
    timeout: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, AgentFailure> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(call_failure(action, &error)),
        Err(_) => Err(no_answer(action, timeout)),
    }
}

/// Returns the failure of a call.
pub(crate) fn call_failure(action: &str, error: &Error) -> AgentFailure {
    match error {
        Error::GRpcStatus(status) => {
            let source = std::error::Error::source(status);
            let detail = source.map(|source| format!(": {}", chain(source)));
            AgentFailure::new(
                FailureReason::SourceFailed,
                format!(
                    "failed to {action}: {} ({:?}){}",
                    status.message(),
                    status.code(),
                    detail.unwrap_or_default()
                ),
            )
        }
        other => AgentFailure::source(action, other),
    }
}

fn no_answer(action: &str, timeout: Duration) -> AgentFailure {
    AgentFailure::new(
        FailureReason::SourceFailed,
        format!(
            "failed to {action}: no answer within {} s",
            timeout.as_secs()
        ),
    )
}

/// Fails if an answer is from another cluster. Returns the ID of the member that answered.
pub(crate) fn check_cluster(
    header: Option<&ResponseHeader>,
    cluster_id: u64,
) -> Result<u64, AgentFailure> {
    let Some(header) = header else {
        return Err(AgentFailure::new(
            FailureReason::SourceFailed,
            "The answer of the member has no header.",
        ));
    };
    if header.cluster_id() != cluster_id {
        return Err(AgentFailure::new(
            FailureReason::SourceFailed,
            format!(
                "The member belongs to etcd cluster {:x}, not to {cluster_id:x}. No backup was made of it.",
                header.cluster_id()
            ),
        ));
    }
    Ok(header.member_id())
}

fn parse(url: &str) -> Result<Uri, AgentFailure> {
    let uri = url.parse::<Uri>();
    uri.map_err(|error| invalid(format!("The URL {url} is invalid: {error}")))
}

fn invalid(message: String) -> AgentFailure {
    AgentFailure::new(FailureReason::InvalidRequest, message)
}
