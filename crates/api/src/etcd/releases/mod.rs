//! What is known about etcd's releases: which versions are supported, and which upgrades are allowed. The table names
//! its sources. The rules of the schema are generated from the same data.
//!
//! The changelogs are those of etcd's repository as of August 2026; `#` stands for its issues and pull requests.

pub(crate) mod cel;

use std::fmt;

use crate::etcd::version::Version;

/// A supported minor release.
pub(crate) struct Release {
    /// The minor release, such as 3.6.
    pub minor: Minor,
    /// The lowest supported patch release.
    pub min_patch: PatchBound,
    /// The lowest patch release from which an upgrade to the next minor release is allowed. `None` if no next minor
    /// release is known.
    pub min_patch_for_upgrade: Option<PatchBound>,
    /// Whether this release cannot read log entries that the minor release two before it wrote. Every member must then
    /// take a snapshot after all members have left that release, and before it is upgraded to this one.
    pub needs_fresh_snapshot: bool,
    /// The newest patch release that existed when this table was last revised. A higher one is accepted with a warning.
    pub newest_patch: u16,
    /// Patch releases that no cluster should be upgraded to. Clusters that already run one stay managed.
    pub defective_patches: &'static [DefectivePatches],
}

/// A lower bound of patch releases.
pub(crate) struct PatchBound {
    /// The patch number.
    pub patch: u16,
    /// The problem of lower patch releases. Empty if there are none.
    pub reason: &'static str,
}

/// A range of patch releases with a known defect.
pub(crate) struct DefectivePatches {
    /// The first patch release with the defect.
    pub first: u16,
    /// The last patch release with the defect.
    pub last: u16,
    /// The effect of the defect.
    pub reason: &'static str,
}

/// The first two numbers of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Minor(pub u16, pub u16);

const ALL_PATCHES: PatchBound = PatchBound {
    patch: 0,
    reason: "",
};

/// The supported minor releases, oldest first.
pub(crate) const RELEASES: &[Release] = &[
    Release {
        minor: Minor(3, 5),
        // CHANGELOG-3.5: 3.5.11 adds /livez and /readyz. CHANGELOG/README: 3.5.0 to 3.5.2 lose writes when they
        // are killed (use 3.5.4); 3.5.6 keeps members consistent when one crashes during a defragmentation (#14733).
        min_patch: PatchBound {
            patch: 11,
            reason: "earlier releases do not have the health checks that the operator needs, and 3.5.0 to 3.5.5 can corrupt data",
        },
        // etcd's upgrade guide requires 3.5.26: 3.5.20 stores promotions where 3.6 reads them (#19557, "too many
        // learner members"), 3.5.24 also those that came with a snapshot from an older member (#20793), 3.5.26 drops
        // removed members that 3.6 would count again (#20967). The operator adds and removes learners often, so it
        // requires more: 3.5.30 accepts a new member while another is down (#21669), 3.5.31 does not promote by
        // accident (#21694), 3.5.32 can skip old v2 content that stops 3.6 (#21897).
        min_patch_for_upgrade: Some(PatchBound {
            patch: 32,
            reason: "after an upgrade from an earlier release, 3.6 can count promoted members as learners \
                and removed members as present",
        }),
        // Examined, and not listed as defects: 3.5.22 (and 3.6.4) and earlier can corrupt the data of a member that is
        // defragmented while it receives a snapshot (#20271), which the operator never does; watchers can miss
        // a deletion at a compaction (3.5.17 and earlier, #19249); stale reads after a pause (3.5.27 and earlier,
        // #21421).
        needs_fresh_snapshot: false,
        newest_patch: 35,
        defective_patches: &[],
    },
    Release {
        minor: Minor(3, 6),
        min_patch: ALL_PATCHES,
        // etcd's upgrade guide requires 3.6.11 without a reason. 3.6.11 accepts a new member while another is down
        // (#21667).
        min_patch_for_upgrade: Some(PatchBound {
            patch: 11,
            reason: "etcd's upgrade guide requires it",
        }),
        needs_fresh_snapshot: false,
        newest_patch: 16,
        defective_patches: &[DefectivePatches {
            first: 0,
            last: 3,
            // CHANGELOG-3.6, 3.6.4: #20340, fixed by #20387. Every member of a managed cluster was a learner once.
            // 3.6.0 also panics at a promotion (#20051).
            reason: "after members have been added and removed, a member can fail at every start",
        }],
    },
    Release {
        minor: Minor(3, 7),
        min_patch: ALL_PATCHES,
        min_patch_for_upgrade: None,
        // 3.5 writes members' names and the cluster's version as requests of the v2 API. 3.7 has no code for them and
        // panics at every start on a log that contains them: "unmarshal should never fail" (tried: 3.5.35, 3.6.16 and
        // 3.7.3 on one directory, with and without a snapshot between; `server/etcdserver/apply` of 3.6 and 3.7). etcd
        // takes a snapshot by itself only after 10,000 entries.
        needs_fresh_snapshot: true,
        newest_patch: 3,
        // No defect is known: CHANGELOG-3.7 up to 3.7.1 fixes none of this kind. The changelogs of 3.7.2 and 3.7.3 were
        // not available; 3.7.3 was tried.
        defective_patches: &[],
    },
];

/// Minor releases that were supported once, and the messages that reject them.
pub(crate) const RETIRED: &[(Minor, &str)] = &[(
    Minor(3, 4),
    "3.4 is not supported: it has reached its end of life. Use 3.5 or later",
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

/// Checks whether a version is supported. The error names the remedy. Versions with a known defect are
/// supported, so that clusters that run them stay managed.
pub fn check_supported(version: Version) -> Result<(), String> {
    let minor = Minor::of(version);
    if let Some((_, reason)) = RETIRED.iter().find(|(retired, _)| *retired == minor) {
        return Err((*reason).to_owned());
    }
    match minor.release() {
        None => Err(unsupported_message()),
        Some(release) if version.patch < release.min_patch.patch => Err(too_old_message(release)),
        Some(_) => Ok(()),
    }
}

/// Checks whether a cluster whose members were started with versions from `lowest` to `highest` may be changed to
/// `target`. The error names the remedy.
///
/// Upgrades go one minor release at a time. A downgrade is not supported once no member runs the earlier minor release,
/// since that release cannot read data of the later one without etcd's own downgrade procedure. While some members still
/// run the earlier release, etcd allows the others to return to it.
pub fn check_upgrade(lowest: Version, highest: Version, target: Version) -> Result<(), String> {
    if target == lowest && target == highest {
        return Ok(());
    }
    check_supported(target)?;
    let (from, to) = (Minor::of(lowest), Minor::of(target));
    if to < from {
        return Err(downgrade_message(from, to));
    }
    if Minor::of(highest) > from && to > Minor::of(highest) {
        return Err(format!(
            "members still run {lowest}. The upgrade to {target} starts after all members run {}",
            Minor::of(highest)
        ));
    }
    if to > from.next() {
        return Err(skipped_minor_message(from, to));
    }
    if let Some(release) = from.release().filter(|_| to > from)
        && let Some(bound) = &release.min_patch_for_upgrade
        && lowest.patch < bound.patch
    {
        return Err(upgrade_too_early_message(&lowest.to_string(), to, release));
    }
    match known_defect(target) {
        Some(reason) if target != lowest && target != highest => Err(reason),
        _ => Ok(()),
    }
}

/// Returns whether every member that runs `from` must take a snapshot before the upgrade to `target`.
pub fn needs_fresh_snapshot(from: Version, target: Version) -> bool {
    let (from, to) = (Minor::of(from), Minor::of(target));
    to > from
        && to
            .release()
            .is_some_and(|release| release.needs_fresh_snapshot)
}

/// Returns the known defect of a version, which is why no cluster should be upgraded to it.
pub fn known_defect(version: Version) -> Option<String> {
    let release = Minor::of(version).release()?;
    let patches = release
        .defective_patches
        .iter()
        .find(|patches| (patches.first..=patches.last).contains(&version.patch))?;
    Some(known_defect_message(release, patches))
}

/// Returns a warning about a supported version that is newer than every known patch release. The version may exist: this
/// table is older than the releases that follow it.
pub fn unknown_patch(version: Version) -> Option<String> {
    let release = Minor::of(version).release()?;
    (version.patch > release.newest_patch)
        .then(|| unknown_patch_message(&version.to_string(), &release.newest()))
}

impl Release {
    /// Returns the newest known patch release.
    pub(crate) fn newest(&self) -> String {
        format!("{}.{}", self.minor, self.newest_patch)
    }
}

// The messages, which the rules of the schema use as well.

pub(crate) fn unknown_patch_message(version: &str, newest: &str) -> String {
    format!(
        "etcd {version} is not known to this version of Evenkeel (newest known: {newest}). If the image does not exist, \
         the rollout stops at the first member."
    )
}

pub(crate) fn unsupported_message() -> String {
    let minors: Vec<_> = RELEASES
        .iter()
        .map(|release| release.minor.to_string())
        .collect();
    format!(
        "not supported by this release of Evenkeel. Supported minor versions: {}",
        minors.join(", ")
    )
}

pub(crate) fn too_old_message(release: &Release) -> String {
    format!(
        "must be {minor}.{} or later: {}. Use the latest {minor} release",
        release.min_patch.patch,
        release.min_patch.reason,
        minor = release.minor
    )
}

pub(crate) fn known_defect_message(release: &Release, patches: &DefectivePatches) -> String {
    let Release { minor, .. } = release;
    let DefectivePatches {
        first,
        last,
        reason,
    } = patches;
    format!(
        "{minor}.{first} to {minor}.{last} have a known defect: {reason}. Use {minor}.{} or later",
        last + 1
    )
}

pub(crate) fn downgrade_message(from: Minor, to: Minor) -> String {
    format!(
        "downgrade from {from} to {to} is not supported once all members run {from}. Keep {from}, or create a new {to} \
         cluster and copy the data"
    )
}

pub(crate) fn skipped_minor_message(from: Minor, to: Minor) -> String {
    format!(
        "upgrade from {from} to {to} is not supported: upgrades go one minor version at a time. Upgrade to {} first",
        from.next()
    )
}

/// Returns the message for an upgrade from a patch release that is too low. `lowest` is the version that members run, or
/// empty where the message is appended to it.
pub(crate) fn upgrade_too_early_message(lowest: &str, to: Minor, release: &Release) -> String {
    let bound = release
        .min_patch_for_upgrade
        .as_ref()
        .unwrap_or(&ALL_PATCHES);
    format!(
        "{lowest} cannot be upgraded to {to}. Upgrade to {}.{} or later first: {}",
        release.minor, bound.patch, bound.reason
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn the_reference_has_a_row_with_the_limits_of_each_minor_version() {
        let page = include_str!("../../../../../docs/reference/etcd-versions.md");
        for release in RELEASES {
            let minor = release.minor;
            let patches = match release.min_patch.patch {
                0 => "all".to_owned(),
                patch => format!("{minor}.{patch} or later"),
            };
            let upgrade = release
                .min_patch_for_upgrade
                .as_ref()
                .map_or("–".to_owned(), |bound| {
                    format!("from {minor}.{} or later", bound.patch)
                });
            let defects: Vec<_> = release
                .defective_patches
                .iter()
                .map(|range| format!("{minor}.{} to {minor}.{}", range.first, range.last))
                .collect();
            let defects = if defects.is_empty() {
                "–".to_owned()
            } else {
                defects.join(", ")
            };
            let row = format!("| {minor} | {patches} | {upgrade} | {defects} |");
            assert!(
                page.lines().any(|line| line.starts_with(&row)),
                "docs/reference/etcd-versions.md should have a row `{row}`"
            );
        }
    }

    /// Checks an upgrade from one version that all members run.
    fn upgrade(from: &str, to: &str) -> Result<(), String> {
        check_upgrade(version(from), version(from), version(to))
    }

    #[test]
    fn an_unsupported_version_is_rejected_with_a_remedy() {
        let reason = |text: &str| check_supported(version(text)).unwrap_err();
        assert!(
            reason("3.4.37").contains("end of life")
                && reason("3.4.37").contains("Use 3.5 or later")
        );
        assert!(
            reason("3.5.10").contains("3.5.11")
                && reason("3.5.10").contains("Use the latest 3.5 release")
        );
        for text in ["3.3.27", "3.8.0", "2.3.8", "4.0.0", "3.50.1", "4.5.35"] {
            assert_eq!(
                reason(text),
                "not supported by this release of Evenkeel. Supported minor versions: 3.5, 3.6, 3.7",
                "{text}"
            );
        }
        for text in ["3.5.11", "3.5.35", "3.6.0", "3.6.16", "3.7.3", "3.7.99"] {
            assert_eq!(check_supported(version(text)), Ok(()), "{text}");
        }
    }

    #[test]
    fn upgrades_go_one_minor_release_at_a_time() {
        for (from, to) in [
            ("3.5.16", "3.5.35"),
            ("3.5.35", "3.6.16"),
            ("3.5.32", "3.6.4"),
            ("3.6.16", "3.7.3"),
            ("3.6.11", "3.7.0"),
            ("3.5.35", "3.5.30"),
            ("3.7.3", "3.7.0"),
        ] {
            assert_eq!(upgrade(from, to), Ok(()), "{from} to {to}");
        }
    }

    #[test]
    fn a_rejected_upgrade_has_a_reason_and_a_remedy() {
        for (from, to, expected) in [
            (
                "3.5.35",
                "3.7.3",
                "upgrade from 3.5 to 3.7 is not supported: upgrades go one minor version at a time. Upgrade to 3.6 first",
            ),
            (
                "3.5.30",
                "3.6.16",
                "3.5.30 cannot be upgraded to 3.6. Upgrade to 3.5.32 or later first",
            ),
            (
                "3.6.10",
                "3.7.3",
                "3.6.10 cannot be upgraded to 3.7. Upgrade to 3.6.11 or later first",
            ),
            (
                "3.6.16",
                "3.5.35",
                "downgrade from 3.6 to 3.5 is not supported",
            ),
            (
                "3.7.3",
                "3.5.35",
                "downgrade from 3.7 to 3.5 is not supported",
            ),
            ("3.5.35", "3.6.3", "3.6.0 to 3.6.3 have a known defect"),
            ("3.6.16", "3.6.0", "Use 3.6.4 or later"),
            ("3.6.2", "3.6.1", "Use 3.6.4 or later"),
            ("3.5.35", "3.4.37", "end of life"),
            ("3.5.35", "3.5.10", "must be 3.5.11 or later"),
            (
                "3.7.3",
                "3.8.0",
                "not supported by this release of Evenkeel",
            ),
        ] {
            let reason = upgrade(from, to).unwrap_err();
            assert!(reason.contains(expected), "{from} to {to}: {reason}");
        }
    }

    #[test]
    fn a_partial_upgrade_can_continue_or_be_reverted_but_not_go_further() {
        let partial_upgrade =
            |to: &str| check_upgrade(version("3.5.35"), version("3.6.16"), version(to));
        for to in ["3.5.35", "3.5.34", "3.6.16", "3.6.15", "3.6.17"] {
            assert_eq!(partial_upgrade(to), Ok(()), "{to}");
        }
        assert_eq!(
            partial_upgrade("3.7.3").unwrap_err(),
            "members still run 3.5.35. The upgrade to 3.7.3 starts after all members run 3.6"
        );
        assert!(
            partial_upgrade("3.6.1")
                .unwrap_err()
                .contains("known defect")
        );
    }

    #[test]
    fn a_version_that_members_run_is_never_rejected_as_defective() {
        assert_eq!(upgrade("3.6.2", "3.6.2"), Ok(()));
        // An upgrade from it is reverted.
        assert_eq!(
            check_upgrade(version("3.6.2"), version("3.6.16"), version("3.6.2")),
            Ok(())
        );
        // The defect became known during the upgrade to it.
        assert_eq!(
            check_upgrade(version("3.5.35"), version("3.6.2"), version("3.6.2")),
            Ok(())
        );
    }

    #[test]
    fn only_versions_above_the_newest_known_patch_release_are_unknown() {
        for text in ["3.5.35", "3.6.0", "3.6.16", "3.7.3", "3.8.0", "3.4.99"] {
            assert_eq!(unknown_patch(version(text)), None, "{text}");
        }
        assert_eq!(
            unknown_patch(version("3.6.99")).unwrap(),
            "etcd 3.6.99 is not known to this version of Evenkeel (newest known: 3.6.16). If the image does not exist, the \
             rollout stops at the first member."
        );
    }

    #[test]
    fn the_table_is_consistent() {
        for (earlier, later) in RELEASES.iter().zip(&RELEASES[1..]) {
            assert_eq!(
                earlier.minor.next(),
                later.minor,
                "no minor release is left out"
            );
            assert!(
                earlier.min_patch_for_upgrade.is_some(),
                "{}: from which patch release is the upgrade allowed?",
                earlier.minor
            );
        }
        for release in RELEASES {
            for patches in release.defective_patches {
                assert!(
                    patches.first <= patches.last
                        && release.min_patch.patch <= patches.first
                        && patches.last < release.newest_patch,
                    "{}",
                    release.minor
                );
                let patch_version = |patch| Version {
                    major: release.minor.0,
                    minor: release.minor.1,
                    patch,
                };
                assert!(known_defect(patch_version(patches.last)).is_some());
                assert!(
                    known_defect(patch_version(patches.last + 1)).is_none(),
                    "the recommended patch release has no defect"
                );
            }
            assert_eq!(
                release.min_patch.patch > 0,
                !release.min_patch.reason.is_empty(),
                "{}",
                release.minor
            );
        }
    }

    fn any_version() -> impl Strategy<Value = Version> {
        (4u16..=8, 0u16..=40).prop_map(|(minor, patch)| Version::new(3, minor, patch))
    }

    proptest! {
        #[test]
        fn the_running_version_is_always_accepted(at in any_version()) {
            prop_assert_eq!(check_upgrade(at, at, at), Ok(()));
        }

        #[test]
        fn an_allowed_target_is_supported_and_at_most_one_minor_away(
            (one, other, target) in (any_version(), any_version(), any_version())
        ) {
            let (lowest, highest) = (one.min(other), one.max(other));
            if check_upgrade(lowest, highest, target).is_ok() && target != lowest {
                prop_assert_eq!(check_supported(target), Ok(()));
                prop_assert!((lowest.minor..=lowest.minor + 1).contains(&target.minor));
            }
        }

        #[test]
        fn an_upgrade_that_has_begun_can_be_reverted(
            (from, to, until) in (any_version(), any_version(), any_version())
        ) {
            if check_supported(from).is_ok() && check_upgrade(from, from, to).is_ok() {
                let (lowest, highest) = (from.min(to), from.max(to));
                // A lower patch release becomes the lowest once the change has begun, and is still allowed.
                prop_assert_eq!(check_upgrade(lowest, highest, from), Ok(()));
                prop_assert_eq!(check_upgrade(lowest, highest, to), Ok(()));
                // A target that is allowed half-way was allowed before.
                if check_upgrade(lowest, highest, until).is_ok() && until != to {
                    prop_assert_eq!(check_upgrade(from, from, until), Ok(()));
                }
            }
        }
    }
}
