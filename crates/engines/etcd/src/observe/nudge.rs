//! A member that got everything as a snapshot and then hears of nothing new never serves: etcd counts what it has applied from
//! the first entry after the snapshot on, takes itself to be thousands behind, and refuses to publish its own name as one request
//! too many, again and again, at full speed (seen on 3.6.16, in an idle cluster of more than 5000 entries). The next entry ends
//! that, whatever it is. A lease that nobody uses is one: it touches no key and no revision, and goes by itself.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_runtime::Observed;

use super::etcd::{EtcdState, MemberTarget};
use crate::names::Serial;

/// How long such a lease lasts, in seconds.
pub(super) const LEASE_TTL_SECONDS: i64 = 10;
/// How long before there is another one.
const NUDGE_INTERVAL: Duration = Duration::from_secs(10);

/// When a cluster was stirred last.
#[derive(Debug, Default)]
pub(super) struct NudgeTimer(Mutex<Option<Instant>>);

impl NudgeTimer {
    /// Whether it is time, and if so, that it was done now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| now.saturating_duration_since(last) >= NUDGE_INTERVAL);
        if due {
            *last = Some(now);
        }
        due
    }
}

/// Who may be waiting for that: a member whose pod has an address and that does not answer. Whether it has its name says nothing:
/// that may have come with the snapshot.
pub(super) fn unresponsive<'m>(
    state: &EtcdState,
    members: &'m [MemberTarget],
) -> Option<&'m MemberTarget> {
    let told = state.membership.present()?;
    let waits = |serial: Serial| told.members.iter().any(|one| one.serial == serial);
    let speaks = |serial| state.health.get(&serial).is_some_and(Observed::is_present);
    members
        .iter()
        .find(|asked| waits(asked.serial) && !speaks(asked.serial))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{ListedMember, MemberHealth, Membership};
    use crate::identity::{ClusterId, MemberId};
    use crate::observe::etcd::Endpoint;

    #[test]
    fn once_in_a_while_is_enough() {
        let (stirred, now) = (NudgeTimer::default(), Instant::now());
        assert!(stirred.is_due(now));
        assert!(!stirred.is_due(now + Duration::from_secs(9)));
        assert!(stirred.is_due(now + Duration::from_secs(10)));
    }

    #[test]
    fn only_members_that_do_not_answer_may_wait_for_it() {
        let asked = |serial| MemberTarget {
            serial: Serial(serial),
            endpoint: Endpoint {
                address: "10.0.0.1".to_owned(),
                name: "orders".to_owned(),
            },
            is_seed: false,
        };
        let listed = |serial, started: bool| ListedMember {
            serial: Serial(serial),
            id: MemberId(u64::from(serial)),
            is_learner: !started,
            has_started: started,
        };
        let members = [asked(0), asked(1)];
        let health = MemberHealth {
            cluster_id: ClusterId(1),
            member_id: MemberId(1),
            is_serving: true,
            is_caught_up: true,
            is_leader: false,
            version: None,
            db_size: 0,
        };
        let with = |started, speaks: &[u16]| {
            let list = vec![listed(0, true), listed(1, started)];
            let told = Membership {
                reported_by: Serial(0),
                members: list,
                unknown: Vec::new(),
            };
            let voices = speaks
                .iter()
                .map(|serial| (Serial(*serial), Observed::Present(health.clone())))
                .collect();
            let state = EtcdState {
                membership: Observed::Present(told),
                health: voices,
                ..EtcdState::default()
            };
            unresponsive(&state, &members).map(|asked| asked.serial)
        };
        assert_eq!(with(false, &[0]), Some(Serial(1)));
        assert_eq!(with(false, &[0, 1]), None, "it answers");
        assert_eq!(
            with(true, &[0]),
            Some(Serial(1)),
            "it has its name by a snapshot"
        );
        assert_eq!(
            unresponsive(&EtcdState::default(), &members).map(|asked| asked.serial),
            None,
            "nobody knows"
        );
    }
}
