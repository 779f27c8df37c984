use super::*;

const MIB: u64 = 1 << 20;
const QUOTA: u64 = 8192 * MIB;

fn reason(before: u64, now: u64, quota: u64) -> Option<FailureReason> {
    growth_failure(before, now, quota).map(|failure| failure.reason)
}

#[test]
fn a_member_that_grows_too_much_ends_the_snapshot() {
    let full = Some(FailureReason::MemberTooFull);
    assert_eq!(reason(100 * MIB, 919 * MIB, QUOTA), None);
    assert_eq!(reason(100 * MIB, 920 * MIB, QUOTA), full);
    // Small quotas allow 256 MiB, but not more than 85 % of the quota.
    assert_eq!(reason(0, 256 * MIB, 512 * MIB), None);
    assert_eq!(reason(0, 257 * MIB, 512 * MIB), full);
    assert_eq!(reason(400 * MIB, 440 * MIB, 512 * MIB), full);
}

#[test]
fn a_full_member_that_does_not_grow_can_be_backed_up() {
    assert_eq!(reason(500 * MIB, 500 * MIB, 512 * MIB), None);
    assert_eq!(reason(500 * MIB, 400 * MIB, 512 * MIB), None);
    assert_eq!(
        reason(500 * MIB, 500 * MIB + 4096, 512 * MIB),
        Some(FailureReason::MemberTooFull)
    );
}

#[test]
fn an_unknown_quota_limits_the_growth_only() {
    assert_eq!(reason(MIB, 256 * MIB, 0), None);
    assert_eq!(
        reason(MIB, 300 * MIB, 0),
        Some(FailureReason::MemberTooFull)
    );
}
