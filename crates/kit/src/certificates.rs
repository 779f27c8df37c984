//! Certificate authorities and certificates: generating, signing, parsing, and checking them. Private keys are
//! stored in Secrets and nowhere else.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use evenkeel_runtime::UnixTime;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair as PrivateKey, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, GeneralName, Pem, X509Certificate};

/// The lifetime of a CA.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The lifetime of a leaf certificate.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// How far the beginning of a lifetime lies in the past, because clocks differ.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// A leaf certificate as it should be. `K` identifies the Secret of the CA that signs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf<K> {
    /// The CA that signs the certificate.
    pub signed_by: K,
    /// The common name of the subject. Some applications use it as a user name.
    pub common_name: &'static str,
    /// The DNS names and IP addresses that the certificate is valid for.
    pub names: Vec<String>,
}

/// A certificate with its private key, as PEM.
#[derive(Clone)]
pub struct KeyPair {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl std::fmt::Debug for KeyPair {
    /// Omits both texts, so that keys do not get into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair").finish_non_exhaustive()
    }
}

/// A certificate that could not be generated.
#[derive(Debug, thiserror::Error)]
#[error("failed to generate a certificate: {0}")]
pub struct CertificateError(String);

impl From<rcgen::Error> for CertificateError {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

/// Generates a CA that is valid from `now` on.
pub fn generate_ca(name: &str, now: UnixTime) -> Result<KeyPair, CertificateError> {
    let key = PrivateKey::generate()?;
    let mut params = with_lifetime(now, CA_LIFETIME)?;
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let certificate = params.self_signed(&key)?;
    Ok(KeyPair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Generates a certificate that `ca` signs, for server and client authentication: members are both.
pub fn sign_leaf<K>(
    leaf: &Leaf<K>,
    ca: &KeyPair,
    now: UnixTime,
) -> Result<KeyPair, CertificateError> {
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, PrivateKey::from_pem(&ca.key)?)?;
    let key = PrivateKey::generate()?;
    let mut params = with_lifetime(now, LEAF_LIFETIME)?;
    params.distinguished_name = common_name(leaf.common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    for name in &leaf.names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(Ia5String::try_from(name.clone())?),
        });
    }
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(KeyPair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

fn with_lifetime(now: UnixTime, lifetime: Duration) -> Result<CertificateParams, CertificateError> {
    let date = |time: UnixTime| {
        OffsetDateTime::from_unix_timestamp(time.0)
            .map_err(|error| CertificateError(error.to_string()))
    };
    let clock_skew = i64::try_from(CLOCK_SKEW.as_secs()).unwrap_or_default();
    let mut params = CertificateParams::default();
    params.not_before = date(UnixTime(now.0.saturating_sub(clock_skew)))?;
    params.not_after = date(now.after(lifetime))?;
    Ok(params)
}

/// The names and the lifetime in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The DNS names and IP addresses that the certificate is valid for.
    pub names: BTreeSet<String>,
    /// The beginning of the lifetime.
    pub not_before: UnixTime,
    /// The end of the lifetime.
    pub not_after: UnixTime,
}

/// Parses the first certificate in a PEM text; `None` if it is malformed.
pub fn parse(pem: &str) -> Option<CertificateInfo> {
    let pem = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.map(|names| {
        names
            .value
            .general_names
            .iter()
            .filter_map(name_to_string)
            .collect()
    });
    let validity = certificate.validity();
    Some(CertificateInfo {
        names: names.unwrap_or_default(),
        not_before: UnixTime(validity.not_before.timestamp()),
        not_after: UnixTime(validity.not_after.timestamp()),
    })
}

/// Returns true if the certificate can be parsed and the private key belongs to it. A certificate that is signed with
/// another CA's key can be parsed, but every peer rejects it.
pub fn key_matches(pair: &KeyPair) -> bool {
    let Some(Ok(pem)) = Pem::iter_from_buffer(pair.certificate.as_bytes()).next() else {
        return false;
    };
    let (Ok((_, certificate)), Ok(key)) = (
        X509Certificate::from_der(&pem.contents),
        PrivateKey::from_pem(&pair.key),
    ) else {
        return false;
    };
    certificate.public_key().subject_public_key.data == key.public_key_raw()
}

fn name_to_string(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => {
            let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from))
                .ok()
                .map(|address| address.to_string())
        }
        _ => None,
    }
}

/// Returns true if a certificate has exactly the desired names and more than a third of its lifetime left. With less left
/// it is renewed, long before it expires.
pub fn is_valid_leaf<K>(leaf: &Leaf<K>, pem: &str, now: UnixTime) -> bool {
    let Some(info) = parse(pem) else { return false };
    let desired_names: BTreeSet<String> = leaf.names.iter().cloned().collect();
    let lifetime = info.not_after.since(info.not_before);
    info.names == desired_names && info.not_after.since(now) > lifetime / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn leaf(names: &[&str]) -> Leaf<()> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Leaf {
            signed_by: (),
            common_name: "server",
            names,
        }
    }

    #[test]
    fn a_certificate_is_valid_for_its_own_names_only() {
        let ca = generate_ca("clients of orders", NOW).unwrap();
        let desired = leaf(&[
            "orders-client.shop.svc",
            "*.orders-peer.shop.svc",
            "127.0.0.1",
            "::1",
        ]);
        let pair = sign_leaf(&desired, &ca, NOW).unwrap();
        assert!(is_valid_leaf(&desired, &pair.certificate, NOW));
        assert!(
            !is_valid_leaf(&leaf(&["orders-client.shop.svc"]), &pair.certificate, NOW),
            "the certificate has more names"
        );
        assert!(!is_valid_leaf(&desired, "no certificate", NOW));
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_lifetime_is_left() {
        let ca = generate_ca("clients of orders", NOW).unwrap();
        let desired = leaf(&["a.example"]);
        let pair = sign_leaf(&desired, &ca, NOW).unwrap();
        let is_valid = |now| is_valid_leaf(&desired, &pair.certificate, now);
        assert!(is_valid(NOW.after(LEAF_LIFETIME / 2)));
        assert!(!is_valid(NOW.after(LEAF_LIFETIME * 3 / 4)));
        assert!(!is_valid(NOW.after(LEAF_LIFETIME * 2)));
    }

    #[test]
    fn a_key_matches_only_its_own_certificate() {
        let ca = generate_ca("a", NOW).unwrap();
        let other = generate_ca("a", NOW).unwrap();
        let signed = sign_leaf(&leaf(&["a.example"]), &ca, NOW).unwrap();
        assert!(key_matches(&ca) && key_matches(&signed));
        let with_key = |key: &str| KeyPair {
            key: key.to_owned(),
            ..ca.clone()
        };
        assert!(!key_matches(&with_key(&other.key)) && !key_matches(&with_key("garbage")));
        assert!(!key_matches(&KeyPair {
            certificate: "garbage".to_owned(),
            ..ca
        }));
    }

    #[test]
    fn debug_output_contains_no_key() {
        let pair = generate_ca("x", NOW).unwrap();
        assert!(!format!("{pair:?}").contains("PRIVATE"));
    }
}
