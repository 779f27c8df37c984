//! The identity of members: uids, lineage, epoch, serial, and the name that follows from them. The name is a pure function,
//! so that a crash between adding a member and creating its pod can be resumed from the application's own member list.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use evenkeel_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The uid of a Kubernetes object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Uid(pub u128);

impl Uid {
    /// Returns a uid that is derived from a text: for objects whose own uid cannot be read, such as PersistentVolumes,
    /// and for hashes.
    pub fn of_name(name: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(name.as_bytes()).into();
        Self(
            digest
                .iter()
                .take(16)
                .fold(0, |number, byte| number << 8 | u128::from(*byte)),
        )
    }

    /// Returns the uid in an object's metadata; `None` if there is none or it is not a UUID.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        metadata.uid.as_ref()?.parse().ok()
    }
}

impl fmt::Display for Uid {
    /// Writes the uid as Kubernetes does, with dashes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(
            f,
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }
}

/// A text that is not a uid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a uid: expected 32 hexadecimal digits")]
pub struct InvalidUid(String);

impl FromStr for Uid {
    type Err = InvalidUid;

    fn from_str(text: &str) -> Result<Self, InvalidUid> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let number = u128::from_str_radix(&digits, 16).map_err(|_| InvalidUid(text.to_owned()))?;
        if digits.len() == 32 {
            Ok(Self(number))
        } else {
            Err(InvalidUid(text.to_owned()))
        }
    }
}

impl From<Uid> for String {
    fn from(uid: Uid) -> Self {
        uid.to_string()
    }
}

impl TryFrom<String> for Uid {
    type Error = InvalidUid;

    fn try_from(text: String) -> Result<Self, InvalidUid> {
        text.parse()
    }
}

/// The random number of a cluster's data, drawn once at its first bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lineage(pub u32);

/// The number of a bootstrap or restore within a lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u16);

impl Epoch {
    /// The epoch of the first bootstrap.
    pub const FIRST: Self = Self(1);

    /// Returns the next epoch.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The number of a member within its lineage: reserved before any object of the member is created, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Serial(pub u16);

impl Serial {
    /// Returns the next serial.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The alphabet of generated names, as in Kubernetes: no vowels, no characters that look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The number of suffixes: 27 to the fifth.
const SUFFIX_COUNT: u64 = 14_348_907;
/// A factor that is not divisible by 3, so that multiplying by it is one-to-one among the suffixes, and that is large, so
/// that consecutive serials have dissimilar suffixes.
const MULTIPLIER: u64 = 8_121_349;

/// Returns the name of a member, such as `orders-k7f2x`. Two serials of a lineage never have the same name; the epoch does
/// not matter, because serials are unique across the epochs of a lineage.
pub fn member_name(cluster: &str, lineage: Lineage, serial: Serial) -> String {
    let mut number = (u64::from(serial.0) * MULTIPLIER + u64::from(lineage.0)) % SUFFIX_COUNT;
    let mut suffix = [0; 5];
    for place in &mut suffix {
        let letter = usize::try_from(number % 27).unwrap_or_default();
        *place = ALPHABET[letter];
        number /= 27;
    }
    format!("{cluster}-{}", String::from_utf8_lossy(&suffix))
}

/// The member that a pod or a PVC belongs to, as its annotations say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRef {
    /// The lineage of the cluster.
    pub lineage: Lineage,
    /// The epoch that the member was created in.
    pub epoch: Epoch,
    /// The serial of the member.
    pub serial: Serial,
}

impl MemberRef {
    /// Returns the annotations of the member's objects. A deleted identity object is rebuilt from them.
    pub fn annotations(&self) -> Value {
        json!({
            labels::LINEAGE: format!("{:08x}", self.lineage.0),
            labels::EPOCH: self.epoch.0.to_string(),
            labels::SERIAL: self.serial.0.to_string(),
        })
    }

    /// Reads the member from annotations; `None` if one of them is missing or malformed.
    pub fn read(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let lineage = u32::from_str_radix(annotations.get(labels::LINEAGE)?, 16).ok()?;
        let epoch = annotations.get(labels::EPOCH)?.parse().ok()?;
        let serial = annotations.get(labels::SERIAL)?.parse().ok()?;
        Some(Self {
            lineage: Lineage(lineage),
            epoch: Epoch(epoch),
            serial: Serial(serial),
        })
    }

    /// Reads the member from the annotations of an object.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Self::read(metadata.annotations.as_ref()?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_uid_is_formatted_as_kubernetes_does() {
        let text = "0c9e8a1f-33aa-4bcd-9e01-0123456789ab";
        assert_eq!(text.parse::<Uid>().unwrap().to_string(), text);
        assert!("0c9e8a1f".parse::<Uid>().is_err() && "no uid".parse::<Uid>().is_err());
    }

    #[test]
    fn two_serials_of_a_lineage_never_have_the_same_name() {
        let lineage = Lineage(0xdead_beef);
        let names: HashSet<_> = (0..=u16::MAX)
            .map(|serial| member_name("a", lineage, Serial(serial)))
            .collect();
        assert_eq!(names.len(), usize::from(u16::MAX) + 1);
    }

    #[test]
    fn member_names_never_change() {
        // Volumes and the application's member list contain them: a change here orphans every existing cluster.
        assert_eq!(member_name("orders", Lineage(7), Serial(0)), "orders-kbbbb");
        assert_eq!(member_name("orders", Lineage(7), Serial(1)), "orders-9nvkt");
    }

    #[test]
    fn a_member_is_read_from_the_annotations_that_it_writes() {
        let member = MemberRef {
            lineage: Lineage(7),
            epoch: Epoch(2),
            serial: Serial(11),
        };
        let annotations: BTreeMap<String, String> =
            serde_json::from_value(member.annotations()).unwrap();
        assert_eq!(MemberRef::read(&annotations), Some(member));
        for key in annotations.keys() {
            let mut incomplete = annotations.clone();
            incomplete.remove(key);
            assert_eq!(MemberRef::read(&incomplete), None, "without {key}");
        }
    }
}
