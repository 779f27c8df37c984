//! Certificates: made here, and judged by what they say. Keys are made and put into Secrets, and go nowhere else.

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

use crate::build::tls::Leaf;

/// How long an authority lasts.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long a certificate lasts.
const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks differ.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct KeyPair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys do not belong into logs.
        f.debug_struct("KeyPair").finish_non_exhaustive()
    }
}

/// A certificate that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate: {0}")]
pub struct CertificateError(String);

impl From<rcgen::Error> for CertificateError {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

/// A new authority.
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

/// A new certificate, signed by an authority. All serve and connect: members do both.
pub fn sign_leaf(leaf: &Leaf, by: &KeyPair, now: UnixTime) -> Result<KeyPair, CertificateError> {
    let issuer = Issuer::from_ca_cert_pem(&by.certificate, PrivateKey::from_pem(&by.key)?)?;
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
    let mut whole = DistinguishedName::new();
    whole.push(DnType::CommonName, name);
    whole
}

fn with_lifetime(now: UnixTime, how_long: Duration) -> Result<CertificateParams, CertificateError> {
    let at = |time: UnixTime| {
        OffsetDateTime::from_unix_timestamp(time.0)
            .map_err(|error| CertificateError(error.to_string()))
    };
    let mut params = CertificateParams::default();
    params.not_before = at(UnixTime(
        now.0
            .saturating_sub(i64::try_from(CLOCK_SKEW.as_secs()).unwrap_or_default()),
    ))?;
    params.not_after = at(now.after(how_long))?;
    Ok(params)
}

/// What a certificate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The host names and addresses it is good for.
    pub names: BTreeSet<String>,
    /// From when.
    pub begins: UnixTime,
    /// Until when.
    pub ends: UnixTime,
}

/// What a certificate says of itself; nothing if it cannot be read.
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
        begins: UnixTime(validity.not_before.timestamp()),
        ends: UnixTime(validity.not_after.timestamp()),
    })
}

/// Whether a certificate can be read, and the key beside it is its own. What an authority with another's key signs looks good
/// and is trusted by nobody.
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
            let four = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from))
                .ok()
                .map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// Whether a certificate is as it should be: for these names, and with more than a third of its time left. etcd reads
/// certificates anew at each connection, so one that is replaced in time is never missed.
pub fn is_valid_leaf(leaf: &Leaf, pem: &str, now: UnixTime) -> bool {
    let Some(said) = parse(pem) else { return false };
    let desired: BTreeSet<String> = leaf.names.iter().cloned().collect();
    let whole = said.ends.since(said.begins);
    said.names == desired && said.ends.since(now) > whole / 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::OwnedObject;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn leaf(names: &[&str]) -> Leaf {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Leaf {
            signed_by: OwnedObject::ClientCa,
            common_name: "server",
            names,
        }
    }

    #[test]
    fn a_certificate_says_what_it_was_made_for() {
        let by = generate_ca("clients of orders", NOW).unwrap();
        let desired = leaf(&[
            "orders-etcd-client.shop.svc",
            "*.orders-etcd-peer.shop.svc",
            "127.0.0.1",
            "::1",
        ]);
        let pair = sign_leaf(&desired, &by, NOW).unwrap();
        assert!(is_valid_leaf(&desired, &pair.certificate, NOW));
        assert!(
            !is_valid_leaf(
                &leaf(&["orders-etcd-client.shop.svc"]),
                &pair.certificate,
                NOW
            ),
            "a name too many"
        );
        assert!(!is_valid_leaf(&desired, "no certificate", NOW));
    }

    #[test]
    fn it_is_replaced_when_a_third_of_its_time_is_left() {
        let by = generate_ca("clients of orders", NOW).unwrap();
        let desired = leaf(&["a.example"]);
        let pair = sign_leaf(&desired, &by, NOW).unwrap();
        assert!(is_valid_leaf(
            &desired,
            &pair.certificate,
            NOW.after(LEAF_LIFETIME / 2)
        ));
        assert!(!is_valid_leaf(
            &desired,
            &pair.certificate,
            NOW.after(LEAF_LIFETIME * 3 / 4)
        ));
        assert!(!is_valid_leaf(
            &desired,
            &pair.certificate,
            NOW.after(LEAF_LIFETIME * 2)
        ));
    }

    #[test]
    fn a_certificate_with_anothers_key_or_none_is_not_whole() {
        let (by, other) = (
            generate_ca("a", NOW).unwrap(),
            generate_ca("a", NOW).unwrap(),
        );
        assert!(
            key_matches(&by) && key_matches(&sign_leaf(&leaf(&["a.example"]), &by, NOW).unwrap())
        );
        assert!(!key_matches(&KeyPair {
            key: other.key,
            ..by.clone()
        }));
        assert!(!key_matches(&KeyPair {
            key: "garbage".to_owned(),
            ..by.clone()
        }));
        assert!(!key_matches(&KeyPair {
            certificate: "garbage".to_owned(),
            ..by
        }));
    }

    #[test]
    fn keys_are_not_shown() {
        let pair = generate_ca("x", NOW).unwrap();
        assert!(!format!("{pair:?}").contains("PRIVATE"));
    }
}
