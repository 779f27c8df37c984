//! The rules that the world ascribes to etcd, played on the world and on real etcd processes alike: what can be seen after
//! each act is the same, so that the world cannot be kinder than etcd.

mod held;
mod imagined;
mod real;
mod stage;

use anyhow::{Context, Result, ensure};
use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::names::Serial;
use evenkeel_lab::parts::etcd::EtcdVersion;

use crate::imagined::Imagined;
use crate::real::Real;
use crate::stage::{Act, Then};

const A: Serial = Serial(0);
const B: Serial = Serial(1);
const C: Serial = Serial(2);
const D: Serial = Serial(3);

type Scene = (Act, Then);
type Story = fn(Versions) -> Result<()>;

fn founds(serial: Serial) -> Act {
    Act::Starts(serial, StartMode::Bootstrap)
}

fn joins<const N: usize>(serial: Serial, list: [Serial; N]) -> Act {
    Act::Starts(serial, StartMode::Join(list.into()))
}

fn restarts(serial: Serial) -> Act {
    Act::Starts(serial, StartMode::ExistingData)
}

fn adds(serial: Serial) -> Act {
    Act::Asks(MembershipChange::Add(serial))
}

fn promotes(serial: Serial) -> Act {
    Act::Asks(MembershipChange::Promote(serial))
}

fn removes(serial: Serial) -> Act {
    Act::Asks(MembershipChange::Remove(serial))
}

fn dies(serial: Serial) -> Scene {
    (Act::Dies(serial), Then::Whatever)
}

/// A seed, and whoever follows as a voter.
fn voters<const N: usize>(others: [Serial; N]) -> Vec<Scene> {
    let mut scenes = vec![(founds(A), Then::Serves)];
    let mut list = vec![A];
    for serial in others {
        list.push(serial);
        let join = Act::Starts(serial, StartMode::Join(list.iter().copied().collect()));
        scenes.extend([(adds(serial), Then::Done), (join, Then::Serves)]);
        scenes.push((promotes(serial), Then::Done));
    }
    scenes
}

/// Three voters, the quick way: nobody is added right after a promotion, which takes 5 s. 3.5 takes one learner at a time.
fn three_voters() -> Vec<Scene> {
    vec![
        (founds(A), Then::Serves),
        (adds(B), Then::Done),
        (joins(B, [A, B]), Then::Serves),
        (adds(C), Then::Done),
        (joins(C, [A, B, C]), Then::Serves),
        (promotes(B), Then::Done),
        (promotes(C), Then::Done),
    ]
}

/// On which versions of etcd a story is played; one that is missing is built first.
#[derive(Clone, Copy)]
enum Versions {
    /// The newest.
    Newest,
    /// All others.
    Others,
}

impl Versions {
    fn get(self) -> Result<Vec<EtcdVersion>> {
        let versions: &[&str] = match self {
            Self::Newest => &["3.7.3"],
            Self::Others => &["3.5.35", "3.6.16"],
        };
        versions.iter().map(|version| version.parse()).collect()
    }
}

/// Plays a story on the world, and then on all these versions of etcd at once.
fn play(on: Versions, max_learners: u8, scenes: &[Scene]) -> Result<()> {
    play_and(on, max_learners, scenes, |_| Ok(()))
}

/// The same, and then what only real processes can show.
fn play_and(
    on: Versions,
    max_learners: u8,
    scenes: &[Scene],
    then: impl Fn(&mut Real) -> Result<()> + Sync,
) -> Result<()> {
    let mut world = Imagined::new(max_learners);
    let mut looks = Vec::new();
    for (act, then) in scenes {
        let look = world.play(act)?;
        ensure!(
            act.came(*then, &look),
            "in the world {act:?} is not {then:?} then: {look:?}"
        );
        looks.push(look);
    }
    on_each_version(on, max_learners, |real| {
        for ((act, then), look) in scenes.iter().zip(&looks) {
            real.play(act, *then, look)?;
        }
        then(real)
    })
}

fn on_each_version(
    on: Versions,
    max_learners: u8,
    story: impl Fn(&mut Real) -> Result<()> + Sync,
) -> Result<()> {
    let mut versions = on.get()?;
    // 3.5 has no such flag.
    versions.retain(|version| max_learners == 1 || !version.as_str().starts_with("3.5"));
    let one = |version| {
        story(&mut Real::new(version, max_learners)?).with_context(|| format!("etcd {version}"))
    };
    std::thread::scope(|scope| {
        let one = &one;
        let players: Vec<_> = versions
            .into_iter()
            .map(|version| scope.spawn(move || one(version)))
            .collect();
        let ends = players
            .into_iter()
            .map(|player| player.join().map_err(|_| anyhow::anyhow!("it panicked"))?);
        ends.collect()
    })
}

/// Declares a test for each list of stories, which play side by side: most of their time is spent waiting. They play on the
/// newest version of etcd, and in `full` on the others.
macro_rules! tests {
    ($($name:ident: [$($story:ident,)*],)*) => {
        $(#[test]
        fn $name() -> Result<()> {
            play_together(Versions::Newest, &[$((stringify!($story), $story as Story)),*])
        })*

        mod full {
            use super::*;

            $(#[test]
            fn $name() -> Result<()> {
                play_together(Versions::Others, &[$((stringify!($story), $story as Story)),*])
            })*
        }
    };
}

fn play_together(on: Versions, stories: &[(&str, Story)]) -> Result<()> {
    std::thread::scope(|scope| {
        let players: Vec<_> = stories
            .iter()
            .map(|(name, story)| (name, scope.spawn(move || story(on))))
            .collect();
        let ends = players.into_iter().map(|(name, player)| {
            let end = player.join().map_err(|_| anyhow::anyhow!("it panicked"))?;
            end.with_context(|| name.replace('_', " "))
        });
        ends.collect()
    })
}

tests! {
    etcd_and_the_world_agree_on_reconfiguring: [
        while_a_voter_is_down_nobody_is_added_and_the_dead_are_removed_but_not_the_living_nor_the_last,
        a_removal_that_costs_the_quorum_is_made_by_a_leader_that_has_not_noticed,
    ],
    etcd_and_the_world_agree_on_losing_the_quorum: [
        without_a_quorum_nothing_is_read_or_changed_but_members_that_were_up_still_speak,
        a_call_that_timed_out_as_the_quorum_was_lost_is_made_when_that_is_back,
        a_member_that_starts_without_a_quorum_says_nothing_until_there_is_one,
    ],
    etcd_and_the_world_agree_on_leaving: [
        a_removed_member_exits_and_never_comes_back,
        a_member_that_was_down_when_it_was_removed_finds_out,
    ],
    etcd_and_the_world_agree_on_forgetting: [
        a_learner_that_lost_its_data_crashes_at_every_start_until_there_is_another_leader,
        a_learner_rolled_back_crashes_at_every_start_until_there_is_another_leader,
    ],
    etcd_and_the_world_agree_on_joining: [
        a_learner_joins_with_a_true_list_and_with_no_other,
        a_joiner_that_finds_members_but_no_quorum_waits_for_it,
        a_joiner_that_finds_nobody_ends,
    ],
    etcd_and_the_world_agree_on_learning: [
        one_learner_at_a_time_unless_told_otherwise,
        as_many_learners_as_it_was_told,
        a_dead_learner_is_promoted_and_costs_the_quorum_until_it_is_back,
    ],
    etcd_and_the_world_agree_on_starting: [
        a_seed_founds_alone_and_founded_again_has_the_same_ids,
        flags_do_not_matter_to_a_member_with_data,
        with_itself_alone_in_the_list_a_member_refuses_an_empty_directory,
        an_empty_list_is_refused_as_an_argument,
    ],
    a_leader_that_is_wrong_for_good_is_passed_over: [
        a_leader_that_gave_up_a_message_late_declines_additions_for_good_and_a_follower_makes_them,
    ],
}

/// What `act::call` of the etcd engine rests on: a leader can be wrong for good, and then another member can be asked.
fn a_leader_that_gave_up_a_message_late_declines_additions_for_good_and_a_follower_makes_them(
    on: Versions,
) -> Result<()> {
    play_and(on, 1, &voters([B, C]), |real| {
        let messages = real.dies_and_is_held_in_touch(C)?;
        real.restarts_and_serves(C)?;
        held::give_up(messages);
        // Whoever was in touch for five seconds counts as there, so that a leader that had noticed would have said yes.
        std::thread::sleep(std::time::Duration::from_secs(7));
        let declined = real
            .ask_of(A, MembershipChange::Add(D))
            .err()
            .context("the leader makes it")?;
        ensure!(
            declined.to_string().contains("unhealthy cluster"),
            "declined for another reason: {declined}"
        );
        real.ask_of(B, MembershipChange::Add(D))
            .context("the follower declines, too")?;
        Ok(())
    })
}

fn a_seed_founds_alone_and_founded_again_has_the_same_ids(on: Versions) -> Result<()> {
    play(
        on,
        1,
        &[
            (founds(A), Then::Serves),
            dies(A),
            (Act::Wiped(A), Then::Whatever),
            (founds(A), Then::Serves),
        ],
    )
}

fn flags_do_not_matter_to_a_member_with_data(on: Versions) -> Result<()> {
    play(
        on,
        1,
        &[
            (founds(A), Then::Serves),
            dies(A),
            (restarts(A), Then::Serves),
            dies(A),
            (joins(A, [A, B, C]), Then::Serves),
            dies(A),
            (founds(A), Then::Serves),
        ],
    )
}

fn with_itself_alone_in_the_list_a_member_refuses_an_empty_directory(on: Versions) -> Result<()> {
    play(
        on,
        1,
        &[
            (restarts(A), Then::Silent),
            (founds(A), Then::Serves),
            (adds(B), Then::Done),
            (restarts(B), Then::Silent),
            (joins(B, [A, B]), Then::Serves),
            dies(B),
            (restarts(B), Then::Serves),
            dies(B),
            (Act::Wiped(B), Then::Whatever),
            (restarts(B), Then::Silent),
        ],
    )
}

fn a_learner_joins_with_a_true_list_and_with_no_other(on: Versions) -> Result<()> {
    play(
        on,
        1,
        &[
            (founds(A), Then::Serves),
            (joins(B, [A, B]), Then::Silent),
            (adds(B), Then::Done),
            (joins(B, [A, B, C]), Then::Silent),
            (joins(B, [A, C]), Then::Silent),
            (joins(B, [A, B]), Then::Serves),
            (promotes(B), Then::Done),
            (adds(C), Then::Done),
            (joins(C, [A, C]), Then::Silent),
            (joins(C, [A, B, C]), Then::Serves),
        ],
    )
}

fn a_removed_member_exits_and_never_comes_back(on: Versions) -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        (removes(B), Then::Done),
        (restarts(B), Then::Silent),
        (joins(B, [A, B]), Then::Silent),
        (Act::Wiped(B), Then::Whatever),
        (joins(B, [A, B]), Then::Silent),
    ]);
    play(on, 1, &scenes)
}

fn a_member_that_was_down_when_it_was_removed_finds_out(on: Versions) -> Result<()> {
    let mut scenes = three_voters();
    scenes.extend([
        dies(C),
        (removes(C), Then::Done),
        (restarts(C), Then::Silent),
        dies(A),
        dies(B),
        (restarts(C), Then::Silent),
        (restarts(A), Then::Silent),
    ]);
    play(on, 2, &scenes)
}

fn without_a_quorum_nothing_is_read_or_changed_but_members_that_were_up_still_speak(
    on: Versions,
) -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        dies(B),
        (adds(C), Then::Refused),
        (removes(B), Then::Refused),
        (restarts(B), Then::Serves),
        (adds(C), Then::Done),
        dies(B),
        (promotes(C), Then::Refused),
        (removes(C), Then::Refused),
    ]);
    play(on, 1, &scenes)
}

fn a_call_that_timed_out_as_the_quorum_was_lost_is_made_when_that_is_back(
    on: Versions,
) -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        (
            Act::AsksAsItDies(B, MembershipChange::Remove(B)),
            Then::Refused,
        ),
        (restarts(B), Then::Silent),
    ]);
    play(on, 1, &scenes)
}

fn a_removal_that_costs_the_quorum_is_made_by_a_leader_that_has_not_noticed(
    on: Versions,
) -> Result<()> {
    let mut scenes = three_voters();
    scenes.extend([
        (
            Act::AsksAsItFreezes(C, MembershipChange::Remove(B)),
            Then::Done,
        ),
        (restarts(C), Then::Serves),
    ]);
    play(on, 2, &scenes)
}

fn a_joiner_that_finds_members_but_no_quorum_waits_for_it(on: Versions) -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        (adds(C), Then::Done),
        dies(B),
        (joins(C, [A, B, C]), Then::Silent),
        (restarts(B), Then::Serves),
    ]);
    play(on, 1, &scenes)
}

fn a_joiner_that_finds_nobody_ends(on: Versions) -> Result<()> {
    play(
        on,
        1,
        &[
            (founds(A), Then::Serves),
            (adds(B), Then::Done),
            dies(A),
            (joins(B, [A, B]), Then::Silent),
        ],
    )
}

fn a_member_that_starts_without_a_quorum_says_nothing_until_there_is_one(
    on: Versions,
) -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        dies(A),
        dies(B),
        (restarts(A), Then::Silent),
        (restarts(B), Then::Serves),
    ]);
    play(on, 1, &scenes)
}

fn a_dead_learner_is_promoted_and_costs_the_quorum_until_it_is_back(on: Versions) -> Result<()> {
    play(
        on,
        1,
        &[
            (founds(A), Then::Serves),
            (adds(B), Then::Done),
            (promotes(B), Then::Refused),
            (joins(B, [A, B]), Then::Serves),
            dies(B),
            (promotes(B), Then::Done),
            (restarts(B), Then::Serves),
        ],
    )
}

fn one_learner_at_a_time_unless_told_otherwise(on: Versions) -> Result<()> {
    play(
        on,
        1,
        &[
            (founds(A), Then::Serves),
            (adds(B), Then::Done),
            (adds(C), Then::Refused),
            (removes(B), Then::Done),
            (adds(C), Then::Done),
        ],
    )
}

fn as_many_learners_as_it_was_told(on: Versions) -> Result<()> {
    play(
        on,
        2,
        &[
            (founds(A), Then::Serves),
            (adds(B), Then::Done),
            (adds(C), Then::Done),
            (adds(D), Then::Refused),
            (joins(B, [A, B]), Then::Silent),
            (joins(B, [A, B, C]), Then::Serves),
            (joins(C, [A, B, C]), Then::Serves),
            (promotes(C), Then::Done),
            (promotes(B), Then::Done),
        ],
    )
}

fn a_learner_that_lost_its_data_crashes_at_every_start_until_there_is_another_leader(
    on: Versions,
) -> Result<()> {
    play(
        on,
        1,
        &[
            (founds(A), Then::Serves),
            (adds(B), Then::Done),
            (joins(B, [A, B]), Then::Serves),
            dies(B),
            (Act::Wiped(B), Then::Whatever),
            (joins(B, [A, B]), Then::Silent),
            (joins(B, [A, B]), Then::Silent),
            (
                Act::StartsUnderAnotherLeader(B, StartMode::Join([A, B].into())),
                Then::Serves,
            ),
        ],
    )
}

fn a_learner_rolled_back_crashes_at_every_start_until_there_is_another_leader(
    on: Versions,
) -> Result<()> {
    play(
        on,
        2,
        &[
            (founds(A), Then::Serves),
            (adds(B), Then::Done),
            (joins(B, [A, B]), Then::Serves),
            dies(B),
            (Act::Copied(B), Then::Whatever),
            (restarts(B), Then::Serves),
            (adds(C), Then::Done),
            (removes(C), Then::Done),
            dies(B),
            (Act::RolledBack(B), Then::Whatever),
            (restarts(B), Then::Silent),
            (
                Act::StartsUnderAnotherLeader(B, StartMode::ExistingData),
                Then::Serves,
            ),
        ],
    )
}

fn while_a_voter_is_down_nobody_is_added_and_the_dead_are_removed_but_not_the_living_nor_the_last(
    on: Versions,
) -> Result<()> {
    let mut scenes = voters([B, C]);
    scenes.extend([
        dies(C),
        (adds(D), Then::Refused),
        (removes(B), Then::Refused),
        (removes(C), Then::Done),
        (adds(D), Then::Done),
        (removes(D), Then::Done),
        (removes(B), Then::Done),
        (removes(A), Then::Refused),
    ]);
    play(on, 1, &scenes)
}

fn an_empty_list_is_refused_as_an_argument(on: Versions) -> Result<()> {
    on_each_version(on, 1, |real| {
        for state in ["new", "existing"] {
            real.spawn(A, "", state)?;
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while !real.has_ended(A)? {
                ensure!(
                    std::time::Instant::now() < until,
                    "it runs\n{}",
                    real.last_words()
                );
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        Ok(())
    })
}
