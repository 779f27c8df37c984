//! What differs between versions of etcd, as data with its sources: flags, and how many learners are taken.

use evenkeel_api::Version;

/// How many learners a cluster takes at once while it is bootstrapped: as many as can be wanted beside the seed.
const MANY_LEARNERS: u8 = 6;

/// What is known of a minor release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minor {
    /// Which, as in 3.6.
    pub minor: u16,
    /// How many learners can be had at once. `--max-learners` begins with 3.6 (`etcd --help` of 3.5.35 and 3.6.16). It must be
    /// the same for all: one that allows fewer refuses, as it replays the log, whom the others took, and panics at the next word of
    /// that member (tried on 3.6.16). After the seal there is never more than one.
    pub max_learners: u8,
    /// The flag that skips the check of a peer's certificate against its address, which asks DNS about a new address and
    /// stalls. Lost its prefix in 3.6, which still takes the old one; 3.7 does not (`etcd --help`).
    pub skip_peer_san: &'static str,
    /// The flags that have members compare hashes when they compact: cheap, and off by default.
    pub compact_hash_check: &'static str,
    /// The flags that have a member compare its data with the others' before it serves.
    pub initial_check: &'static str,
}

/// Every minor release that is known, oldest first. 3.4 is at its end of life.
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
        max_learners: MANY_LEARNERS,
        skip_peer_san: "--peer-skip-client-san-verification",
        compact_hash_check: "CompactHashCheck",
        initial_check: "InitialCorruptCheck",
    },
    Minor {
        minor: 7,
        max_learners: MANY_LEARNERS,
        skip_peer_san: "--peer-skip-client-san-verification",
        compact_hash_check: "CompactHashCheck",
        initial_check: "InitialCorruptCheck",
    },
];

/// What is known of a version's minor release; nothing if it is not known at all.
pub fn minor(version: Version) -> Option<&'static Minor> {
    MINORS
        .iter()
        .find(|known| version.major == 3 && version.minor == known.minor)
}

impl Minor {
    /// The flags that only some versions have, or that have other names in others.
    pub fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("{}=true", self.skip_peer_san)];
        let checks = [self.compact_hash_check, self.initial_check];
        if checks.iter().all(|check| check.starts_with("--")) {
            flags.extend(checks.iter().map(|check| format!("{check}=true")));
        } else {
            // From 3.6 on they are feature gates.
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
