//! The etcd cluster of a workload, and the connection to it.

use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};

/// The cluster that a workload runs against. Endpoints are URLs, `https://` if `tls` is set.
#[derive(Clone, Debug, Default)]
pub struct WorkloadTarget {
    /// The client endpoint of each member.
    pub members: Vec<String>,
    /// The endpoints of the Service in front of the members; if empty, those of the members.
    pub service: Vec<String>,
    /// The TLS configuration for `https://` endpoints.
    pub tls: Option<ClientTls>,
}

/// The TLS configuration of a client, as PEM.
#[derive(Clone)]
pub struct ClientTls {
    /// The CA certificate of the servers.
    pub ca: Vec<u8>,
    /// The client's certificate.
    pub cert: Vec<u8>,
    /// The client's key.
    pub key: Vec<u8>,
    /// The expected name in the server certificates, where endpoints are IP addresses.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys must not be logged.
        f.debug_struct("Tls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl ClientTls {
    fn options(&self) -> TlsOptions {
        let options = TlsOptions::new()
            .ca_certificate(Certificate::from_pem(&self.ca))
            .identity(Identity::from_pem(&self.cert, &self.key));
        match &self.server_name {
            Some(name) => options.domain_name(name),
            None => options,
        }
    }
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPurpose {
    /// Unary calls.
    Calls,
    /// A watch. A server without a leader ends it instead of keeping it open without events.
    Watch,
}

/// Returns a client of one endpoint. It connects with the first call and again after a failure, and never sends a
/// request twice. Keep-alive pings detect a frozen or unreachable server.
pub(crate) async fn connect(
    endpoint: &str,
    tls: Option<&ClientTls>,
    timeout: Duration,
    purpose: ConnectionPurpose,
) -> Result<Client, Error> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(timeout)
        .with_keep_alive(Duration::from_secs(1), Duration::from_secs(2))
        .with_keep_alive_while_idle(true)
        .with_require_leader(purpose == ConnectionPurpose::Watch);
    if let Some(tls) = tls {
        options = options.with_tls(tls.options());
    }
    Client::connect([endpoint], Some(options)).await
}
