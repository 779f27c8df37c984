//! Versions of etcd: three numbers that are compared numerically.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::common::rejection::invalid_value;

/// The message for a text that is not an exact version.
pub(crate) const MUST_BE_EXACT: &str = "must be an exact version of three numbers, such as 3.6.16. \
    The meaning of 3.6 or latest changes over time, which would cause unplanned upgrades";

/// A version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version {
    /// The major version.
    pub major: u16,
    /// The minor version. Upgrades go one minor version at a time.
    pub minor: u16,
    /// The patch version.
    pub patch: u16,
}

impl Version {
    /// Creates the version `major.minor.patch`.
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

/// The message for a text that is not a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidVersion(String);

impl fmt::Display for InvalidVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidVersion {}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = InvalidVersion;

    fn try_from(text: String) -> Result<Self, InvalidVersion> {
        text.parse()
    }
}

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        if let Some(rest) = text.strip_prefix('v') {
            return Err(InvalidVersion(format!("must not start with v. Use {rest}")));
        }
        let inexact = || InvalidVersion(invalid_value(text, MUST_BE_EXACT));
        let mut numbers = text.split('.').map(parse_number);
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

/// Parses a number of at most four digits without leading zeros. A version has only one notation, since the image tag is
/// derived from it.
fn parse_number(text: &str) -> Option<u16> {
    let has_digits =
        (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text != "0" && text.starts_with('0');
    if has_digits && !has_leading_zero {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_printed_as_it_was_parsed() {
        for text in ["3.5.11", "3.6.0", "3.7.3", "0.0.0", "3.5.9999"] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn versions_are_compared_numerically() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("3.5.9") < version("3.5.11"));
        assert!(version("3.5.35") < version("3.6.0"));
        assert!(version("3.10.0") > version("3.9.9"));
    }

    #[test]
    fn a_leading_v_is_rejected_with_the_correct_notation() {
        assert_eq!(
            "v3.5.30".parse::<Version>().unwrap_err().to_string(),
            "must not start with v. Use 3.5.30"
        );
    }

    #[test]
    fn other_texts_than_three_plain_numbers_are_rejected() {
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
