//! Kubernetes as this process sees it. What stories look at again and again is read here: a `kubectl` for each look would be
//! most of the load on the machine, and most of a story's time.

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

use crate::PATIENCE;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// How soon one that could not answer is asked again.
const AGAIN: Duration = Duration::from_millis(500);

pub(crate) type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Where the lab's API server is, and whom it believes.
pub(crate) struct Access {
    pub(crate) server: String,
    authority: String,
    certificate: String,
    key: String,
}

impl Access {
    /// As the lab's kubeconfig has it.
    pub(crate) fn to(lab: &Lab) -> Self {
        let view = lab
            .kubectl()
            .args(["config", "view", "--raw", "--output=json"])
            .run();
        let view: Value =
            serde_json::from_str(&view.expect("the lab has a kubeconfig")).expect("it is JSON");
        let text = |path: &str| {
            let found = view.pointer(path).and_then(Value::as_str);
            found
                .unwrap_or_else(|| panic!("the kubeconfig has no {path}"))
                .to_owned()
        };
        Self {
            server: text("/clusters/0/cluster/server"),
            authority: text("/clusters/0/cluster/certificate-authority"),
            certificate: text("/users/0/user/client-certificate"),
            key: text("/users/0/user/client-key"),
        }
    }

    /// A client that is nobody: who it is must be said with each request.
    pub(crate) fn anonymous(&self) -> HttpsClient {
        client(tls(self).with_no_client_auth())
    }

    /// A client that may do everything, as the lab's own kubeconfig.
    fn administrator(&self) -> HttpsClient {
        let certificates =
            CertificateDer::pem_file_iter(&self.certificate).expect("it can be read");
        let certificates = certificates
            .map(|certificate| certificate.expect("it is PEM"))
            .collect();
        let key = PrivateKeyDer::from_pem_file(&self.key).expect("the key can be read");
        client(
            tls(self)
                .with_client_auth_cert(certificates, key)
                .expect("the key is the certificate's"),
        )
    }
}

fn tls(
    access: &Access,
) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::pem_file_iter(&access.authority);
    for certificate in authority.expect("the lab's authority can be read") {
        roots
            .add(certificate.expect("it is PEM"))
            .expect("it is a certificate");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs has them")
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

/// Why there is no answer.
struct Failed {
    said: String,
    /// Whether the next try may well have one: nobody was there, or somebody who had too much to do.
    passing: bool,
}

/// What the API server has at this path; nothing where it has nothing. One that cannot answer at the moment is asked again:
/// two cores carry it and everything else, and that it is always quick is no story's business.
pub(crate) fn get(lab: &Lab, path: &str) -> Result<Option<Value>, String> {
    let (began, limit) = (Instant::now(), lab.patience().times(PATIENCE));
    loop {
        match ask(lab, "GET", path, None) {
            Err(failed) if failed.passing && began.elapsed() < limit => std::thread::sleep(AGAIN),
            read => return read.map_err(|failed| failed.said),
        }
    }
}

/// The same, asked once: for those who look again anyway.
pub(crate) fn get_once(lab: &Lab, path: &str) -> Result<Option<Value>, String> {
    ask(lab, "GET", path, None).map_err(|failed| failed.said)
}

/// Has the API server do something, once: what was answered with an error may have been done.
pub(crate) fn send(
    lab: &Lab,
    verb: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Option<Value>, String> {
    ask(lab, verb, path, body).map_err(|failed| failed.said)
}

/// Who asks on this lab.
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
            runtime: runtime.expect("a runtime can be made"),
        })
    };
    Arc::clone(readers.entry(lab.name().to_string()).or_insert_with(new))
}

fn ask(lab: &Lab, verb: &str, path: &str, body: Option<&Value>) -> Result<Option<Value>, Failed> {
    let (reader, limit) = (reader(lab), lab.patience().times(LIMIT));
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
    let failed = |passing: bool, said: String| Failed {
        said: format!("{path}: {said}"),
        passing,
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
                // The API server's own words, where the answer is a `Status`.
                let answer: Option<Value> = serde_json::from_slice(&body).ok();
                let message = answer
                    .as_ref()
                    .and_then(|status| status["message"].as_str());
                let message = message.map_or_else(|| String::from_utf8_lossy(&body), Into::into);
                let said = format!("{status}: {message}");
                Err(failed(code == 429 || status.is_server_error(), said))
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
