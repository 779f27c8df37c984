//! A TLS client for a member's ports, with any certificate.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_e2e::Story;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the contents of a Secret, by key.
pub(super) fn secret(story: &Story, name: &str) -> BTreeMap<String, Vec<u8>> {
    let secret = story.get(&["secret", name]);
    let data = secret["data"].as_object().unwrap().iter();
    data.map(|(key, value)| {
        (
            key.clone(),
            STANDARD.decode(value.as_str().unwrap()).unwrap(),
        )
    })
    .collect()
}

/// The server, and the CA that the client trusts.
pub(super) struct TlsClient<'a> {
    pub(super) ip: &'a str,
    pub(super) port: u16,
    pub(super) name: &'a str,
    pub(super) trusts: &'a [u8],
}

impl TlsClient<'_> {
    /// Requests the version, with the certificate of a Secret or without one; returns the answer, or the error.
    pub(super) fn request_version(
        &self,
        with: Option<&BTreeMap<String, Vec<u8>>>,
    ) -> Result<String, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.trusts) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = config.with_root_certificates(roots);
        let config = match with {
            None => config.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(&pair["tls.crt"])
                    .map(Result::unwrap)
                    .collect();
                let key = PrivateKeyDer::from_pem_slice(&pair["tls.key"]).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from(self.name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let address = format!("{}:{}", self.ip, self.port).parse().unwrap();
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).unwrap();
        stream.set_read_timeout(Some(CONNECT_TIMEOUT)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let memory_requests = format!("GET /version HTTP/1.0\r\nHost: {}\r\n\r\n", self.name);
        let mut answer = String::new();
        let output = stream
            .write_all(memory_requests.as_bytes())
            .and_then(|()| stream.read_to_string(&mut answer));
        match output {
            _ if answer.contains(" 200 OK") => Ok(answer),
            Ok(_) => Err(answer),
            Err(error) => Err(format!("{error:?}")),
        }
    }
}
