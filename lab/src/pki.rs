//! The CAs of a lab and the certificates of its components.
//!
//! A lab has three CAs: one for Kubernetes, one for the front proxy of the aggregation layer (a client with a
//! certificate of this CA can impersonate any user) and one for the datastore. Existing keys are kept, so a second
//! `lab up` changes no certificate.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};

use crate::files;

/// A directory of keys and certificates.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
}

/// The subject of a certificate.
#[derive(Debug)]
pub struct Holder<'a> {
    /// The common name: a Kubernetes user.
    pub name: &'a str,
    /// The organization: a Kubernetes group.
    pub group: Option<&'a str>,
    /// The DNS names of a server certificate.
    pub names: Vec<String>,
    /// The IP addresses of a server certificate.
    pub addresses: Vec<Ipv4Addr>,
}

impl<'a> Holder<'a> {
    /// Returns the subject of a client certificate.
    pub fn client(name: &'a str, group: Option<&'a str>) -> Self {
        Self {
            name,
            group,
            names: Vec::new(),
            addresses: Vec::new(),
        }
    }
}

/// The paths of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The path of the certificate.
    pub cert: PathBuf,
    /// The path of the private key.
    pub key: PathBuf,
}

impl Pki {
    /// Uses the keys and certificates in this directory.
    pub fn at(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    fn files(&self, name: &str) -> CertificateFiles {
        CertificateFiles {
            cert: self.dir.join(format!("{name}.crt")),
            key: self.dir.join(format!("{name}.key")),
        }
    }

    /// Returns the CA with this name; creates it when it is missing.
    pub fn ca(&self, name: &str) -> Result<CertificateFiles> {
        let files = self.files(name);
        if !(files.cert.exists() && files.key.exists()) {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let cert = ca_params(name).self_signed(&key)?;
            // The certificate is written last, so a certificate never exists without its key.
            files::write(&files.key, &key.serialize_pem())?;
            files::write(&files.cert, &cert.pem())?;
        }
        Ok(files)
    }

    /// Returns the certificate with the file name `file`; issues it with the CA `ca_name` when it is missing.
    pub fn issue(
        &self,
        ca_name: &str,
        file: &str,
        holder: &Holder<'_>,
    ) -> Result<CertificateFiles> {
        let files = self.files(file);
        if files.cert.exists() && files.key.exists() {
            return Ok(files);
        }
        let ca = self.ca(ca_name)?;
        let key = KeyPair::from_pem(&fs::read_to_string(&ca.key)?)
            .with_context(|| format!("cannot parse {}", ca.key.display()))?;
        let ca_params = ca_params(ca_name);
        let issuer = Issuer::from_params(&ca_params, key);
        let mut params = params(holder.name);
        if let Some(group) = holder.group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        for name in &holder.names {
            params
                .subject_alt_names
                .push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(
            holder
                .addresses
                .iter()
                .map(|ip| SanType::IpAddress(IpAddr::V4(*ip))),
        );
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !params.subject_alt_names.is_empty() {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let cert = params.signed_by(&leaf_key, &issuer)?;
        files::write(&files.key, &leaf_key.serialize_pem())?;
        files::write(&files.cert, &cert.pem())?;
        Ok(files)
    }

    /// Returns the key pair that signs service account tokens; creates it when it is missing.
    pub fn token_keys(&self) -> Result<CertificateFiles> {
        let files = CertificateFiles {
            cert: self.dir.join("tokens.pub"),
            key: self.dir.join("tokens.key"),
        };
        if !(files.cert.exists() && files.key.exists()) {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            files::write(&files.key, &key.serialize_pem())?;
            files::write(&files.cert, &key.public_key_pem())?;
        }
        Ok(files)
    }
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = params(&format!("evenkeel lab {name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    // Fixed dates: no lab exists that long, and a wrong clock of the machine does not invalidate a certificate.
    params.not_before = date_time_ymd(2024, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
    params
}

/// Writes a kubeconfig that refers to the certificate and key files by path.
pub fn write_kubeconfig(
    path: &Path,
    server: &str,
    ca: &Path,
    user: &str,
    client: &CertificateFiles,
) -> Result<()> {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority": ca}}],
        "users": [{"name": user, "user": {"client-certificate": client.cert, "client-key": client.key}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    });
    files::write(path, &serde_json::to_string_pretty(&config)?)
}
