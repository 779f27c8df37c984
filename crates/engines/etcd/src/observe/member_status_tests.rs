//! Leader, health and membership according to members' answers.

use super::*;
use crate::testing::NOW;

/// Returns a voter that answers reads and is the leader `0xa`.
fn voter() -> RawStatus {
    RawStatus {
        cluster: 0xc,
        id: 0xa,
        leader: 0xa,
        term: 4,
        index: 100_000,
        learner: false,
        version: "3.6.16".to_owned(),
        size: 20 << 20,
        reads: true,
        alarms: BTreeSet::new(),
    }
}

/// Returns a learner that follows it closely.
fn learner() -> RawStatus {
    RawStatus {
        id: 0xd,
        learner: true,
        reads: false,
        ..voter()
    }
}

fn leader_of(statuses: &[RawStatus]) -> Option<LeaderInfo> {
    LeaderInfo::of(statuses.iter())
}

#[test]
fn only_voters_that_answer_reads_determine_the_leader() {
    let cut_off = RawStatus {
        leader: 0xb,
        term: 9,
        reads: false,
        ..voter()
    };
    let learner = RawStatus {
        leader: 0xd,
        term: 9,
        reads: true,
        ..learner()
    };
    let undecided = RawStatus {
        leader: 0,
        term: 9,
        ..voter()
    };
    let leader = leader_of(&[cut_off.clone(), learner.clone(), undecided.clone(), voter()]);
    assert_eq!(
        leader,
        Some(LeaderInfo {
            leader: 0xa,
            term: 4,
            index: 100_000
        })
    );
    assert_eq!(leader_of(&[cut_off, learner, undecided]), None);
}

#[test]
fn of_two_leaders_the_one_with_the_higher_term_counts() {
    let later = RawStatus {
        leader: 0xb,
        term: 5,
        index: 7,
        ..voter()
    };
    let leader = leader_of(&[voter(), later]).unwrap();
    assert_eq!((leader.leader, leader.term, leader.index), (0xb, 5, 7));
    let further = RawStatus {
        index: 100_009,
        ..voter()
    };
    assert_eq!(
        leader_of(&[voter(), further, voter()]).unwrap().index,
        100_009,
        "within one term, the longest log"
    );
}

#[test]
fn a_voter_serves_only_if_it_answered_a_read() {
    let leader = leader_of(&[voter()]);
    assert!(voter().health(leader).is_serving && voter().health(leader).is_caught_up);
    let not_reading = RawStatus {
        reads: false,
        ..voter()
    };
    assert!(!not_reading.health(leader).is_serving, "it answers no read");
    let health = not_reading.health(leader);
    assert_eq!(
        (health.cluster_id, health.member_id),
        (ClusterId(0xc), MemberId(0xa))
    );
}

#[test]
fn a_learner_serves_while_it_follows_the_leader_of_this_term() {
    let leader = leader_of(&[voter()]);
    assert!(learner().health(leader).is_serving);
    let of_old_term = RawStatus {
        term: 3,
        ..learner()
    };
    assert!(
        !of_old_term.health(leader).is_serving,
        "it was partitioned before the last election"
    );
    let of_another_leader = RawStatus {
        leader: 0xb,
        ..learner()
    };
    assert!(!of_another_leader.health(leader).is_serving);
    assert!(!learner().health(None).is_serving, "there is no leader");
    let leaderless = RawStatus {
        leader: 0,
        term: 0,
        ..learner()
    };
    assert!(!leaderless.health(None).is_serving);
}

#[test]
fn a_learner_has_caught_up_by_share_and_by_number_of_entries() {
    let leader = leader_of(&[voter()]);
    let at = |index: u64| RawStatus { index, ..learner() }.health(leader).is_caught_up;
    assert!(
        at(100_000) && at(95_000),
        "as many entries as a leader keeps"
    );
    assert!(
        !at(94_999) && !at(94_000),
        "more than 5000 entries behind, though less than a tenth"
    );

    let young = Some(LeaderInfo {
        leader: 0xa,
        term: 4,
        index: 1_000,
    });
    let at = |index: u64| RawStatus { index, ..learner() }.health(young).is_caught_up;
    assert!(at(900));
    assert!(!at(899), "few entries, but more than a tenth");
    assert!(
        !learner().health(None).is_caught_up,
        "the length of the log is unknown"
    );
    assert!(at(2_000), "it is ahead of the leader's last answer");
}

#[test]
fn only_voters_that_answer_reads_are_authoritative() {
    assert!(voter().is_authoritative());
    assert!(
        !RawStatus {
            reads: false,
            ..voter()
        }
        .is_authoritative()
    );
    assert!(
        !RawStatus {
            reads: true,
            ..learner()
        }
        .is_authoritative()
    );
}

fn listed(id: u64, name: &str, url: &str) -> RawMember {
    RawMember {
        id,
        name: name.to_owned(),
        peer_urls: vec![url.to_owned()],
        has_client_urls: !name.is_empty(),
        learner: false,
    }
}

fn index() -> MemberIndex {
    let known = |prefix: &str| {
        (0..10)
            .map(|serial| (format!("{prefix}-{serial}"), Serial(serial)))
            .collect()
    };
    MemberIndex {
        by_name: known("orders"),
        by_url: known("ours"),
    }
}

#[test]
fn members_are_identified_by_peer_url() {
    let list = [
        listed(0xb, "orders-x", "ours-1"),
        listed(0xa, "ours-9", "ours-0"),
    ];
    let reported = membership(Serial(1), &list, &index(), NOW);
    let serials: Vec<_> = reported
        .members
        .iter()
        .map(|entry| (entry.serial, entry.id))
        .collect();
    assert_eq!(
        serials,
        [(Serial(0), MemberId(0xa)), (Serial(1), MemberId(0xb))],
        "sorted by serial"
    );
    assert_eq!(
        (reported.reported_by, reported.unknown),
        (Serial(1), vec![])
    );
}

#[test]
fn a_member_with_changed_urls_is_identified_by_name() {
    let moved = listed(0xa, "orders-2", "https://elsewhere:2380");
    let mut added = listed(0xb, "orders-3", "https://elsewhere:2380");
    added.peer_urls.push("ours-3".to_owned());
    let reported = membership(Serial(0), &[moved, added], &index(), NOW);
    let serials: Vec<_> = reported.members.iter().map(|entry| entry.serial).collect();
    assert_eq!(
        (serials, reported.unknown),
        (vec![Serial(2), Serial(3)], vec![])
    );
}

#[test]
fn a_member_with_other_urls_and_name_is_unknown() {
    let nowhere = RawMember {
        peer_urls: vec![],
        ..listed(0xe, "ours-0", "")
    };
    let list = [
        listed(0xa, "a", "ours-0"),
        listed(0xb, "b", "https://elsewhere:2380"),
        nowhere,
    ];
    let reported = membership(Serial(0), &list, &index(), NOW);
    let unknown = |id, started| UnknownMember {
        id: MemberId(id),
        is_learner: false,
        has_started: started,
        first_seen: NOW,
    };
    assert_eq!(
        (reported.members.len(), reported.unknown),
        (1, vec![unknown(0xb, true), unknown(0xe, true)])
    );
    let added = RawMember {
        learner: true,
        ..listed(0xf, "", "https://elsewhere:2380")
    };
    let reported = membership(Serial(0), &[added], &index(), NOW);
    assert_eq!(
        reported.unknown,
        [UnknownMember {
            is_learner: true,
            ..unknown(0xf, false)
        }]
    );
}

#[test]
fn a_member_that_never_ran_has_not_started() {
    let added = RawMember {
        learner: true,
        ..listed(0xd, "", "ours-3")
    };
    let halfway = RawMember {
        has_client_urls: false,
        ..listed(0xe, "orders-y", "ours-4")
    };
    let reported = membership(
        Serial(0),
        &[listed(0xa, "a", "ours-0"), added, halfway],
        &index(),
        NOW,
    );
    let started: Vec<_> = reported
        .members
        .iter()
        .map(|entry| (entry.has_started, entry.is_learner))
        .collect();
    assert_eq!(started, [(true, false), (false, true), (false, false)]);
}

#[test]
fn database_sizes_are_rounded_up() {
    for (size, rounded) in [
        (0, 16 << 20),
        (16 << 20, 16 << 20),
        ((16 << 20) + 1, 18 << 20),
        (20 << 20, 20 << 20),
        ((1 << 30) + 1, (1 << 30) + (128 << 20)),
        (5_000_000_000, 5 << 30),
    ] {
        let status = RawStatus { size, ..voter() };
        assert_eq!(status.health(None).db_size, rounded, "{size}");
    }
}
