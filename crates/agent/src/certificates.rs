//! Certificates for an application that serves restored data in the same pod: a new CA, and a certificate for 127.0.0.1 that
//! server and client share. They exist as long as the pod, and no other server trusts the CA.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use evenkeel_archive::tasks::FailureReason;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};

use crate::AgentFailure;

/// The user of the application that the certificate is of: etcd reads it from the common name.
const USER: &str = "root";

/// Writes `ca.crt`, `tls.crt` and `tls.key` to a directory. The key of the CA is not kept.
pub(crate) fn write_certificates(dir: &Path) -> Result<(), AgentFailure> {
    let failed = |error: rcgen::Error| {
        AgentFailure::new(
            FailureReason::Other,
            format!("failed to create a certificate: {error}"),
        )
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| AgentFailure::file("create the directory", dir, &error))?;
    let ca_key = KeyPair::generate().map_err(failed)?;
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.distinguished_name
        .push(DnType::CommonName, "evenkeel-drill");
    let ca_certificate = ca.self_signed(&ca_key).map_err(failed)?;
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, USER);
    params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    write(dir, "ca.crt", &ca_certificate.pem())?;
    write(dir, "tls.crt", &certificate.pem())?;
    write(dir, "tls.key", &key.serialize_pem())
}

fn write(dir: &Path, name: &str, content: &str) -> Result<(), AgentFailure> {
    let path = dir.join(name);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path);
    file.and_then(|mut file| file.write_all(content.as_bytes()))
        .map_err(|error| AgentFailure::file("write", &path, &error))
}
