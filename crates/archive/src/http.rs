//! The HTTP client of buckets: resolved addresses are filtered, redirects are not followed, proxies of the environment are
//! ignored.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::addresses::AddressPolicy;
use crate::error::StoreError;
use crate::tasks::FailureReason;

/// How long a connection may take to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The options of the client.
#[derive(Clone, Debug)]
pub(crate) struct HttpOptions {
    pub(crate) policy: AddressPolicy,
    pub(crate) allow_http: bool,
    /// Certificates in PEM that replace the system's.
    pub(crate) ca: Option<Vec<u8>>,
    /// How long the server may send nothing. The upload of a part counts as one such time.
    pub(crate) idle_timeout: Duration,
}

/// The factory of clients. All of one store share one client.
#[derive(Clone, Debug)]
pub(crate) struct Connector(Client);

impl Connector {
    pub(crate) fn new(options: &HttpOptions) -> Result<Self, StoreError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("evenkeel/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .https_only(!options.allow_http)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(options.idle_timeout)
            .dns_resolver(Resolver(options.policy));
        if let Some(ca) = &options.ca {
            builder = builder.tls_certs_only(certificates(ca)?);
        }
        let client = builder.build().map_err(|error| {
            StoreError::new(
                FailureReason::InvalidCertificate,
                format!(
                    "failed to start the HTTP client: {}. Check the CA of the store",
                    innermost(&error)
                ),
            )
        })?;
        Ok(Self(Client(client)))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, StoreError> {
    let invalid = |problem: String| {
        StoreError::new(
            FailureReason::InvalidCertificate,
            format!(
                "the CA of the store is not usable: {problem}. Put certificates in PEM into the key ca.crt of its ConfigMap"
            ),
        )
    };
    let certificates =
        reqwest::Certificate::from_pem_bundle(pem).map_err(|error| invalid(innermost(&error)))?;
    if certificates.is_empty() {
        return Err(invalid("it contains no certificate".to_owned()));
    }
    Ok(certificates)
}

fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// The header with the end of a retention lock.
const RETAIN_UNTIL: &str = "x-amz-object-lock-retain-until-date";

/// The end of the retention lock of an object: an extension of answers about it, because `object_store` reads no such header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetainedUntil(pub(crate) Timestamp);

/// A client whose failures are retried only if another attempt may succeed.
#[derive(Clone, Debug)]
struct Client(reqwest::Client);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut response = match self.0.call(request).await {
            Ok(response) => response,
            Err(error) if is_permanent(&error) => {
                return Err(HttpError::new(HttpErrorKind::Unknown, error));
            }
            Err(error) => return Err(error),
        };
        let until = response.headers().get(RETAIN_UNTIL);
        if let Some(until) = until.and_then(|value| value.to_str().ok()?.parse().ok()) {
            response.extensions_mut().insert(RetainedUntil(until));
        }
        Ok(response)
    }
}

/// Returns true for a rejected address and for a certificate that is not trusted.
fn is_permanent(error: &HttpError) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<StoreError>() || error.to_string().contains("invalid peer certificate") {
            return true;
        }
        next = error.source();
    }
    false
}

/// A resolver that returns allowed addresses only.
#[derive(Clone, Copy, Debug)]
struct Resolver(AddressPolicy);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0;
        Box::pin(async move {
            let host = name.as_str();
            let addresses: Vec<IpAddr> = tokio::net::lookup_host((host, 0))
                .await?
                .map(|address| address.ip())
                .collect();
            let allowed = policy.filter(host, addresses)?;
            let addresses: Addrs = Box::new(
                allowed
                    .into_iter()
                    .map(|address| SocketAddr::new(address, 0)),
            );
            Ok(addresses)
        })
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
