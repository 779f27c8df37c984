//! Who leads, who serves and who the members are, by what they said.

use super::*;
use crate::testing::NOW;

/// A voter that answers reads and follows the leader `0xa`.
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
    }
}

/// A learner that follows it closely.
fn learner() -> RawStatus {
    RawStatus {
        id: 0xd,
        learner: true,
        reads: false,
        ..voter()
    }
}

fn leading(heard: &[RawStatus]) -> Option<LeaderInfo> {
    LeaderInfo::of(heard.iter())
}

#[test]
fn who_leads_is_told_by_voters_that_answer_reads_and_by_nobody_else() {
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
    let told = leading(&[cut_off.clone(), learner.clone(), undecided.clone(), voter()]);
    assert_eq!(
        told,
        Some(LeaderInfo {
            leader: 0xa,
            term: 4,
            index: 100_000
        })
    );
    assert_eq!(leading(&[cut_off, learner, undecided]), None);
}

#[test]
fn of_two_leaders_the_one_of_the_later_term_leads_however_short_its_log() {
    let later = RawStatus {
        leader: 0xb,
        term: 5,
        index: 7,
        ..voter()
    };
    let told = leading(&[voter(), later]).unwrap();
    assert_eq!((told.leader, told.term, told.index), (0xb, 5, 7));
    let further = RawStatus {
        index: 100_009,
        ..voter()
    };
    assert_eq!(
        leading(&[voter(), further, voter()]).unwrap().index,
        100_009,
        "of one term, the longest log"
    );
}

#[test]
fn a_voter_serves_when_it_has_answered_a_read_whatever_it_says() {
    let leading = leading(&[voter()]);
    assert!(voter().health(leading).is_serving && voter().health(leading).is_caught_up);
    let silent = RawStatus {
        reads: false,
        ..voter()
    };
    assert!(
        !silent.health(leading).is_serving,
        "it follows the leader, and answers no read"
    );
    let who = silent.health(leading);
    assert_eq!(
        (who.cluster_id, who.member_id),
        (ClusterId(0xc), MemberId(0xa))
    );
}

#[test]
fn a_learner_serves_while_it_follows_the_leader_of_this_term() {
    let leading = leading(&[voter()]);
    assert!(learner().health(leading).is_serving);
    let of_old = RawStatus {
        term: 3,
        ..learner()
    };
    assert!(
        !of_old.health(leading).is_serving,
        "it was cut off before the last election"
    );
    let of_another = RawStatus {
        leader: 0xb,
        ..learner()
    };
    assert!(!of_another.health(leading).is_serving);
    assert!(
        !learner().health(None).is_serving,
        "nobody leads that it could follow"
    );
    let leaderless = RawStatus {
        leader: 0,
        term: 0,
        ..learner()
    };
    assert!(!leaderless.health(None).is_serving);
}

#[test]
fn a_learner_far_behind_has_not_caught_up_by_share_or_by_count() {
    let leading = leading(&[voter()]);
    let at = |index: u64| {
        RawStatus { index, ..learner() }
            .health(leading)
            .is_caught_up
    };
    assert!(
        at(100_000) && at(95_000),
        "as many entries as a leader keeps"
    );
    assert!(
        !at(94_999) && !at(94_000),
        "6000 entries are too many, though they are less than a tenth"
    );

    let young = Some(LeaderInfo {
        leader: 0xa,
        term: 4,
        index: 1_000,
    });
    let at = |index: u64| RawStatus { index, ..learner() }.health(young).is_caught_up;
    assert!(at(900));
    assert!(!at(899), "few entries, and yet more than a tenth");
    assert!(
        !learner().health(None).is_caught_up,
        "nobody knows how far the log goes"
    );
    assert!(
        at(2_000),
        "it got ahead of what the leader said a moment ago"
    );
}

#[test]
fn only_voters_that_answer_reads_tell_who_the_members_are() {
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

fn register() -> MemberIndex {
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
fn members_are_told_by_their_peer_urls_whatever_they_are_called() {
    let list = [
        listed(0xb, "orders-x", "ours-1"),
        listed(0xa, "ours-9", "ours-0"),
    ];
    let told = membership(Serial(1), &list, &register(), NOW);
    let who: Vec<_> = told
        .members
        .iter()
        .map(|entry| (entry.serial, entry.id))
        .collect();
    assert_eq!(
        who,
        [(Serial(0), MemberId(0xa)), (Serial(1), MemberId(0xb))],
        "and stand in order"
    );
    assert_eq!((told.reported_by, told.unknown), (Serial(1), vec![]));
}

#[test]
fn one_whose_urls_somebody_has_changed_is_ours_still() {
    let moved = listed(0xa, "orders-2", "https://elsewhere:2380");
    let mut added = listed(0xb, "orders-3", "https://elsewhere:2380");
    added.peer_urls.push("ours-3".to_owned());
    let told = membership(Serial(0), &[moved, added], &register(), NOW);
    let who: Vec<_> = told.members.iter().map(|entry| entry.serial).collect();
    assert_eq!((who, told.unknown), (vec![Serial(2), Serial(3)], vec![]));
}

#[test]
fn who_is_at_none_of_our_urls_is_a_stranger() {
    let nowhere = RawMember {
        peer_urls: vec![],
        ..listed(0xe, "ours-0", "")
    };
    let list = [
        listed(0xa, "a", "ours-0"),
        listed(0xb, "b", "https://elsewhere:2380"),
        nowhere,
    ];
    let told = membership(Serial(0), &list, &register(), NOW);
    let unknown = |id, started| UnknownMember {
        id: MemberId(id),
        is_learner: false,
        has_started: started,
        first_seen: NOW,
    };
    assert_eq!(
        (told.members.len(), told.unknown),
        (1, vec![unknown(0xb, true), unknown(0xe, true)])
    );
    let added = RawMember {
        learner: true,
        ..listed(0xf, "", "https://elsewhere:2380")
    };
    let told = membership(Serial(0), &[added], &register(), NOW);
    assert_eq!(
        told.unknown,
        [UnknownMember {
            is_learner: true,
            ..unknown(0xf, false)
        }]
    );
}

#[test]
fn one_that_was_added_and_never_ran_has_not_started() {
    let added = RawMember {
        learner: true,
        ..listed(0xd, "", "ours-3")
    };
    let halfway = RawMember {
        has_client_urls: false,
        ..listed(0xe, "orders-y", "ours-4")
    };
    let told = membership(
        Serial(0),
        &[listed(0xa, "a", "ours-0"), added, halfway],
        &register(),
        NOW,
    );
    let started: Vec<_> = told
        .members
        .iter()
        .map(|entry| (entry.has_started, entry.is_learner))
        .collect();
    assert_eq!(started, [(true, false), (false, true), (false, false)]);
}

#[test]
fn how_large_the_data_is_is_rounded_up_so_that_it_seldom_changes() {
    for (size, rounded) in [
        (0, 16 << 20),
        (16 << 20, 16 << 20),
        ((16 << 20) + 1, 18 << 20),
        (20 << 20, 20 << 20),
        ((1 << 30) + 1, (1 << 30) + (128 << 20)),
        (5_000_000_000, 5 << 30),
    ] {
        let heard = RawStatus { size, ..voter() };
        assert_eq!(heard.health(None).db_size, rounded, "{size}");
    }
}
