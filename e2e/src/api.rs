//! A client of the lab's API server in this process. Repeated reads go through it: one `kubectl` process per read would
//! be most of the load on the machine and most of a story's time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_lab::Lab;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::WAIT_LIMIT;

/// The longest time that one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The delay before a request that failed temporarily is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(500);

pub(crate) type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The address of the lab's API server, and the files of its CA and of the administrator's certificate.
pub(crate) struct Access {
    pub(crate) server: String,
    ca: String,
    certificate: String,
    key: String,
}

impl Access {
    /// Reads the lab's kubeconfig.
    pub(crate) fn to(lab: &Lab) -> Self {
        let view = lab
            .kubectl()
            .args(["config", "view", "--raw", "--output=json"])
            .run();
        let view: Value = serde_json::from_str(&view.expect("the lab has a kubeconfig"))
            .expect("kubectl prints JSON");
        let text = |path: &str| {
            let found = view.pointer(path).and_then(Value::as_str);
            found
                .unwrap_or_else(|| panic!("the kubeconfig has no {path}"))
                .to_owned()
        };
        Self {
            server: text("/clusters/0/cluster/server"),
            ca: text("/clusters/0/cluster/certificate-authority"),
            certificate: text("/users/0/user/client-certificate"),
            key: text("/users/0/user/client-key"),
        }
    }

    /// Returns a client without credentials: each request carries its own.
    pub(crate) fn anonymous(&self) -> HttpsClient {
        client(tls(self).with_no_client_auth())
    }

    /// Returns a client with the certificate of the lab's kubeconfig, which may do everything.
    fn administrator(&self) -> HttpsClient {
        let certificates =
            CertificateDer::pem_file_iter(&self.certificate).expect("the certificate can be read");
        let certificates = certificates
            .map(|certificate| certificate.expect("the certificate is PEM"))
            .collect();
        let key = PrivateKeyDer::from_pem_file(&self.key).expect("the key can be read");
        client(
            tls(self)
                .with_client_auth_cert(certificates, key)
                .expect("the key belongs to the certificate"),
        )
    }
}

fn tls(
    access: &Access,
) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::pem_file_iter(&access.ca);
    for certificate in ca.expect("the lab's CA certificate can be read") {
        roots
            .add(certificate.expect("the CA certificate is PEM"))
            .expect("the CA certificate is valid");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs supports the default protocol versions")
        .with_root_certificates(roots)
}

fn client(tls: rustls::ClientConfig) -> HttpsClient {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(Duration::from_secs(10)));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(20))
        .build(connector)
}

struct Reader {
    server: String,
    client: HttpsClient,
    runtime: Runtime,
}

/// A request that failed.
struct RequestError {
    text: String,
    /// Whether a retry may succeed: no connection, a timeout, or an overloaded server.
    is_transient: bool,
}

/// Returns the object or list at a path; `None` if it does not exist. Repeats requests that fail temporarily: the API server
/// shares two cores with everything else.
pub(crate) fn get(lab: &Lab, path: &str) -> Result<Option<Value>, String> {
    let (began, limit) = (Instant::now(), lab.patience().times(WAIT_LIMIT));
    loop {
        match call(lab, "GET", path, None) {
            Err(failed) if failed.is_transient && began.elapsed() < limit => {
                std::thread::sleep(RETRY_DELAY)
            }
            read => return read.map_err(|failed| failed.text),
        }
    }
}

/// Like [`get`], but without retries: for callers that poll anyway.
pub(crate) fn get_once(lab: &Lab, path: &str) -> Result<Option<Value>, String> {
    call(lab, "GET", path, None).map_err(|failed| failed.text)
}

/// Sends a write once, without retries: a write that was answered with an error may have been applied.
pub(crate) fn send(
    lab: &Lab,
    verb: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Option<Value>, String> {
    call(lab, verb, path, body).map_err(|failed| failed.text)
}

/// Returns the client of this process for a lab.
fn reader(lab: &Lab) -> Arc<Reader> {
    static READERS: Mutex<BTreeMap<String, Arc<Reader>>> = Mutex::new(BTreeMap::new());
    let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || {
        let access = Access::to(lab);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        Arc::new(Reader {
            client: access.administrator(),
            server: access.server,
            runtime: runtime.expect("the runtime starts"),
        })
    };
    Arc::clone(readers.entry(lab.name().to_string()).or_insert_with(new))
}

fn call(
    lab: &Lab,
    verb: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Option<Value>, RequestError> {
    let (reader, limit) = (reader(lab), lab.patience().times(REQUEST_TIMEOUT));
    let kind = if verb == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let body = Bytes::from(body.map(ToString::to_string).unwrap_or_default());
    let request = Request::builder()
        .method(verb)
        .uri(format!("{}{path}", reader.server));
    let request = request.header(CONTENT_TYPE, kind).body(Full::new(body));
    let failed = |is_transient: bool, text: String| RequestError {
        text: format!("{path}: {text}"),
        is_transient,
    };
    let request = request.map_err(|error| failed(false, error.to_string()))?;
    let answer = reader.client.request(request);
    let read = async {
        let answer = answer
            .await
            .map_err(|error| failed(true, error.to_string()))?;
        let status = answer.status();
        let body = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| failed(true, error.to_string()))?;
        let body = body.to_bytes();
        match status.as_u16() {
            200..=202 => serde_json::from_slice(&body)
                .map(Some)
                .map_err(|error| failed(false, error.to_string())),
            404 => Ok(None),
            code => {
                // The message of the API server, if the answer is a `Status`.
                let answer: Option<Value> = serde_json::from_slice(&body).ok();
                let message = answer
                    .as_ref()
                    .and_then(|status| status["message"].as_str());
                let message = message.map_or_else(|| String::from_utf8_lossy(&body), Into::into);
                let text = format!("{status}: {message}");
                Err(failed(code == 429 || status.is_server_error(), text))
            }
        }
    };
    reader.runtime.block_on(async {
        match tokio::time::timeout(limit, read).await {
            Ok(read) => read,
            Err(_) => Err(failed(
                true,
                format!("no answer within {} s", limit.as_secs()),
            )),
        }
    })
}
