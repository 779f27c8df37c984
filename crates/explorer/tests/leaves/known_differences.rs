//! Differences from the expected result that are known and accepted. The test fails when one of them no longer occurs, so
//! that it is removed here.

/// A known difference.
pub(crate) struct KnownDifference {
    /// The leaf.
    leaf: &'static str,
    /// A part of the reported problem.
    problem: &'static str,
    /// Why the difference is accepted.
    reason: &'static str,
}

const fn known(leaf: &'static str, problem: &'static str, reason: &'static str) -> KnownDifference {
    KnownDifference {
        leaf,
        problem,
        reason,
    }
}

/// Differences after an edit.
pub(crate) const EDITS: &[KnownDifference] = &[
    known("spec.storage.size", DIFFERS, EQUIVALENT_VALUE),
    known("spec.resources.requests.cpu", DIFFERS, EQUIVALENT_VALUE),
    known("spec.resources.requests.memory", DIFFERS, EQUIVALENT_VALUE),
    known("spec.resources.limits.memory", DIFFERS, EQUIVALENT_VALUE),
    known(
        "spec.members",
        "\\\"minDomains\\\": ",
        "minDomains follows the number of members, and no member is restarted for it; it only matters when a pod is created",
    ),
    known("spec.backup.schedule", SCHEMA_REJECTS, REPORTED_BY_SCHEDULE),
    known("spec.backup.deadline", SCHEMA_REJECTS, REPORTED_BY_SCHEDULE),
    known("spec.backup.drill", SCHEMA_REJECTS, REPORTED_BY_SCHEDULE),
    known(
        "spec.backup.keep.last",
        SCHEMA_REJECTS,
        REPORTED_BY_SCHEDULE,
    ),
    known(
        "spec.backup.keep.hourly",
        SCHEMA_REJECTS,
        REPORTED_BY_SCHEDULE,
    ),
    known(
        "spec.backup.keep.daily",
        SCHEMA_REJECTS,
        REPORTED_BY_SCHEDULE,
    ),
    known(
        "spec.backup.keep.weekly",
        SCHEMA_REJECTS,
        REPORTED_BY_SCHEDULE,
    ),
    known(
        "spec.backup.keep.monthly",
        SCHEMA_REJECTS,
        REPORTED_BY_SCHEDULE,
    ),
];

const SCHEMA_REJECTS: &str = "the schema rejects the value";

const REPORTED_BY_SCHEDULE: &str = "the BackupSchedule that is created from the policy reports it, and the cluster does not depend on it";

const DIFFERS: &str = "the state differs from a new cluster: only here [\"  ";

const EQUIVALENT_VALUE: &str =
    "the same quantity is written differently, and no member is restarted for that";

/// Differences after a resource was recreated over retained volumes.
pub(crate) const RECREATIONS: &[KnownDifference] = &[];

/// Fails unless exactly the known differences were reported.
pub(crate) fn check(expected: &[KnownDifference], problems: &[String]) {
    let matches = |known: &KnownDifference, problem: &str| {
        problem
            .strip_prefix(known.leaf)
            .is_some_and(|rest| rest.starts_with(", ") && rest.contains(known.problem))
    };
    let unexpected: Vec<_> = problems
        .iter()
        .filter(|problem| !expected.iter().any(|known| matches(known, problem)))
        .cloned()
        .collect();
    assert!(unexpected.is_empty(), "\n{}", unexpected.join("\n"));
    let mut fixed = expected
        .iter()
        .filter(|known| !problems.iter().any(|problem| matches(known, problem)));
    if let Some(KnownDifference {
        leaf,
        problem,
        reason,
    }) = fixed.next()
    {
        panic!(
            "no longer differs, remove it from known_differences.rs: {leaf}: {problem} ({reason})"
        );
    }
}
