//! What is known of etcd's releases: which may be run, and which may follow which. It is data, with its sources, and
//! says when it does not know. The rules in the schema are made from the same data.
//!
//! The changelogs are those of etcd's repository as of August 2026; `#` stands for its issues and pull requests.

pub(crate) mod cel;

use std::fmt;

use crate::etcd::version::Version;

/// What is known of a minor release.
pub(crate) struct Release {
    /// Which, as in 3.6.
    pub minor: Minor,
    /// The lowest patch that is run at all, and what is wrong with those below.
    pub lowest: (u16, &'static str),
    /// The lowest patch from which the next minor may be entered, and what goes wrong from those below. Nothing where
    /// no next minor is known.
    pub leaves_from: Option<(u16, &'static str)>,
    /// Whether it reads nothing that the minor before the last has written to the log: every member must then have taken a snapshot
    /// since all have left that one.
    pub wants_renewed_log: bool,
    /// Patches that no cluster should be brought to. Clusters that are there already stay managed.
    pub bad: &'static [Bad],
}

/// Patches of a minor release that are known to be bad, and why.
pub(crate) struct Bad {
    /// The first of them.
    pub first: u16,
    /// The last of them: the next is mended.
    pub last: u16,
    /// What they do.
    pub why: &'static str,
}

/// The first two numbers of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Minor(pub u16, pub u16);

/// Every minor release that is run, oldest first.
pub(crate) const RELEASES: &[Release] = &[
    Release {
        minor: Minor(3, 5),
        // CHANGELOG-3.5: /livez and /readyz came with 3.5.11. CHANGELOG/README: 3.5.0 to 3.5.2 lose writes when they
        // are killed (use 3.5.4); 3.5.6 keeps members alike when one crashes in a defragmentation (#14733).
        lowest: (
            11,
            "Evenkeel needs the health checks that came with 3.5.11, and 3.5.0 to 3.5.5 can damage data",
        ),
        // etcd's guide to the upgrade wants 3.5.26: 3.5.20 writes promotions down where 3.6 looks for them (#19557,
        // "too many learner members"), 3.5.24 those that came with a snapshot from an older one (#20793), 3.5.26 drops
        // removed members that 3.6 would count again (#20967). We want more, since learners come and go here:
        // 3.5.30 takes a new member while another is down (#21669), 3.5.31 does not promote by accident (#21694), 3.5.32
        // can pass over old v2 content that stops 3.6 (#21897).
        leaves_from: Some((
            32,
            "before it, members that were promoted or removed long ago can undo the upgrade",
        )),
        // Looked at, and not held against a release: 3.5.22 (and 3.6.4) and before can damage a member's data that is defragmented
        // in the very moment it is sent a snapshot (#20271), which Evenkeel never does; watchers can miss a deletion
        // at a compaction (3.5.17 and before, #19249); stale reads after a pause (3.5.27 and before, #21421).
        wants_renewed_log: false,
        bad: &[],
    },
    Release {
        minor: Minor(3, 6),
        lowest: (0, ""),
        // etcd's guide to the upgrade wants 3.6.11, without saying more; it takes a new member while another is down
        // (#21667).
        leaves_from: Some((
            11,
            "etcd's authors do not vouch for a roll from earlier ones",
        )),
        wants_renewed_log: false,
        bad: &[Bad {
            first: 0,
            last: 3,
            // CHANGELOG-3.6, 3.6.4: #20340, mended by #20387. Here every member was a learner once. 3.6.0 moreover
            // panics at a promotion (#20051).
            why: "once members were added and removed, they can fail at every start",
        }],
    },
    Release {
        minor: Minor(3, 7),
        lowest: (0, ""),
        leaves_from: None,
        // Nothing is known: CHANGELOG-3.7 up to 3.7.1 mends nothing of the kind. Those of 3.7.2 and 3.7.3 were not at
        // hand; 3.7.3 was tried.
        // 3.5 writes members' names and the cluster's version as requests of the v2 API; 3.7 has no code for them, and panics at every
        // start on a log that has them: "unmarshal should never fail" (tried: 3.5.35, 3.6.16 and 3.7.3 on one directory, with and
        // without a snapshot between; `server/etcdserver/apply` of 3.6 and 3.7). etcd takes one after 10,000 entries only.
        wants_renewed_log: true,
        bad: &[],
    },
];

/// Minor releases that were run once, and why they are not run any more.
pub(crate) const RETIRED: &[(Minor, &str)] = &[(
    Minor(3, 4),
    "3.4 is at its end of life and gets no more fixes: use 3.5 or later",
)];

impl Minor {
    pub(crate) fn of(version: Version) -> Self {
        Self(version.major, version.minor)
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0, self.1 + 1)
    }

    pub(crate) fn release(self) -> Option<&'static Release> {
        RELEASES.iter().find(|release| release.minor == self)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Whether a version may be run at all; else why not, and what to use instead. One that is known to be bad may: what
/// runs stays managed.
pub fn runnable(version: Version) -> Result<(), String> {
    let minor = Minor::of(version);
    if let Some((_, why)) = RETIRED.iter().find(|(retired, _)| *retired == minor) {
        return Err((*why).to_owned());
    }
    match minor.release() {
        None => Err(unknown()),
        Some(release) if version.patch < release.lowest.0 => Err(too_old(release)),
        Some(_) => Ok(()),
    }
}

/// Whether a cluster may be brought to `target` whose members were started with `lowest` to `highest`; else why not,
/// and what to do.
///
/// One minor at a time, and never back once all have left it: data that only a later minor has written is not read by
/// an earlier one. While some still run the earlier one, etcd lets the others go back to it.
pub fn may_follow(lowest: Version, highest: Version, target: Version) -> Result<(), String> {
    if target == lowest && target == highest {
        return Ok(());
    }
    runnable(target)?;
    let (from, to) = (Minor::of(lowest), Minor::of(target));
    if to < from {
        return Err(downgrade(from, to));
    }
    if Minor::of(highest) > from && to > Minor::of(highest) {
        return Err(format!(
            "members still run {lowest}: it follows once all run {}",
            Minor::of(highest)
        ));
    }
    if to > from.next() {
        return Err(skips(from, to));
    }
    if let Some(release) = from.release().filter(|_| to > from)
        && let Some((least, _)) = release.leaves_from
        && lowest.patch < least
    {
        return Err(too_early(&lowest.to_string(), to, release));
    }
    match bad(target) {
        Some(why) if target != lowest && target != highest => Err(why),
        _ => Ok(()),
    }
}

/// Whether members that run `from` must have renewed their logs before `target` is entered.
pub fn wants_renewed_log(from: Version, target: Version) -> bool {
    let (from, to) = (Minor::of(from), Minor::of(target));
    to > from
        && to
            .release()
            .is_some_and(|release| release.wants_renewed_log)
}

/// Why no cluster should be brought to a version, if that is known.
pub fn bad(version: Version) -> Option<String> {
    let release = Minor::of(version).release()?;
    let bad = release
        .bad
        .iter()
        .find(|bad| (bad.first..=bad.last).contains(&version.patch))?;
    Some(known_bad(release, bad))
}

// What is said, here and in the schema alike.

pub(crate) fn unknown() -> String {
    let known: Vec<_> = RELEASES
        .iter()
        .map(|release| release.minor.to_string())
        .collect();
    let (last, others) = known
        .split_last()
        .map_or(("", &[][..]), |(last, others)| (last, others));
    format!(
        "not known to this release of Evenkeel, which runs {} and {last}",
        others.join(", ")
    )
}

pub(crate) fn too_old(release: &Release) -> String {
    format!(
        "too old: {}. Use the newest {}",
        release.lowest.1, release.minor
    )
}

pub(crate) fn known_bad(release: &Release, bad: &Bad) -> String {
    let Release { minor, .. } = release;
    let Bad { first, last, why } = bad;
    format!(
        "{minor}.{first} to {minor}.{last} are known to be bad: {why}. Use {minor}.{} or later",
        last + 1
    )
}

pub(crate) fn downgrade(from: Minor, to: Minor) -> String {
    format!(
        "{from} cannot become {to} again: all members have left it, and the data with them. Stay with {from}, or create \
         another cluster and copy the data"
    )
}

pub(crate) fn skips(from: Minor, to: Minor) -> String {
    format!(
        "{from} cannot become {to} at once: go to {} first",
        from.next()
    )
}

/// After the version that is left.
pub(crate) fn too_early(lowest: &str, to: Minor, release: &Release) -> String {
    let (least, why) = release.leaves_from.unwrap_or_default();
    format!(
        "{lowest} cannot become {to}: go to {}.{least} or later first; {why}",
        release.minor
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Version {
        text.parse().unwrap()
    }

    /// From one version that all run.
    fn follows(from: &str, to: &str) -> Result<(), String> {
        may_follow(of(from), of(from), of(to))
    }

    #[test]
    fn what_cannot_be_run_says_why_and_what_to_use() {
        let why = |text: &str| runnable(of(text)).unwrap_err();
        assert!(
            why("3.4.37").contains("end of life") && why("3.4.37").contains("use 3.5 or later")
        );
        assert!(why("3.5.10").contains("3.5.11") && why("3.5.10").contains("Use the newest 3.5"));
        for text in ["3.3.27", "3.8.0", "2.3.8", "4.0.0", "3.50.1", "4.5.35"] {
            assert_eq!(
                why(text),
                "not known to this release of Evenkeel, which runs 3.5, 3.6 and 3.7",
                "{text}"
            );
        }
        for text in ["3.5.11", "3.5.35", "3.6.0", "3.6.16", "3.7.3", "3.7.99"] {
            assert_eq!(runnable(of(text)), Ok(()), "{text}");
        }
    }

    #[test]
    fn the_good_path_is_one_minor_after_the_other() {
        for (from, to) in [
            ("3.5.16", "3.5.35"),
            ("3.5.35", "3.6.16"),
            ("3.5.32", "3.6.4"),
            ("3.6.16", "3.7.3"),
            ("3.6.11", "3.7.0"),
            ("3.5.35", "3.5.30"),
            ("3.7.3", "3.7.0"),
        ] {
            assert_eq!(follows(from, to), Ok(()), "{from} to {to}");
        }
    }

    #[test]
    fn what_may_not_follow_says_why_and_what_to_do() {
        for (from, to, why) in [
            (
                "3.5.35",
                "3.7.3",
                "3.5 cannot become 3.7 at once: go to 3.6 first",
            ),
            (
                "3.5.30",
                "3.6.16",
                "3.5.30 cannot become 3.6: go to 3.5.32 or later first",
            ),
            (
                "3.6.10",
                "3.7.3",
                "3.6.10 cannot become 3.7: go to 3.6.11 or later first",
            ),
            ("3.6.16", "3.5.35", "3.6 cannot become 3.5 again"),
            ("3.7.3", "3.5.35", "3.7 cannot become 3.5 again"),
            ("3.5.35", "3.6.3", "3.6.0 to 3.6.3 are known to be bad"),
            ("3.6.16", "3.6.0", "Use 3.6.4 or later"),
            ("3.6.2", "3.6.1", "Use 3.6.4 or later"),
            ("3.5.35", "3.4.37", "end of life"),
            ("3.5.35", "3.5.10", "too old"),
            ("3.7.3", "3.8.0", "not known to this release of Evenkeel"),
        ] {
            let said = follows(from, to).unwrap_err();
            assert!(said.contains(why), "{from} to {to}: {said}");
        }
    }

    #[test]
    fn in_the_middle_of_an_upgrade_one_can_go_on_or_back_but_not_further() {
        let middle = |to: &str| may_follow(of("3.5.35"), of("3.6.16"), of(to));
        for to in ["3.5.35", "3.5.34", "3.6.16", "3.6.15", "3.6.17"] {
            assert_eq!(middle(to), Ok(()), "{to}");
        }
        assert_eq!(
            middle("3.7.3").unwrap_err(),
            "members still run 3.5.35: it follows once all run 3.6"
        );
        assert!(middle("3.6.1").unwrap_err().contains("known to be bad"));
    }

    #[test]
    fn what_members_run_already_is_no_target_that_could_be_bad() {
        assert_eq!(follows("3.6.2", "3.6.2"), Ok(()));
        // On the way out of it, and back.
        assert_eq!(may_follow(of("3.6.2"), of("3.6.16"), of("3.6.2")), Ok(()));
        // On the way into it when it became known.
        assert_eq!(may_follow(of("3.5.35"), of("3.6.2"), of("3.6.2")), Ok(()));
    }

    #[test]
    fn the_data_hold_together() {
        for (earlier, later) in RELEASES.iter().zip(&RELEASES[1..]) {
            assert_eq!(earlier.minor.next(), later.minor, "none is left out");
            assert!(
                earlier.leaves_from.is_some(),
                "{}: from which patch is it left?",
                earlier.minor
            );
        }
        for release in RELEASES {
            for bad in release.bad {
                assert!(
                    bad.first <= bad.last && release.lowest.0 <= bad.first,
                    "{}",
                    release.minor
                );
                let version = |patch| Version {
                    major: release.minor.0,
                    minor: release.minor.1,
                    patch,
                };
                assert!(super::bad(version(bad.last)).is_some());
                assert!(
                    super::bad(version(bad.last + 1)).is_none(),
                    "what is told to use is good"
                );
            }
            assert_eq!(
                release.lowest.0 > 0,
                !release.lowest.1.is_empty(),
                "{}",
                release.minor
            );
        }
    }

    fn version() -> impl Strategy<Value = Version> {
        (4u16..=8, 0u16..=40).prop_map(|(minor, patch)| Version::new(3, minor, patch))
    }

    proptest! {
        #[test]
        fn whoever_stays_is_never_refused(at in version()) {
            prop_assert_eq!(may_follow(at, at, at), Ok(()));
        }

        #[test]
        fn what_is_allowed_can_be_run_and_is_at_most_one_minor_away(
            (one, other, target) in (version(), version(), version())
        ) {
            let (lowest, highest) = (one.min(other), one.max(other));
            if may_follow(lowest, highest, target).is_ok() && target != lowest {
                prop_assert_eq!(runnable(target), Ok(()));
                prop_assert!((lowest.minor..=lowest.minor + 1).contains(&target.minor));
            }
        }

        #[test]
        fn an_upgrade_that_began_can_be_taken_back(
            (from, to, until) in (version(), version(), version())
        ) {
            if runnable(from).is_ok() && may_follow(from, from, to).is_ok() {
                let (lowest, highest) = (from.min(to), from.max(to));
                // A lower patch is the lowest once it has begun, and so it is as well.
                prop_assert_eq!(may_follow(lowest, highest, from), Ok(()));
                prop_assert_eq!(may_follow(lowest, highest, to), Ok(()));
                // And whatever is wanted half-way was no less allowed before.
                if may_follow(lowest, highest, until).is_ok() && until != to {
                    prop_assert_eq!(may_follow(from, from, until), Ok(()));
                }
            }
        }
    }
}
