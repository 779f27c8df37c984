//! Differences between minor releases of etcd, as data with its sources: flags and the number of learners.

use evenkeel_api::Version;

/// The number of learners that can join at once during bootstrap: the largest number of members without the seed.
const MAX_BOOTSTRAP_LEARNERS: u8 = 6;

/// A minor release of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minor {
    /// The minor version: 6 for 3.6.
    pub minor: u16,
    /// The number of learners that can join at once. `--max-learners` exists since 3.6 (`etcd --help` of 3.5.35 and 3.6.16).
    /// It must be the same for all members: a member that allows fewer rejects, when it replays the log, a learner that the
    /// others accepted, and panics at the next message of that learner (tried on 3.6.16). After bootstrap there is never more
    /// than one learner.
    pub max_learners: u8,
    /// The flag that skips the check of a peer's certificate against its address. The check asks DNS about a new address and
    /// stalls. The flag lost its prefix in 3.6, which still accepts the old name; 3.7 does not (`etcd --help`).
    pub skip_peer_san: &'static str,
    /// The flag or feature gate that makes members compare hashes at each compaction. It is cheap, and off by default.
    pub compact_hash_check: &'static str,
    /// The flag or feature gate that makes a member compare its data with the other members' before it serves.
    pub initial_check: &'static str,
}

/// The known minor releases, oldest first. 3.4 is at its end of life.
pub const MINORS: [Minor; 3] = [
    Minor {
        minor: 5,
        max_learners: 1,
        skip_peer_san: "--experimental-peer-skip-client-san-verification",
        compact_hash_check: "--experimental-compact-hash-check-enabled",
        initial_check: "--experimental-initial-corrupt-check",
    },
    Minor {
        minor: 6,
        max_learners: MAX_BOOTSTRAP_LEARNERS,
        skip_peer_san: "--peer-skip-client-san-verification",
        compact_hash_check: "CompactHashCheck",
        initial_check: "InitialCorruptCheck",
    },
    Minor {
        minor: 7,
        max_learners: MAX_BOOTSTRAP_LEARNERS,
        skip_peer_san: "--peer-skip-client-san-verification",
        compact_hash_check: "CompactHashCheck",
        initial_check: "InitialCorruptCheck",
    },
];

/// Returns the minor release of a version; `None` if it is not known.
pub fn minor(version: Version) -> Option<&'static Minor> {
    MINORS
        .iter()
        .find(|known| version.major == 3 && version.minor == known.minor)
}

impl Minor {
    /// Returns the flags that only some versions have, or that have other names in other versions.
    pub fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("{}=true", self.skip_peer_san)];
        let checks = [self.compact_hash_check, self.initial_check];
        if checks.iter().all(|check| check.starts_with("--")) {
            flags.extend(checks.iter().map(|check| format!("{check}=true")));
        } else {
            // They are feature gates since 3.6.
            flags.push(format!(
                "--feature-gates={}=true,{}=true",
                checks[0], checks[1]
            ));
        }
        if self.max_learners > 1 {
            flags.push(format!("--max-learners={}", self.max_learners));
        }
        flags
    }
}
