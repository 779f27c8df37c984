//! The lab's own certificate authorities, and the certificate of everybody who speaks in it.
//!
//! Three authorities, as on a good cluster: one for Kubernetes, one for the aggregation layer's front proxy (whoever
//! holds that one may claim to be anybody) and one for the datastore. A key that exists is kept, so that `lab up`
//! twice changes nobody's identity.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};

use crate::files;

/// The lab's keys and certificates on disk.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
}

/// What a certificate says about its holder.
#[derive(Debug)]
pub struct Holder<'a> {
    /// The common name: a Kubernetes user.
    pub name: &'a str,
    /// The organisation: a Kubernetes group.
    pub group: Option<&'a str>,
    /// The names under which it serves, if it does.
    pub names: Vec<String>,
    /// The addresses at which it serves, if it does.
    pub addresses: Vec<Ipv4Addr>,
}

impl<'a> Holder<'a> {
    /// One that only calls others.
    pub fn client(name: &'a str, group: Option<&'a str>) -> Self {
        Self {
            name,
            group,
            names: Vec::new(),
            addresses: Vec::new(),
        }
    }
}

/// Where a certificate and its key are.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Pki {
    /// The keys and certificates in this directory.
    pub fn at(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    fn files(&self, name: &str) -> Files {
        Files {
            cert: self.dir.join(format!("{name}.crt")),
            key: self.dir.join(format!("{name}.key")),
        }
    }

    /// The authority of this name, made where it is missing.
    pub fn authority(&self, name: &str) -> Result<Files> {
        let files = self.files(name);
        if !(files.cert.exists() && files.key.exists()) {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let cert = authority_params(name).self_signed(&key)?;
            // The certificate last: where it exists, so does its key.
            files::write(&files.key, &key.serialize_pem())?;
            files::write(&files.cert, &cert.pem())?;
        }
        Ok(files)
    }

    /// The certificate in the files `file`, signed by the authority `by`, made where it is missing.
    pub fn issue(&self, by: &str, file: &str, holder: &Holder<'_>) -> Result<Files> {
        let files = self.files(file);
        if files.cert.exists() && files.key.exists() {
            return Ok(files);
        }
        let authority = self.authority(by)?;
        let key = KeyPair::from_pem(&fs::read_to_string(&authority.key)?)
            .with_context(|| format!("{} is damaged", authority.key.display()))?;
        let authority = authority_params(by);
        let issuer = Issuer::from_params(&authority, key);
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
        let own = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let cert = params.signed_by(&own, &issuer)?;
        files::write(&files.key, &own.serialize_pem())?;
        files::write(&files.cert, &cert.pem())?;
        Ok(files)
    }

    /// The key pair that signs service account tokens, made where it is missing.
    pub fn token_keys(&self) -> Result<Files> {
        let files = Files {
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

fn authority_params(name: &str) -> CertificateParams {
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
    // A lab does not live for ten years, and its clock may be off by days.
    params.not_before = date_time_ymd(2024, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
    params
}

/// Writes a kubeconfig that names files rather than holding keys.
pub fn write_kubeconfig(
    path: &Path,
    server: &str,
    ca: &Path,
    user: &str,
    client: &Files,
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
