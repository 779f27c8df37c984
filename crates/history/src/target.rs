//! Where etcd is, and how to connect to it.

use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};

/// The cluster that a workload runs against. Endpoints are URLs, `https://` with `tls`.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Each member's client endpoint.
    pub members: Vec<String>,
    /// What stands before the members; when empty, the members themselves.
    pub service: Vec<String>,
    /// For `https://` endpoints.
    pub tls: Option<Tls>,
}

/// What a client needs for TLS, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// Who signed the servers' certificates.
    pub ca: Vec<u8>,
    /// The client's certificate.
    pub cert: Vec<u8>,
    /// The client's key.
    pub key: Vec<u8>,
    /// The name that servers' certificates must have, where endpoints are bare addresses.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys do not belong into logs.
        f.debug_struct("Tls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl Tls {
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

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Single calls.
    Calls,
    /// A watch: a server without a leader ends it, instead of falling silent.
    Watch,
}

/// A client of one endpoint. The connection is made with the first call and made again when it breaks; nothing is
/// ever sent twice. Pings find a server that is frozen or cut off.
pub(crate) async fn connect(
    endpoint: &str,
    tls: Option<&Tls>,
    timeout: Duration,
    purpose: For,
) -> Result<Client, Error> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(timeout)
        .with_keep_alive(Duration::from_secs(1), Duration::from_secs(2))
        .with_keep_alive_while_idle(true)
        .with_require_leader(purpose == For::Watch);
    if let Some(tls) = tls {
        options = options.with_tls(tls.options());
    }
    Client::connect([endpoint], Some(options)).await
}
