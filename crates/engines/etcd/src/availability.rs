//! Whether clients can read and write, and which further failures the cluster tolerates. Pure.
//!
//! The operator evaluates its facts with these functions, and `kubectl evenkeel status` the answers of the members at
//! that moment, so that both state the same for the same answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use crate::view::quorum;

/// An alarm that etcd has raised. It stays until a client disarms it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[strum(serialize_all = "UPPERCASE")]
#[serde(rename_all = "UPPERCASE")]
pub enum Alarm {
    /// The database of a member has reached its quota. etcd rejects writes that need space.
    NoSpace,
    /// The data of members differs. etcd rejects requests.
    Corrupt,
}

impl Alarm {
    /// Parses an entry of `errors` in a member's status, such as `memberID:8e9e05c52164694d alarm:NOSPACE`. Other
    /// entries, as of a member without a leader, are not alarms.
    pub fn from_status_error(error: &str) -> Option<Self> {
        let (_, name) = error.split_once("alarm:")?;
        name.split_whitespace().next()?.parse().ok()
    }
}

/// Whether clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Availability {
    /// Clients can read and write.
    ReadWrite,
    /// etcd rejects writes because of an alarm.
    WritesRejected(Alarm),
    /// Clients can neither read nor write.
    Unavailable,
    /// No member could be queried.
    Unknown,
}

impl Availability {
    /// Returns whether clients are served, given whether linearizable reads are answered (`None` if unknown) and the
    /// raised alarms. A raised alarm is certain even if reads are not.
    pub fn new(answers_reads: Option<bool>, alarms: impl IntoIterator<Item = Alarm>) -> Self {
        match (answers_reads, alarms.into_iter().max()) {
            (Some(false), _) => Self::Unavailable,
            (_, Some(alarm)) => Self::WritesRejected(alarm),
            (Some(true), None) => Self::ReadWrite,
            (None, None) => Self::Unknown,
        }
    }
}

/// A voting member and its failure domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voter {
    /// Whether the member serves.
    pub is_serving: bool,
    /// The node that it runs on.
    pub node: Option<String>,
    /// The zone of that node.
    pub zone: Option<String>,
}

/// The further failures that a cluster tolerates while clients can still write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureTolerance {
    /// The number of members that may fail.
    pub members: usize,
    /// The tolerance for nodes; `None` if the node of a serving voter is unknown.
    pub nodes: Option<DomainTolerance>,
    /// The tolerance for zones; `None` if the zone of a serving voter is unknown.
    pub zones: Option<DomainTolerance>,
}

/// The tolerance for failures of one kind of domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainTolerance {
    /// The number of domains that may fail, whichever they are.
    pub failures: usize,
    /// The number of domains that serving voters are in.
    pub domains: usize,
    /// The domains whose loss alone loses the quorum, sorted.
    pub critical: Vec<String>,
}

impl FailureTolerance {
    /// Returns the tolerance of a cluster with these voters, or `None` without a quorum. `unknown_voters` have a vote,
    /// and nothing is known about their health.
    pub fn of(voters: &[Voter], unknown_voters: usize) -> Option<Self> {
        let quorum = quorum(voters.len() + unknown_voters);
        let serving: Vec<_> = voters.iter().filter(|voter| voter.is_serving).collect();
        let members = serving.len().checked_sub(quorum)?;
        let domain = |domain_of: fn(&Voter) -> Option<&String>| {
            let domains: Option<Vec<_>> = serving.iter().map(|voter| domain_of(voter)).collect();
            Some(DomainTolerance::of(&domains?, quorum))
        };
        Some(Self {
            members,
            nodes: domain(|voter| voter.node.as_ref()),
            zones: domain(|voter| voter.zone.as_ref()),
        })
    }

    /// Summarizes the tolerance in a few words: the domain that tolerates least decides.
    pub fn summary(&self) -> String {
        let members = count(self.members, "member");
        match &self.nodes {
            _ if self.members == 0 => "nothing".to_owned(),
            Some(nodes) if nodes.failures == self.members => count(nodes.failures, "node"),
            Some(nodes) => format!("{members}, {}", count(nodes.failures, "node")),
            None => members,
        }
    }
}

impl DomainTolerance {
    /// Returns the tolerance, given the domain of each serving voter.
    fn of(domains: &[&String], quorum: usize) -> Self {
        let mut sizes: BTreeMap<&String, usize> = BTreeMap::new();
        for domain in domains {
            *sizes.entry(domain).or_default() += 1;
        }
        let critical = sizes
            .iter()
            .filter(|(_, size)| domains.len() - **size < quorum)
            .map(|(domain, _)| (*domain).clone())
            .collect();
        // The domains with most voters fail first.
        let mut largest: Vec<_> = sizes.values().copied().collect();
        largest.sort_unstable_by(|one, other| other.cmp(one));
        let mut left = domains.len();
        let failures = largest
            .iter()
            .take_while(|size| {
                left -= **size;
                left >= quorum
            })
            .count();
        Self {
            failures,
            domains: sizes.len(),
            critical,
        }
    }
}

/// Returns a number with its noun, such as "2 nodes".
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns serving voters on these nodes; `-` for a voter that is down.
    fn voters(nodes: &[&str]) -> Vec<Voter> {
        let voter = |node: &&str| Voter {
            is_serving: *node != "-",
            node: Some((*node).to_owned()),
            zone: None,
        };
        nodes.iter().map(voter).collect()
    }

    fn tolerance(nodes: &[&str]) -> (usize, usize, Vec<String>) {
        let tolerance = FailureTolerance::of(&voters(nodes), 0).unwrap();
        let nodes = tolerance.nodes.unwrap();
        (tolerance.members, nodes.failures, nodes.critical)
    }

    #[test]
    fn members_on_separate_nodes_tolerate_as_many_nodes_as_members() {
        assert_eq!(tolerance(&["a", "b", "c"]), (1, 1, vec![]));
        assert_eq!(tolerance(&["a", "b", "c", "d", "e"]), (2, 2, vec![]));
        assert_eq!(
            tolerance(&["a"]),
            (0, 0, vec!["a".to_owned()]),
            "the only member"
        );
    }

    #[test]
    fn a_node_with_too_many_members_is_critical() {
        assert_eq!(tolerance(&["a", "a", "b"]), (1, 0, vec!["a".to_owned()]));
        assert_eq!(tolerance(&["a", "a", "a"]), (1, 0, vec!["a".to_owned()]));
        assert_eq!(
            tolerance(&["a", "a", "b", "b", "c"]),
            (2, 1, vec![]),
            "any one node, and not two"
        );
    }

    #[test]
    fn members_that_are_down_count_towards_the_quorum_only() {
        let both = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(tolerance(&["a", "b", "-"]), (0, 0, both));
        assert_eq!(FailureTolerance::of(&voters(&["a", "-", "-"]), 0), None);
        assert_eq!(
            FailureTolerance::of(&voters(&["a", "b", "c"]), 2)
                .unwrap()
                .members,
            0
        );
    }

    #[test]
    fn an_unknown_node_makes_the_tolerance_for_nodes_unknown() {
        let mut voters = voters(&["a", "b", "c"]);
        voters[1].node = None;
        let tolerance = FailureTolerance::of(&voters, 0).unwrap();
        assert_eq!((tolerance.members, tolerance.nodes), (1, None));
    }

    #[test]
    fn the_summary_names_members_only_if_nodes_tolerate_less() {
        let summary = |nodes: &[&str]| FailureTolerance::of(&voters(nodes), 0).unwrap().summary();
        assert_eq!(summary(&["a", "b", "c"]), "1 node");
        assert_eq!(summary(&["a", "a", "b"]), "1 member, 0 nodes");
        assert_eq!(summary(&["a", "b", "-"]), "nothing");
    }

    #[test]
    fn an_alarm_is_parsed_from_the_errors_of_a_status() {
        let parse = Alarm::from_status_error;
        assert_eq!(
            parse("memberID:10501334649042878790 alarm:NOSPACE "),
            Some(Alarm::NoSpace)
        );
        assert_eq!(
            parse("memberID:1 alarm:CORRUPT"),
            Some(Alarm::Corrupt),
            "without a trailing blank"
        );
        assert_eq!(parse("etcdserver: no leader"), None);
    }

    #[test]
    fn an_alarm_means_that_writes_are_rejected_unless_nothing_is_served() {
        use Availability::{ReadWrite, Unavailable, Unknown, WritesRejected};
        let full = WritesRejected(Alarm::NoSpace);
        assert_eq!(Availability::new(Some(true), []), ReadWrite);
        assert_eq!(Availability::new(Some(true), [Alarm::NoSpace]), full);
        assert_eq!(Availability::new(None, [Alarm::NoSpace]), full);
        assert_eq!(
            Availability::new(Some(false), [Alarm::NoSpace]),
            Unavailable
        );
        assert_eq!(Availability::new(None, []), Unknown);
    }
}
