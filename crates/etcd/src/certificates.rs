//! Certificates: made here, and judged by what they say. Keys are made and put into Secrets, and go nowhere else.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use evenkeel::Time;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, GeneralName, Pem, X509Certificate};

use crate::build::tls::Leaf;

/// How long an authority lasts.
const AUTHORITY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long a certificate lasts.
const LEAF: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks differ.
const BEFORE: Duration = Duration::from_secs(3600);

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys do not belong into logs.
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// A certificate that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate: {0}")]
pub struct NotMade(String);

impl From<rcgen::Error> for NotMade {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

/// A new authority.
pub fn authority(name: &str, now: Time) -> Result<Pair, NotMade> {
    let key = KeyPair::generate()?;
    let mut params = lasting(now, AUTHORITY)?;
    params.distinguished_name = called(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let certificate = params.self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// A new certificate, signed by an authority. All serve and connect: members do both.
pub fn signed(leaf: &Leaf, by: &Pair, now: Time) -> Result<Pair, NotMade> {
    let issuer = Issuer::from_ca_cert_pem(&by.certificate, KeyPair::from_pem(&by.key)?)?;
    let key = KeyPair::generate()?;
    let mut params = lasting(now, LEAF)?;
    params.distinguished_name = called(leaf.common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    for name in &leaf.names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(Ia5String::try_from(name.clone())?),
        });
    }
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn called(name: &str) -> DistinguishedName {
    let mut whole = DistinguishedName::new();
    whole.push(DnType::CommonName, name);
    whole
}

fn lasting(now: Time, how_long: Duration) -> Result<CertificateParams, NotMade> {
    let at =
        |time: Time| OffsetDateTime::from_unix_timestamp(time.0).map_err(|error| NotMade(error.to_string()));
    let mut params = CertificateParams::default();
    params.not_before = at(Time(now.0.saturating_sub(i64::try_from(BEFORE.as_secs()).unwrap_or_default())))?;
    params.not_after = at(now.after(how_long))?;
    Ok(params)
}

/// What a certificate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The host names and addresses it is good for.
    pub names: BTreeSet<String>,
    /// From when.
    pub begins: Time,
    /// Until when.
    pub ends: Time,
}

/// What a certificate says of itself; nothing if it cannot be read.
pub fn read(pem: &str) -> Option<Said> {
    let pem = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.map(|names| names.value.general_names.iter().filter_map(shown).collect());
    let validity = certificate.validity();
    Some(Said {
        names: names.unwrap_or_default(),
        begins: Time(validity.not_before.timestamp()),
        ends: Time(validity.not_after.timestamp()),
    })
}

/// Whether a certificate can be read, and the key beside it is its own. What an authority with another's key signs looks good
/// and is trusted by nobody.
pub fn is_whole(pair: &Pair) -> bool {
    let Some(Ok(pem)) = Pem::iter_from_buffer(pair.certificate.as_bytes()).next() else { return false };
    let (Ok((_, certificate)), Ok(key)) =
        (X509Certificate::from_der(&pem.contents), KeyPair::from_pem(&pair.key))
    else {
        return false;
    };
    certificate.public_key().subject_public_key.data == key.public_key_raw()
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => {
            let four = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// Whether a certificate is as it should be: for these names, and with more than a third of its time left. etcd reads
/// certificates anew at each connection, so one that is replaced in time is never missed.
pub fn is_good(leaf: &Leaf, pem: &str, now: Time) -> bool {
    let Some(said) = read(pem) else { return false };
    let wanted: BTreeSet<String> = leaf.names.iter().cloned().collect();
    let whole = said.ends.since(said.begins);
    said.names == wanted && said.ends.since(now) > whole / 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Object;

    const NOW: Time = Time(1_800_000_000);

    fn leaf(names: &[&str]) -> Leaf {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Leaf { signed_by: Object::ClientCa, common_name: "server", names }
    }

    #[test]
    fn a_certificate_says_what_it_was_made_for() {
        let by = authority("clients of orders", NOW).unwrap();
        let wanted = leaf(&["orders-client.shop.svc", "*.orders-peer.shop.svc", "127.0.0.1", "::1"]);
        let pair = signed(&wanted, &by, NOW).unwrap();
        assert!(is_good(&wanted, &pair.certificate, NOW));
        assert!(!is_good(&leaf(&["orders-client.shop.svc"]), &pair.certificate, NOW), "a name too many");
        assert!(!is_good(&wanted, "no certificate", NOW));
    }

    #[test]
    fn it_is_replaced_when_a_third_of_its_time_is_left() {
        let by = authority("clients of orders", NOW).unwrap();
        let wanted = leaf(&["a.example"]);
        let pair = signed(&wanted, &by, NOW).unwrap();
        assert!(is_good(&wanted, &pair.certificate, NOW.after(LEAF / 2)));
        assert!(!is_good(&wanted, &pair.certificate, NOW.after(LEAF * 3 / 4)));
        assert!(!is_good(&wanted, &pair.certificate, NOW.after(LEAF * 2)));
    }

    #[test]
    fn a_certificate_with_anothers_key_or_none_is_not_whole() {
        let (by, other) = (authority("a", NOW).unwrap(), authority("a", NOW).unwrap());
        assert!(is_whole(&by) && is_whole(&signed(&leaf(&["a.example"]), &by, NOW).unwrap()));
        assert!(!is_whole(&Pair { key: other.key, ..by.clone() }));
        assert!(!is_whole(&Pair { key: "garbage".to_owned(), ..by.clone() }));
        assert!(!is_whole(&Pair { certificate: "garbage".to_owned(), ..by }));
    }

    #[test]
    fn keys_are_not_shown() {
        let pair = authority("x", NOW).unwrap();
        assert!(!format!("{pair:?}").contains("PRIVATE"));
    }
}
