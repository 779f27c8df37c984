//! Further flags of etcd that users may set: which, to what, and what each version calls them. It is data, checked
//! against `etcd --help` of 3.5.35, 3.6.16 and 3.7.3 and tried on all three. The rules in the schema are made from it.
//!
//! A flag that is wrong would end each member in turn as it is restarted, so what is not known here is refused.

pub(crate) mod cel;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::etcd::releases::Minor;
use crate::etcd::version::Version;
use table::{
    ELECTION, Elsewhere, HEARTBEAT, HEARTBEATS, KNOWN, Known, REFUSED, Refused, UNKNOWN, Value,
};

/// Further flags of etcd that were checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Checks them, for a version.
    pub fn checked(options: &BTreeMap<String, String>, version: Version) -> Result<Self, String> {
        for (name, value) in options {
            let told = |why: String| format!("{name}: {why}");
            let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
                let refused = REFUSED.iter().find(|refused| refused.fits(name));
                return Err(told(
                    refused.map_or(UNKNOWN, |refused| refused.why).to_owned(),
                ));
            };
            if !known.value.takes(value) {
                return Err(known.wrong());
            }
            if known.flag(version).is_none() {
                return Err(known.missing());
            }
        }
        let options = Self(options.clone());
        if options.number(HEARTBEAT) * HEARTBEATS > options.number(ELECTION) {
            return Err(too_few_heartbeats());
        }
        Ok(options)
    }

    /// The value of an option that is a number, or its default.
    fn number(&self, (name, default): (&str, u64)) -> u64 {
        self.0
            .get(name)
            .and_then(|value| value.parse().ok())
            .unwrap_or(default)
    }

    /// Whether members with these get along with members that have others already, while they are restarted one by one: one whose
    /// election timeout is near the leader's heartbeat calls for an election between two of them.
    pub fn may_become(&self, others: &Self) -> Result<(), String> {
        for (heartbeat, election) in [(self, others), (others, self)] {
            let (heartbeat, election) = (heartbeat.number(HEARTBEAT), election.number(ELECTION));
            if heartbeat * HEARTBEATS > election {
                return Err(format!(
                    "members are restarted one by one, and those with an election-timeout of {election} would not get along \
                     with a heartbeat-interval of {heartbeat}, which others have meanwhile: go in steps, so that each \
                     election-timeout is at least {HEARTBEATS} times the heartbeat-interval before and after"
                ));
            }
        }
        Ok(())
    }
}

/// The options as etcd's arguments, by the names that a version knows them by.
pub fn flags(version: Version, options: &Options) -> Vec<String> {
    let flag = |name: &str| KNOWN.iter().find(|known| known.name == name)?.flag(version);
    options
        .0
        .iter()
        .filter_map(|(name, value)| Some(format!("--{}={value}", flag(name)?)))
        .collect()
}

/// Every flag that an option can become in a version, without dashes.
pub fn possible(version: Version) -> Vec<&'static str> {
    KNOWN
        .iter()
        .filter_map(|known| known.flag(version))
        .collect()
}

/// The options as the rows of a table in the docs.
pub fn table() -> String {
    let row = |known: &Known| {
        let Known {
            name,
            value,
            default,
            about,
            elsewhere,
        } = known;
        let lacks: Vec<_> = elsewhere.iter().filter_map(Elsewhere::lacks).collect();
        let lacks = if lacks.is_empty() {
            String::new()
        } else {
            format!(" (not in {})", lacks.join(" and "))
        };
        format!(
            "| `{name}` | {} | {default} | {about}{lacks} |\n",
            value.words()
        )
    };
    KNOWN.iter().map(row).collect()
}

impl Known {
    /// What a version calls it, if it has it.
    fn flag(&self, version: Version) -> Option<&'static str> {
        match self
            .elsewhere
            .iter()
            .find(|elsewhere| elsewhere.minor == Minor::of(version))
        {
            None => Some(self.name),
            Some(elsewhere) if version.patch < elsewhere.since => None,
            Some(elsewhere) => elsewhere.name,
        }
    }

    /// What is said of a value that it does not take.
    pub(crate) fn wrong(&self) -> String {
        let Self { name, value, .. } = self;
        format!("{name} is {}", value.words())
    }

    /// What is said where it does not exist.
    pub(crate) fn missing(&self) -> String {
        let places: Vec<_> = self.elsewhere.iter().filter_map(Elsewhere::lacks).collect();
        format!(
            "{} does not exist in {}: leave it out, or use a later version",
            self.name,
            places.join(" and ")
        )
    }
}

impl Elsewhere {
    /// The versions that lack it, if some do.
    fn lacks(&self) -> Option<String> {
        match (self.name, self.since) {
            (None, _) => Some(self.minor.to_string()),
            (Some(_), 0) => None,
            (Some(_), since) => Some(format!("{} before {}.{since}", self.minor, self.minor)),
        }
    }
}

impl Value {
    fn takes(&self, text: &str) -> bool {
        match self {
            Self::Number(least, most) => {
                number(text).is_some_and(|number| (*least..=*most).contains(&number))
            }
            Self::Duration(least, most) => duration(text)
                .is_some_and(|it| duration(least) <= Some(it) && Some(it) <= duration(most)),
            Self::Word(words) => words.contains(&text),
        }
    }

    /// What to write.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Number(least, most) => format!("a whole number from {least} to {most}"),
            Self::Duration(least, most) => {
                format!("a number with ms, s, m or h, from {least} to {most}")
            }
            Self::Word(words) => match words.split_last() {
                Some((last, [])) => (*last).to_owned(),
                Some((last, others)) => format!("{} or {last}", others.join(", ")),
                None => String::new(),
            },
        }
    }
}

/// A number as there is one way to write it.
fn number(text: &str) -> Option<u64> {
    let plain = (1..=10).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    if plain && (text == "0" || !text.starts_with('0')) {
        text.parse().ok()
    } else {
        None
    }
}

/// A number and one unit.
fn duration(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit())?);
    let count = number(digits).filter(|_| digits.len() <= 6)?;
    match unit {
        "ms" => Some(Duration::from_millis(count)),
        "s" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_secs(count * 60)),
        "h" => Some(Duration::from_secs(count * 3600)),
        _ => None,
    }
}

impl Refused {
    fn fits(&self, name: &str) -> bool {
        self.names.contains(&name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

pub(crate) fn too_few_heartbeats() -> String {
    let ((heartbeat, normal), (election, as_a_rule)) = (HEARTBEAT, ELECTION);
    format!(
        "{election} ({as_a_rule} unless set) is less than {HEARTBEATS} times {heartbeat} ({normal} unless set): etcd would \
         not start. Raise the one, or lower the other"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::releases::RELEASES;

    fn checked(options: &[(&str, &str)], version: &str) -> Result<Vec<String>, String> {
        let options = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let version = version.parse().unwrap();
        Options::checked(&options, version).map(|options| flags(version, &options))
    }

    #[test]
    fn each_version_gets_an_option_by_the_name_that_it_knows() {
        let options = [
            ("compaction-batch-limit", "500"),
            ("heartbeat-interval", "200"),
        ];
        let flags = |version| checked(&options, version).unwrap();
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
    fn what_a_version_does_not_have_is_refused() {
        let refused = |name, version| checked(&[(name, "1s")], version).unwrap_err();
        assert_eq!(
            refused("warning-unary-request-duration", "3.5.35"),
            "warning-unary-request-duration does not exist in 3.5: leave it out, or use a later version"
        );
        assert!(refused("compaction-sleep-interval", "3.5.15").contains("in 3.5 before 3.5.16"));
        assert!(checked(&[("compaction-sleep-interval", "1s")], "3.5.16").is_ok());
        assert!(checked(&[("warning-unary-request-duration", "1s")], "3.6.4").is_ok());
    }

    #[test]
    fn what_fights_the_operator_is_refused_with_what_to_do() {
        for (name, why) in [
            ("quota-backend-bytes", "use spec.etcd.quota"),
            ("auto-compaction-mode", "use spec.etcd.autoCompaction"),
            ("--heartbeat-interval", "leave out the dashes"),
            (
                "experimental-warning-apply-duration",
                "leave out experimental-",
            ),
            ("initial-cluster-state", "names, addresses and data"),
            ("peer-trusted-ca-file", "spec.tls"),
            ("force-new-cluster", "two clusters"),
            ("listen-metrics-urls", "addresses"),
            ("frobnicate", "docs/tasks/options.md"),
        ] {
            let said = checked(&[(name, "1")], "3.6.16").unwrap_err();
            assert!(said.starts_with(name) && said.contains(why), "{said}");
        }
    }

    #[test]
    fn values_are_held_to_their_kind_and_bounds() {
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
            let said = checked(&[(name, value)], "3.6.16").unwrap_err();
            assert!(said.starts_with(&format!("{name} is ")), "{value}: {said}");
        }
    }

    #[test]
    fn an_election_takes_five_heartbeats() {
        for (options, good) in [
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
            assert_eq!(checked(options, "3.6.16").is_ok(), good, "{options:?}");
        }
    }

    #[test]
    fn what_members_have_one_after_the_other_must_get_along() {
        let options = |heartbeat: &str, election: &str| {
            let options = [
                ("heartbeat-interval", heartbeat),
                ("election-timeout", election),
            ];
            let options = options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Options::checked(&options.collect(), Version::new(3, 6, 16)).unwrap()
        };
        let (slow, fast, between) = (
            options("2000", "20000"),
            options("100", "1000"),
            options("200", "10000"),
        );
        assert!(slow.may_become(&fast).unwrap_err().contains("go in steps"));
        assert!(fast.may_become(&slow).is_err());
        assert_eq!(
            slow.may_become(&between)
                .and_then(|()| between.may_become(&fast)),
            Ok(())
        );
        assert_eq!(
            Options::default().may_become(&fast),
            Ok(()),
            "these are the defaults"
        );
    }

    #[test]
    fn the_data_hold_together() {
        for known in KNOWN {
            let Known { name, value, .. } = known;
            assert!(
                !REFUSED.iter().any(|refused| refused.fits(name)),
                "{name} is refused as well"
            );
            assert_eq!(
                KNOWN.iter().filter(|other| other.name == *name).count(),
                1,
                "{name}"
            );
            if let Value::Duration(least, most) = value {
                assert!(value.takes(least) && value.takes(most), "{name}");
            }
            for release in RELEASES {
                let version = |patch| Version::new(release.minor.0, release.minor.1, patch);
                let late = known.flag(version(9999));
                assert!(
                    late.is_none_or(|flag| flag.trim_start_matches("experimental-") == *name),
                    "{name}"
                );
            }
        }
        assert!(KNOWN.is_sorted_by_key(|known| known.name));
    }

    #[test]
    fn the_docs_list_what_there_is() {
        let page = include_str!("../../../../../docs/tasks/options.md");
        let table = table();
        assert!(
            page.contains(&table),
            "docs/tasks/options.md should have\n{table}"
        );
    }
}
