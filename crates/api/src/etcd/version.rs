//! Versions of etcd: three numbers, compared as numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second: what counts when members are upgraded.
    pub minor: u16,
    /// The third.
    pub patch: u16,
}

impl Version {
    /// The version `major.minor.patch`.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What was read is no version, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAVersion(String);

impl fmt::Display for NotAVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAVersion {}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = NotAVersion;

    fn try_from(text: String) -> Result<Self, NotAVersion> {
        text.parse()
    }
}

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        if let Some(rest) = text.strip_prefix('v') {
            return Err(NotAVersion(format!("write {rest}, without the v")));
        }
        let inexact = || {
            NotAVersion(format!(
                "{text:?} is not one exact version: write all three numbers, such as 3.6.16"
            ))
        };
        let mut numbers = text.split('.').map(number);
        match (
            numbers.next(),
            numbers.next(),
            numbers.next(),
            numbers.next(),
        ) {
            (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) => Ok(Self {
                major,
                minor,
                patch,
            }),
            _ => Err(inexact()),
        }
    }
}

/// At most four digits, and no zero in front: there must be one way to write a version, since images are named by it.
fn number(text: &str) -> Option<u16> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = digits && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_as_it_is_written() {
        for text in ["3.5.11", "3.6.0", "3.7.3", "0.0.0", "3.5.9999"] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn versions_compare_as_numbers_and_not_as_text() {
        let of = |text: &str| text.parse::<Version>().unwrap();
        assert!(of("3.5.9") < of("3.5.11"));
        assert!(of("3.5.35") < of("3.6.0"));
        assert!(of("3.10.0") > of("3.9.9"));
    }

    #[test]
    fn a_v_in_front_is_answered_with_what_to_write() {
        assert_eq!(
            "v3.5.30".parse::<Version>().unwrap_err().to_string(),
            "write 3.5.30, without the v"
        );
    }

    #[test]
    fn anything_but_three_plain_numbers_is_refused() {
        for text in [
            "",
            "3",
            "3.5",
            "3.5.",
            ".5.1",
            "3.5.1.2",
            "latest",
            "3.6.0-rc.1",
            "3.06.1",
            "3.6.+1",
            " 3.6.1",
            "3.6.10000",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
        }
    }
}
