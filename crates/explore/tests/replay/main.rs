//! The rules that the world ascribes to etcd, played on the world and on real etcd processes alike: what can be seen after
//! each act is the same, so that the world cannot be kinder than etcd.

mod imagined;
mod real;
mod stage;

use anyhow::{Context, Result, ensure};
use evenkeel_etcd::facts::Start;
use evenkeel_etcd::identity::Change;
use evenkeel_etcd::names::Serial;
use evenkeel_lab::cache;
use evenkeel_lab::parts::etcd::Version;

use crate::imagined::Imagined;
use crate::real::Real;
use crate::stage::{Act, Comes};

const A: Serial = Serial(0);
const B: Serial = Serial(1);
const C: Serial = Serial(2);
const D: Serial = Serial(3);

type Scene = (Act, Comes);

fn founds(serial: Serial) -> Act {
    Act::Starts(serial, Start::Found)
}

fn joins<const N: usize>(serial: Serial, list: [Serial; N]) -> Act {
    Act::Starts(serial, Start::Join(list.into()))
}

fn restarts(serial: Serial) -> Act {
    Act::Starts(serial, Start::OwnData)
}

fn adds(serial: Serial) -> Act {
    Act::Asks(Change::Add(serial))
}

fn promotes(serial: Serial) -> Act {
    Act::Asks(Change::Promote(serial))
}

fn removes(serial: Serial) -> Act {
    Act::Asks(Change::Remove(serial))
}

fn dies(serial: Serial) -> Scene {
    (Act::Dies(serial), Comes::ToPass)
}

/// A seed, and whoever follows as a voter.
fn voters<const N: usize>(others: [Serial; N]) -> Vec<Scene> {
    let mut scenes = vec![(founds(A), Comes::ToServe)];
    let mut list = vec![A];
    for serial in others {
        list.push(serial);
        let join = Act::Starts(serial, Start::Join(list.iter().copied().collect()));
        scenes.extend([(adds(serial), Comes::ToBeDone), (join, Comes::ToServe)]);
        scenes.push((promotes(serial), Comes::ToBeDone));
    }
    scenes
}

/// Three voters, the quick way: nobody is added right after a promotion, which takes 5 s. 3.5 takes one learner at a time.
fn three_voters() -> Vec<Scene> {
    vec![
        (founds(A), Comes::ToServe),
        (adds(B), Comes::ToBeDone),
        (joins(B, [A, B]), Comes::ToServe),
        (adds(C), Comes::ToBeDone),
        (joins(C, [A, B, C]), Comes::ToServe),
        (promotes(B), Comes::ToBeDone),
        (promotes(C), Comes::ToBeDone),
    ]
}

/// The versions that are there already; the lab's own is made where it is missing.
fn versions() -> Result<Vec<Version>> {
    let built: Vec<String> = std::fs::read_dir(cache::dir()?)
        .map(|entries| entries.flatten().map(|one| one.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    let wanted = ["3.5.35", "3.6.16", "3.7.3"].map(str::parse::<Version>);
    let mut versions = wanted.into_iter().collect::<Result<Vec<_>>>()?;
    let is_built = |version: &Version| built.iter().any(|name| name.starts_with(&format!("etcd-{version}-")));
    versions.retain(|version| *version == Version::DEFAULT || is_built(version));
    Ok(versions)
}

/// Plays a story on the world, and then on every version of etcd at once.
fn play(max_learners: u8, scenes: &[Scene]) -> Result<()> {
    let mut world = Imagined::new(max_learners);
    let mut looks = Vec::new();
    for (act, comes) in scenes {
        let look = world.play(act)?;
        ensure!(act.came(*comes, &look), "in the world {act:?} does not come {comes:?}: {look:?}");
        looks.push(look);
    }
    on_each_version(max_learners, |real| {
        for ((act, comes), look) in scenes.iter().zip(&looks) {
            real.play(act, *comes, look)?;
        }
        Ok(())
    })
}

fn on_each_version(max_learners: u8, story: impl Fn(&mut Real) -> Result<()> + Sync) -> Result<()> {
    let mut versions = versions()?;
    // 3.5 has no such flag.
    versions.retain(|version| max_learners == 1 || !version.as_str().starts_with("3.5"));
    let one =
        |version| story(&mut Real::new(version, max_learners)?).with_context(|| format!("etcd {version}"));
    std::thread::scope(|scope| {
        let one = &one;
        let players: Vec<_> = versions.into_iter().map(|version| scope.spawn(move || one(version))).collect();
        let ends =
            players.into_iter().map(|player| player.join().map_err(|_| anyhow::anyhow!("it panicked"))?);
        ends.collect()
    })
}

/// Plays stories side by side: most of their time is spent waiting.
macro_rules! together {
    ($($story:ident),*) => { play_together(&[$((stringify!($story), $story as fn() -> Result<()>)),*]) };
}

fn play_together(stories: &[(&str, fn() -> Result<()>)]) -> Result<()> {
    std::thread::scope(|scope| {
        let players: Vec<_> = stories.iter().map(|(name, story)| (name, scope.spawn(story))).collect();
        let ends = players.into_iter().map(|(name, player)| {
            let end = player.join().map_err(|_| anyhow::anyhow!("it panicked"))?;
            end.with_context(|| name.replace('_', " "))
        });
        ends.collect()
    })
}

#[test]
fn etcd_and_the_world_agree_on_reconfiguring() -> Result<()> {
    together!(
        while_a_voter_is_down_nobody_is_added_and_the_dead_are_removed_but_not_the_living_nor_the_last,
        a_removal_that_costs_the_quorum_is_made_by_a_leader_that_has_not_noticed
    )
}

#[test]
fn etcd_and_the_world_agree_on_losing_the_quorum() -> Result<()> {
    together!(
        without_a_quorum_nothing_is_read_or_changed_but_members_that_were_up_still_speak,
        a_call_that_timed_out_as_the_quorum_was_lost_is_made_when_that_is_back,
        a_member_that_starts_without_a_quorum_says_nothing_until_there_is_one
    )
}

#[test]
fn etcd_and_the_world_agree_on_leaving() -> Result<()> {
    together!(
        a_removed_member_exits_and_never_comes_back,
        a_member_that_was_down_when_it_was_removed_finds_out
    )
}

#[test]
fn etcd_and_the_world_agree_on_forgetting() -> Result<()> {
    together!(
        a_learner_that_lost_its_data_crashes_at_every_start_until_there_is_another_leader,
        a_learner_rolled_back_crashes_at_every_start_until_there_is_another_leader
    )
}

#[test]
fn etcd_and_the_world_agree_on_joining() -> Result<()> {
    together!(
        a_learner_joins_with_a_true_list_and_with_no_other,
        a_joiner_that_finds_members_but_no_quorum_waits_for_it,
        a_joiner_that_finds_nobody_ends
    )
}

#[test]
fn etcd_and_the_world_agree_on_learning() -> Result<()> {
    together!(
        one_learner_at_a_time_unless_told_otherwise,
        as_many_learners_as_it_was_told,
        a_dead_learner_is_promoted_and_costs_the_quorum_until_it_is_back
    )
}

#[test]
fn etcd_and_the_world_agree_on_starting() -> Result<()> {
    together!(
        a_seed_founds_alone_and_founded_again_has_the_same_ids,
        flags_do_not_matter_to_a_member_with_data,
        with_itself_alone_in_the_list_a_member_refuses_an_empty_directory,
        an_empty_list_is_refused_as_an_argument
    )
}

fn a_seed_founds_alone_and_founded_again_has_the_same_ids() -> Result<()> {
    play(
        1,
        &[(founds(A), Comes::ToServe), dies(A), (Act::Wiped(A), Comes::ToPass), (founds(A), Comes::ToServe)],
    )
}

fn flags_do_not_matter_to_a_member_with_data() -> Result<()> {
    play(
        1,
        &[
            (founds(A), Comes::ToServe),
            dies(A),
            (restarts(A), Comes::ToServe),
            dies(A),
            (joins(A, [A, B, C]), Comes::ToServe),
            dies(A),
            (founds(A), Comes::ToServe),
        ],
    )
}

fn with_itself_alone_in_the_list_a_member_refuses_an_empty_directory() -> Result<()> {
    play(
        1,
        &[
            (restarts(A), Comes::ToNothing),
            (founds(A), Comes::ToServe),
            (adds(B), Comes::ToBeDone),
            (restarts(B), Comes::ToNothing),
            (joins(B, [A, B]), Comes::ToServe),
            dies(B),
            (restarts(B), Comes::ToServe),
            dies(B),
            (Act::Wiped(B), Comes::ToPass),
            (restarts(B), Comes::ToNothing),
        ],
    )
}

fn a_learner_joins_with_a_true_list_and_with_no_other() -> Result<()> {
    play(
        1,
        &[
            (founds(A), Comes::ToServe),
            (joins(B, [A, B]), Comes::ToNothing),
            (adds(B), Comes::ToBeDone),
            (joins(B, [A, B, C]), Comes::ToNothing),
            (joins(B, [A, C]), Comes::ToNothing),
            (joins(B, [A, B]), Comes::ToServe),
            (promotes(B), Comes::ToBeDone),
            (adds(C), Comes::ToBeDone),
            (joins(C, [A, C]), Comes::ToNothing),
            (joins(C, [A, B, C]), Comes::ToServe),
        ],
    )
}

fn a_removed_member_exits_and_never_comes_back() -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        (removes(B), Comes::ToBeDone),
        (restarts(B), Comes::ToNothing),
        (joins(B, [A, B]), Comes::ToNothing),
        (Act::Wiped(B), Comes::ToPass),
        (joins(B, [A, B]), Comes::ToNothing),
    ]);
    play(1, &scenes)
}

fn a_member_that_was_down_when_it_was_removed_finds_out() -> Result<()> {
    let mut scenes = three_voters();
    scenes.extend([
        dies(C),
        (removes(C), Comes::ToBeDone),
        (restarts(C), Comes::ToNothing),
        dies(A),
        dies(B),
        (restarts(C), Comes::ToNothing),
        (restarts(A), Comes::ToNothing),
    ]);
    play(2, &scenes)
}

fn without_a_quorum_nothing_is_read_or_changed_but_members_that_were_up_still_speak() -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        dies(B),
        (adds(C), Comes::ToBeRefused),
        (removes(B), Comes::ToBeRefused),
        (restarts(B), Comes::ToServe),
        (adds(C), Comes::ToBeDone),
        dies(B),
        (promotes(C), Comes::ToBeRefused),
        (removes(C), Comes::ToBeRefused),
    ]);
    play(1, &scenes)
}

fn a_call_that_timed_out_as_the_quorum_was_lost_is_made_when_that_is_back() -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        (Act::AsksAsItDies(B, Change::Remove(B)), Comes::ToBeRefused),
        (restarts(B), Comes::ToNothing),
    ]);
    play(1, &scenes)
}

fn a_removal_that_costs_the_quorum_is_made_by_a_leader_that_has_not_noticed() -> Result<()> {
    let mut scenes = three_voters();
    scenes.extend([
        (Act::AsksAsItFreezes(C, Change::Remove(B)), Comes::ToBeDone),
        (restarts(C), Comes::ToServe),
    ]);
    play(2, &scenes)
}

fn a_joiner_that_finds_members_but_no_quorum_waits_for_it() -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([
        (adds(C), Comes::ToBeDone),
        dies(B),
        (joins(C, [A, B, C]), Comes::ToNothing),
        (restarts(B), Comes::ToServe),
    ]);
    play(1, &scenes)
}

fn a_joiner_that_finds_nobody_ends() -> Result<()> {
    play(
        1,
        &[
            (founds(A), Comes::ToServe),
            (adds(B), Comes::ToBeDone),
            dies(A),
            (joins(B, [A, B]), Comes::ToNothing),
        ],
    )
}

fn a_member_that_starts_without_a_quorum_says_nothing_until_there_is_one() -> Result<()> {
    let mut scenes = voters([B]);
    scenes.extend([dies(A), dies(B), (restarts(A), Comes::ToNothing), (restarts(B), Comes::ToServe)]);
    play(1, &scenes)
}

fn a_dead_learner_is_promoted_and_costs_the_quorum_until_it_is_back() -> Result<()> {
    play(
        1,
        &[
            (founds(A), Comes::ToServe),
            (adds(B), Comes::ToBeDone),
            (promotes(B), Comes::ToBeRefused),
            (joins(B, [A, B]), Comes::ToServe),
            dies(B),
            (promotes(B), Comes::ToBeDone),
            (restarts(B), Comes::ToServe),
        ],
    )
}

fn one_learner_at_a_time_unless_told_otherwise() -> Result<()> {
    play(
        1,
        &[
            (founds(A), Comes::ToServe),
            (adds(B), Comes::ToBeDone),
            (adds(C), Comes::ToBeRefused),
            (removes(B), Comes::ToBeDone),
            (adds(C), Comes::ToBeDone),
        ],
    )
}

fn as_many_learners_as_it_was_told() -> Result<()> {
    play(
        2,
        &[
            (founds(A), Comes::ToServe),
            (adds(B), Comes::ToBeDone),
            (adds(C), Comes::ToBeDone),
            (adds(D), Comes::ToBeRefused),
            (joins(B, [A, B]), Comes::ToNothing),
            (joins(B, [A, B, C]), Comes::ToServe),
            (joins(C, [A, B, C]), Comes::ToServe),
            (promotes(C), Comes::ToBeDone),
            (promotes(B), Comes::ToBeDone),
        ],
    )
}

fn a_learner_that_lost_its_data_crashes_at_every_start_until_there_is_another_leader() -> Result<()> {
    play(
        1,
        &[
            (founds(A), Comes::ToServe),
            (adds(B), Comes::ToBeDone),
            (joins(B, [A, B]), Comes::ToServe),
            dies(B),
            (Act::Wiped(B), Comes::ToPass),
            (joins(B, [A, B]), Comes::ToNothing),
            (joins(B, [A, B]), Comes::ToNothing),
            (Act::StartsUnderAnotherLeader(B, Start::Join([A, B].into())), Comes::ToServe),
        ],
    )
}

fn a_learner_rolled_back_crashes_at_every_start_until_there_is_another_leader() -> Result<()> {
    play(
        2,
        &[
            (founds(A), Comes::ToServe),
            (adds(B), Comes::ToBeDone),
            (joins(B, [A, B]), Comes::ToServe),
            dies(B),
            (Act::Copied(B), Comes::ToPass),
            (restarts(B), Comes::ToServe),
            (adds(C), Comes::ToBeDone),
            (removes(C), Comes::ToBeDone),
            dies(B),
            (Act::RolledBack(B), Comes::ToPass),
            (restarts(B), Comes::ToNothing),
            (Act::StartsUnderAnotherLeader(B, Start::OwnData), Comes::ToServe),
        ],
    )
}

fn while_a_voter_is_down_nobody_is_added_and_the_dead_are_removed_but_not_the_living_nor_the_last()
-> Result<()> {
    let mut scenes = voters([B, C]);
    scenes.extend([
        dies(C),
        (adds(D), Comes::ToBeRefused),
        (removes(B), Comes::ToBeRefused),
        (removes(C), Comes::ToBeDone),
        (adds(D), Comes::ToBeDone),
        (removes(D), Comes::ToBeDone),
        (removes(B), Comes::ToBeDone),
        (removes(A), Comes::ToBeRefused),
    ]);
    play(1, &scenes)
}

fn an_empty_list_is_refused_as_an_argument() -> Result<()> {
    on_each_version(1, |real| {
        for state in ["new", "existing"] {
            real.spawn(A, "", state)?;
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while !real.has_ended(A)? {
                ensure!(std::time::Instant::now() < until, "it runs\n{}", real.last_words());
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        Ok(())
    })
}
