//! `spec.etcd.options`: validates additional flags of etcd and translates them into arguments for each version. The
//! rules of the schema are generated from the same table, which was compared with `etcd --help` of 3.5.35, 3.6.16 and
//! 3.7.3 and tried on all three.
//!
//! A wrong flag would keep each member from starting as the rollout reaches it, so unknown flags are rejected.

pub(crate) mod cel;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::etcd::releases::Minor;
use crate::etcd::version::Version;
use table::{
    ALLOWED, AllowedFlag, ELECTION_TIMEOUT, FORBIDDEN, FlagValue, ForbiddenFlags,
    HEARTBEAT_INTERVAL, MIN_HEARTBEATS_PER_ELECTION, MinorDifference, NumericFlag, UNKNOWN_FLAG,
};

/// Validated flags of etcd, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Validates flags for a version of etcd.
    pub fn validate(options: &BTreeMap<String, String>, version: Version) -> Result<Self, String> {
        for (name, value) in options {
            let Some(flag) = ALLOWED.iter().find(|flag| flag.name == name) else {
                let forbidden = FORBIDDEN.iter().find(|forbidden| forbidden.matches(name));
                let reason = forbidden.map_or(UNKNOWN_FLAG, |forbidden| forbidden.reason);
                return Err(format!("option \"{name}\" {reason}"));
            };
            if !flag.value.accepts(value) {
                return Err(flag.invalid_value_message());
            }
            if flag.name_in(version).is_none() {
                return Err(flag.missing_message());
            }
        }
        let options = Self(options.clone());
        if options.number(&HEARTBEAT_INTERVAL) * MIN_HEARTBEATS_PER_ELECTION
            > options.number(&ELECTION_TIMEOUT)
        {
            return Err(too_few_heartbeats_message());
        }
        Ok(options)
    }

    /// Returns the value of a numeric flag, or its default.
    fn number(&self, flag: &NumericFlag) -> u64 {
        self.0
            .get(flag.name)
            .and_then(|value| value.parse().ok())
            .unwrap_or(flag.default)
    }

    /// Checks whether members with these flags and members with `others` can run together during a rollout. A member
    /// whose election timeout is close to the leader's heartbeat interval would start an election between two
    /// heartbeats.
    pub fn check_compatible(&self, others: &Self) -> Result<(), String> {
        for (leader, follower) in [(self, others), (others, self)] {
            let heartbeat = leader.number(&HEARTBEAT_INTERVAL);
            let election = follower.number(&ELECTION_TIMEOUT);
            if heartbeat * MIN_HEARTBEATS_PER_ELECTION > election {
                return Err(format!(
                    "cannot be changed in one step: during the rollout, members with an election-timeout of {election} would \
                     follow a leader with a heartbeat-interval of {heartbeat}. Change the options in steps, so that each \
                     election-timeout, old and new, is at least {MIN_HEARTBEATS_PER_ELECTION} times each heartbeat-interval"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the flags as arguments, with the names that this version of etcd uses.
pub fn flags(version: Version, options: &Options) -> Vec<String> {
    let name_in = |name: &str| {
        let flag = ALLOWED.iter().find(|flag| flag.name == name)?;
        flag.name_in(version)
    };
    options
        .0
        .iter()
        .filter_map(|(name, value)| Some(format!("--{}={value}", name_in(name)?)))
        .collect()
}

/// Returns the names of all flags that users can set in a version, without dashes.
pub fn allowed_flags(version: Version) -> Vec<&'static str> {
    ALLOWED
        .iter()
        .filter_map(|flag| flag.name_in(version))
        .collect()
}

/// Returns the allowed flags as rows of a Markdown table for docs/configuration/options.md.
pub fn table() -> String {
    let row = |flag: &AllowedFlag| {
        let AllowedFlag {
            name,
            value,
            default,
            description,
            differences: _,
        } = flag;
        let missing_in = flag.missing_in();
        let exceptions = if missing_in.is_empty() {
            String::new()
        } else {
            format!(" (not in {})", missing_in.join(" and "))
        };
        format!(
            "| `{name}` | {} | {default} | {description}{exceptions} |\n",
            value.description()
        )
    };
    ALLOWED.iter().map(row).collect()
}

impl AllowedFlag {
    /// Returns the name of the flag in a version of etcd, or `None` if the version does not have it.
    fn name_in(&self, version: Version) -> Option<&'static str> {
        let difference = self
            .differences
            .iter()
            .find(|difference| difference.minor == Minor::of(version));
        match difference {
            None => Some(self.name),
            Some(difference) if version.patch < difference.since_patch => None,
            Some(difference) => difference.name,
        }
    }

    /// Returns the versions that do not have the flag.
    fn missing_in(&self) -> Vec<String> {
        self.differences
            .iter()
            .filter_map(MinorDifference::missing_in)
            .collect()
    }

    /// Returns the message for a value that the flag does not accept.
    pub(crate) fn invalid_value_message(&self) -> String {
        format!(
            "option \"{}\" must be {}",
            self.name,
            self.value.description()
        )
    }

    /// Returns the message for versions that do not have the flag.
    pub(crate) fn missing_message(&self) -> String {
        format!(
            "option \"{}\" does not exist in etcd {}. Remove it, or use a later version",
            self.name,
            self.missing_in().join(" and ")
        )
    }
}

impl MinorDifference {
    /// Returns the versions of this minor release that do not have the flag.
    fn missing_in(&self) -> Option<String> {
        match (self.name, self.since_patch) {
            (None, _) => Some(self.minor.to_string()),
            (Some(_), 0) => None,
            (Some(_), patch) => Some(format!("{} before {}.{patch}", self.minor, self.minor)),
        }
    }
}

impl FlagValue {
    fn accepts(&self, text: &str) -> bool {
        match self {
            Self::Number { min, max } => {
                parse_number(text).is_some_and(|number| (*min..=*max).contains(&number))
            }
            Self::Duration { min, max } => parse_duration(text).is_some_and(|duration| {
                parse_duration(min) <= Some(duration) && Some(duration) <= parse_duration(max)
            }),
            Self::OneOf(words) => words.contains(&text),
        }
    }

    /// Describes the accepted values.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::Duration { min, max } => {
                format!("a number with ms, s, m or h, from {min} to {max}")
            }
            Self::OneOf(words) => match words.split_last() {
                Some((last, [])) => (*last).to_owned(),
                Some((last, others)) => format!("{} or {last}", others.join(", ")),
                None => String::new(),
            },
        }
    }
}

/// Parses a number of at most ten digits without leading zeros.
fn parse_number(text: &str) -> Option<u64> {
    let has_digits =
        (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text != "0" && text.starts_with('0');
    if has_digits && !has_leading_zero {
        text.parse().ok()
    } else {
        None
    }
}

/// Parses a number of at most six digits with one unit.
fn parse_duration(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let count = parse_number(digits).filter(|_| digits.len() <= 6)?;
    match unit {
        "ms" => Some(Duration::from_millis(count)),
        "s" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_secs(count * 60)),
        "h" => Some(Duration::from_secs(count * 3600)),
        _ => None,
    }
}

impl ForbiddenFlags {
    fn matches(&self, name: &str) -> bool {
        self.names.contains(&name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

pub(crate) fn too_few_heartbeats_message() -> String {
    format!(
        "option \"{election}\" (default {}) must be at least {MIN_HEARTBEATS_PER_ELECTION} times \"{heartbeat}\" (default \
         {}), or etcd does not start. Increase {election}, or decrease {heartbeat}",
        ELECTION_TIMEOUT.default,
        HEARTBEAT_INTERVAL.default,
        election = ELECTION_TIMEOUT.name,
        heartbeat = HEARTBEAT_INTERVAL.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::releases::RELEASES;

    fn validated(options: &[(&str, &str)], version: &str) -> Result<Vec<String>, String> {
        let options = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let version = version.parse().unwrap();
        Options::validate(&options, version).map(|options| flags(version, &options))
    }

    #[test]
    fn each_version_gets_a_flag_by_the_name_that_it_uses() {
        let options = [
            ("compaction-batch-limit", "500"),
            ("heartbeat-interval", "200"),
        ];
        let flags = |version| validated(&options, version).unwrap();
        assert_eq!(
            flags("3.5.35"),
            [
                "--experimental-compaction-batch-limit=500",
                "--heartbeat-interval=200"
            ]
        );
        for version in ["3.6.16", "3.7.3"] {
            assert_eq!(
                flags(version),
                ["--compaction-batch-limit=500", "--heartbeat-interval=200"]
            );
        }
    }

    #[test]
    fn a_flag_that_the_version_does_not_have_is_rejected() {
        let reason = |name, version| validated(&[(name, "1s")], version).unwrap_err();
        assert_eq!(
            reason("warning-unary-request-duration", "3.5.35"),
            "option \"warning-unary-request-duration\" does not exist in etcd 3.5. Remove it, or use a later version"
        );
        assert!(
            reason("compaction-sleep-interval", "3.5.15").contains("in etcd 3.5 before 3.5.16")
        );
        assert!(validated(&[("compaction-sleep-interval", "1s")], "3.5.16").is_ok());
        assert!(validated(&[("warning-unary-request-duration", "1s")], "3.6.4").is_ok());
    }

    #[test]
    fn a_flag_that_the_operator_owns_is_rejected_with_a_remedy() {
        for (name, expected) in [
            ("quota-backend-bytes", "Use spec.etcd.quota"),
            ("auto-compaction-mode", "Use spec.etcd.autoCompaction"),
            ("--heartbeat-interval", "without leading dashes"),
            (
                "experimental-warning-apply-duration",
                "without experimental-",
            ),
            (
                "initial-cluster-state",
                "names, addresses and data directories",
            ),
            ("peer-trusted-ca-file", "spec.tls"),
            ("force-new-cluster", "split the cluster"),
            ("listen-metrics-urls", "addresses"),
            ("frobnicate", "docs/configuration/options.md"),
        ] {
            let reason = validated(&[(name, "1")], "3.6.16").unwrap_err();
            assert!(
                reason.starts_with(&format!("option \"{name}\" ")) && reason.contains(expected),
                "{reason}"
            );
        }
    }

    #[test]
    fn values_of_a_wrong_type_or_out_of_bounds_are_rejected() {
        for (name, value) in [
            ("heartbeat-interval", "9"),
            ("heartbeat-interval", "0100"),
            ("heartbeat-interval", "100ms"),
            ("heartbeat-interval", "-100"),
            ("max-txn-ops", ""),
            ("max-concurrent-streams", "4294967296"),
            ("max-concurrent-streams", "99999999999999999999"),
            ("log-level", "Info"),
            ("warning-apply-duration", "100"),
            ("warning-apply-duration", "0ms"),
            ("warning-apply-duration", "1h30m"),
            ("warning-apply-duration", "1.5s"),
            ("enable-grpc-gateway", "yes"),
        ] {
            let reason = validated(&[(name, value)], "3.6.16").unwrap_err();
            assert!(
                reason.starts_with(&format!("option \"{name}\" must be ")),
                "{value}: {reason}"
            );
        }
    }

    #[test]
    fn the_election_timeout_must_be_at_least_five_heartbeat_intervals() {
        for (options, is_valid) in [
            (&[("heartbeat-interval", "200")][..], true),
            (&[("heartbeat-interval", "201")], false),
            (&[("election-timeout", "500")], true),
            (&[("election-timeout", "499")], false),
            (
                &[
                    ("heartbeat-interval", "10000"),
                    ("election-timeout", "50000"),
                ],
                true,
            ),
            (
                &[("heartbeat-interval", "300"), ("election-timeout", "1499")],
                false,
            ),
        ] {
            assert_eq!(
                validated(options, "3.6.16").is_ok(),
                is_valid,
                "{options:?}"
            );
        }
    }

    #[test]
    fn flags_before_and_after_a_rollout_must_be_compatible() {
        let options = |heartbeat: &str, election: &str| {
            let options = [
                ("heartbeat-interval", heartbeat),
                ("election-timeout", election),
            ];
            let options = options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Options::validate(&options.collect(), Version::new(3, 6, 16)).unwrap()
        };
        let (slow, fast, between) = (
            options("2000", "20000"),
            options("100", "1000"),
            options("200", "10000"),
        );
        assert!(
            slow.check_compatible(&fast)
                .unwrap_err()
                .contains("Change the options in steps")
        );
        assert!(fast.check_compatible(&slow).is_err());
        assert_eq!(
            slow.check_compatible(&between)
                .and_then(|()| between.check_compatible(&fast)),
            Ok(())
        );
        assert_eq!(
            Options::default().check_compatible(&fast),
            Ok(()),
            "these are the defaults"
        );
    }

    #[test]
    fn the_table_is_consistent() {
        for flag in ALLOWED {
            let AllowedFlag { name, value, .. } = flag;
            assert!(
                !FORBIDDEN.iter().any(|forbidden| forbidden.matches(name)),
                "{name} is forbidden as well"
            );
            assert_eq!(
                ALLOWED.iter().filter(|other| other.name == *name).count(),
                1,
                "{name}"
            );
            if let FlagValue::Duration { min, max } = value {
                assert!(value.accepts(min) && value.accepts(max), "{name}");
            }
            for release in RELEASES {
                let last_patch = Version::new(release.minor.0, release.minor.1, 9999);
                assert!(
                    flag.name_in(last_patch)
                        .is_none_or(|own| own.trim_start_matches("experimental-") == *name),
                    "{name}"
                );
            }
        }
        assert!(ALLOWED.is_sorted_by_key(|flag| flag.name));
    }

    #[test]
    fn the_docs_list_the_allowed_flags() {
        let page = include_str!("../../../../../docs/configuration/options.md");
        let table = table();
        assert!(
            page.contains(&table),
            "docs/configuration/options.md should have\n{table}"
        );
    }
}
