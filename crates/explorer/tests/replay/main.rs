//! Replays scripts on the explorer's model and on real etcd processes. The observable state after each step must be
//! the same, so that the model's rules for etcd are those of etcd.

mod held;
mod imagined;
mod real;
mod stage;

use anyhow::{Context, Result, ensure};
use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::names::Serial;
use evenkeel_lab::parts::etcd::EtcdVersion;

use crate::imagined::ModelReplay;
use crate::real::EtcdReplay;
use crate::stage::{Expected, ReplayStep};

const A: Serial = Serial(0);
const B: Serial = Serial(1);
const C: Serial = Serial(2);
const D: Serial = Serial(3);

type ScriptStep = (ReplayStep, Expected);
type Script = fn(Versions) -> Result<()>;

fn bootstraps(serial: Serial) -> ReplayStep {
    ReplayStep::Start(serial, StartMode::Bootstrap)
}

fn joins<const N: usize>(serial: Serial, list: [Serial; N]) -> ReplayStep {
    ReplayStep::Start(serial, StartMode::Join(list.into()))
}

fn restarts(serial: Serial) -> ReplayStep {
    ReplayStep::Start(serial, StartMode::ExistingData)
}

fn adds(serial: Serial) -> ReplayStep {
    ReplayStep::Change(MembershipChange::Add(serial))
}

fn promotes(serial: Serial) -> ReplayStep {
    ReplayStep::Change(MembershipChange::Promote(serial))
}

fn removes(serial: Serial) -> ReplayStep {
    ReplayStep::Change(MembershipChange::Remove(serial))
}

fn kills(serial: Serial) -> ScriptStep {
    (ReplayStep::Kill(serial), Expected::Anything)
}

/// Returns the steps to a cluster of a seed and these voters.
fn voters<const N: usize>(others: [Serial; N]) -> Vec<ScriptStep> {
    let mut steps = vec![(bootstraps(A), Expected::Serves)];
    let mut list = vec![A];
    for serial in others {
        list.push(serial);
        let join = ReplayStep::Start(serial, StartMode::Join(list.iter().copied().collect()));
        steps.extend([(adds(serial), Expected::Done), (join, Expected::Serves)]);
        steps.push((promotes(serial), Expected::Done));
    }
    steps
}

/// Returns the steps to three voters without an addition right after a promotion, which takes 5 s. 3.5 accepts one
/// learner at a time.
fn three_voters() -> Vec<ScriptStep> {
    vec![
        (bootstraps(A), Expected::Serves),
        (adds(B), Expected::Done),
        (joins(B, [A, B]), Expected::Serves),
        (adds(C), Expected::Done),
        (joins(C, [A, B, C]), Expected::Serves),
        (promotes(B), Expected::Done),
        (promotes(C), Expected::Done),
    ]
}

/// The etcd versions on which a script runs. A version that is not built yet is built first.
#[derive(Clone, Copy)]
enum Versions {
    /// The newest version.
    Newest,
    /// All other versions.
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

/// Runs a script on the model, then on all these versions of etcd in parallel.
fn run(on: Versions, max_learners: u8, steps: &[ScriptStep]) -> Result<()> {
    run_and_then(on, max_learners, steps, |_| Ok(()))
}

/// Runs a script, then `and_then` on the real processes only.
fn run_and_then(
    on: Versions,
    max_learners: u8,
    steps: &[ScriptStep],
    and_then: impl Fn(&mut EtcdReplay) -> Result<()> + Sync,
) -> Result<()> {
    let mut model = ModelReplay::new(max_learners);
    let mut states = Vec::new();
    for (step, expected) in steps {
        let state = model.run(step)?;
        ensure!(
            step.is_shown_by(*expected, &state),
            "the model does not show {expected:?} after {step:?}: {state:?}"
        );
        states.push(state);
    }
    on_each_version(on, max_learners, |real| {
        for ((step, expected), state) in steps.iter().zip(&states) {
            real.run(step, *expected, state)?;
        }
        and_then(real)
    })
}

fn on_each_version(
    on: Versions,
    max_learners: u8,
    script: impl Fn(&mut EtcdReplay) -> Result<()> + Sync,
) -> Result<()> {
    let mut versions = on.get()?;
    // 3.5 has no `--max-learners`.
    versions.retain(|version| max_learners == 1 || !version.as_str().starts_with("3.5"));
    let one = |version| {
        script(&mut EtcdReplay::new(version, max_learners)?)
            .with_context(|| format!("etcd {version}"))
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = versions
            .into_iter()
            .map(|version| scope.spawn(move || one(version)))
            .collect();
        let results = threads.into_iter().map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("the thread panicked"))?
        });
        results.collect()
    })
}

/// Declares a test for each list of scripts, which run in parallel: most of their time is spent waiting. The tests run on
/// the newest version of etcd, those in `full` on the others.
macro_rules! tests {
    ($($name:ident: [$($script:ident,)*],)*) => {
        $(#[test]
        fn $name() -> Result<()> {
            run_together(Versions::Newest, &[$((stringify!($script), $script as Script)),*])
        })*

        mod full {
            use super::*;

            $(#[test]
            fn $name() -> Result<()> {
                run_together(Versions::Others, &[$((stringify!($script), $script as Script)),*])
            })*
        }
    };
}

fn run_together(on: Versions, scripts: &[(&str, Script)]) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = scripts
            .iter()
            .map(|(name, script)| (name, scope.spawn(move || script(on))))
            .collect();
        let results = threads.into_iter().map(|(name, thread)| {
            let end = thread
                .join()
                .map_err(|_| anyhow::anyhow!("the thread panicked"))?;
            end.with_context(|| name.replace('_', " "))
        });
        results.collect()
    })
}

tests! {
    etcd_and_the_model_agree_on_membership_changes: [
        while_a_voter_is_down_only_the_dead_member_can_be_removed,
        a_leader_accepts_a_removal_before_it_detects_a_failure,
    ],
    etcd_and_the_model_agree_on_quorum_loss: [
        without_a_quorum_members_answer_but_read_and_change_nothing,
        a_change_that_timed_out_is_committed_when_the_quorum_is_back,
        a_member_started_without_a_quorum_answers_only_with_one,
    ],
    etcd_and_the_model_agree_on_removals: [
        a_removed_member_exits_and_cannot_restart,
        a_member_removed_while_it_was_down_exits_at_its_start,
    ],
    etcd_and_the_model_agree_on_data_loss: [
        a_learner_without_its_data_crashes_until_the_leader_changes,
        a_learner_on_older_data_crashes_until_the_leader_changes,
    ],
    etcd_and_the_model_agree_on_joins: [
        a_learner_joins_only_with_the_correct_list,
        a_joining_member_waits_for_a_quorum,
        a_joining_member_that_reaches_no_member_exits,
    ],
    etcd_and_the_model_agree_on_learners: [
        one_learner_at_a_time_is_the_default,
        max_learners_allows_more_learners,
        a_dead_learner_is_promoted_and_costs_the_quorum,
    ],
    etcd_and_the_model_agree_on_starts: [
        a_seed_that_bootstraps_again_has_the_same_ids,
        a_member_with_data_ignores_its_flags,
        a_member_alone_in_its_list_rejects_an_empty_directory,
        an_empty_initial_cluster_is_rejected,
    ],
    etcd_and_the_model_agree_on_restores: [
        a_restored_member_serves_the_backup_and_accepts_learners,
        a_restored_member_rejects_an_empty_directory,
    ],
    a_leader_that_is_wrong_is_bypassed: [
        a_leader_that_rejects_additions_forever_is_bypassed_through_a_follower,
    ],
}

fn starts_restored(serial: Serial) -> ReplayStep {
    ReplayStep::Start(serial, StartMode::Restored)
}

fn a_restored_member_serves_the_backup_and_accepts_learners(on: Versions) -> Result<()> {
    let steps = [
        (ReplayStep::RestoreBackup(A), Expected::Anything),
        (starts_restored(A), Expected::Serves),
        (adds(B), Expected::Done),
        (joins(B, [A, B]), Expected::Serves),
        (promotes(B), Expected::Done),
        kills(A),
        (restarts(A), Expected::Serves),
    ];
    run_and_then(on, 1, &steps, |real| {
        for serial in [A, B] {
            let (written, revision) = real.restored_revisions(serial)?;
            ensure!(
                written < 1000 && revision >= 1_000_000_000,
                "the key was written at revision {written}, and the revision is {revision}"
            );
        }
        Ok(())
    })
}

fn a_restored_member_rejects_an_empty_directory(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (starts_restored(A), Expected::Unreachable),
            kills(A),
            (ReplayStep::Wipe(A), Expected::Anything),
            (ReplayStep::RestoreBackup(A), Expected::Anything),
            (starts_restored(A), Expected::Serves),
            kills(A),
            (ReplayStep::Wipe(A), Expected::Anything),
            (starts_restored(A), Expected::Unreachable),
        ],
    )
}

/// The etcd engine relies on this: a leader can reject changes forever, while another member accepts them.
fn a_leader_that_rejects_additions_forever_is_bypassed_through_a_follower(
    on: Versions,
) -> Result<()> {
    run_and_then(on, 1, &voters([B, C]), |real| {
        let messages = real.kill_and_hold_connections(C)?;
        real.restart_until_serving(C)?;
        held::close_connections(messages);
        // A member counts as reachable after five seconds of contact. A leader that had noticed would accept the
        // change.
        std::thread::sleep(std::time::Duration::from_secs(7));
        let rejected = real
            .send_change_to(A, MembershipChange::Add(D))
            .err()
            .context("the leader accepts the change")?;
        ensure!(
            rejected.to_string().contains("unhealthy cluster"),
            "rejected for another reason: {rejected}"
        );
        real.send_change_to(B, MembershipChange::Add(D))
            .context("the follower rejects the change, too")?;
        Ok(())
    })
}

fn a_seed_that_bootstraps_again_has_the_same_ids(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (bootstraps(A), Expected::Serves),
            kills(A),
            (ReplayStep::Wipe(A), Expected::Anything),
            (bootstraps(A), Expected::Serves),
        ],
    )
}

fn a_member_with_data_ignores_its_flags(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (bootstraps(A), Expected::Serves),
            kills(A),
            (restarts(A), Expected::Serves),
            kills(A),
            (joins(A, [A, B, C]), Expected::Serves),
            kills(A),
            (bootstraps(A), Expected::Serves),
        ],
    )
}

fn a_member_alone_in_its_list_rejects_an_empty_directory(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (restarts(A), Expected::Unreachable),
            (bootstraps(A), Expected::Serves),
            (adds(B), Expected::Done),
            (restarts(B), Expected::Unreachable),
            (joins(B, [A, B]), Expected::Serves),
            kills(B),
            (restarts(B), Expected::Serves),
            kills(B),
            (ReplayStep::Wipe(B), Expected::Anything),
            (restarts(B), Expected::Unreachable),
        ],
    )
}

fn a_learner_joins_only_with_the_correct_list(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (bootstraps(A), Expected::Serves),
            (joins(B, [A, B]), Expected::Unreachable),
            (adds(B), Expected::Done),
            (joins(B, [A, B, C]), Expected::Unreachable),
            (joins(B, [A, C]), Expected::Unreachable),
            (joins(B, [A, B]), Expected::Serves),
            (promotes(B), Expected::Done),
            (adds(C), Expected::Done),
            (joins(C, [A, C]), Expected::Unreachable),
            (joins(C, [A, B, C]), Expected::Serves),
        ],
    )
}

fn a_removed_member_exits_and_cannot_restart(on: Versions) -> Result<()> {
    let mut steps = voters([B]);
    steps.extend([
        (removes(B), Expected::Done),
        (restarts(B), Expected::Unreachable),
        (joins(B, [A, B]), Expected::Unreachable),
        (ReplayStep::Wipe(B), Expected::Anything),
        (joins(B, [A, B]), Expected::Unreachable),
    ]);
    run(on, 1, &steps)
}

fn a_member_removed_while_it_was_down_exits_at_its_start(on: Versions) -> Result<()> {
    let mut steps = three_voters();
    steps.extend([
        kills(C),
        (removes(C), Expected::Done),
        (restarts(C), Expected::Unreachable),
        kills(A),
        kills(B),
        (restarts(C), Expected::Unreachable),
        (restarts(A), Expected::Unreachable),
    ]);
    run(on, 2, &steps)
}

fn without_a_quorum_members_answer_but_read_and_change_nothing(on: Versions) -> Result<()> {
    let mut steps = voters([B]);
    steps.extend([
        kills(B),
        (adds(C), Expected::Rejected),
        (removes(B), Expected::Rejected),
        (restarts(B), Expected::Serves),
        (adds(C), Expected::Done),
        kills(B),
        (promotes(C), Expected::Rejected),
        (removes(C), Expected::Rejected),
    ]);
    run(on, 1, &steps)
}

fn a_change_that_timed_out_is_committed_when_the_quorum_is_back(on: Versions) -> Result<()> {
    let mut steps = voters([B]);
    steps.extend([
        (
            ReplayStep::ChangeAsMemberDies(B, MembershipChange::Remove(B)),
            Expected::Rejected,
        ),
        (restarts(B), Expected::Unreachable),
    ]);
    run(on, 1, &steps)
}

fn a_leader_accepts_a_removal_before_it_detects_a_failure(on: Versions) -> Result<()> {
    let mut steps = three_voters();
    steps.extend([
        (
            ReplayStep::ChangeAsMemberFreezes(C, MembershipChange::Remove(B)),
            Expected::Done,
        ),
        (restarts(C), Expected::Serves),
    ]);
    run(on, 2, &steps)
}

fn a_joining_member_waits_for_a_quorum(on: Versions) -> Result<()> {
    let mut steps = voters([B]);
    steps.extend([
        (adds(C), Expected::Done),
        kills(B),
        (joins(C, [A, B, C]), Expected::Unreachable),
        (restarts(B), Expected::Serves),
    ]);
    run(on, 1, &steps)
}

fn a_joining_member_that_reaches_no_member_exits(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (bootstraps(A), Expected::Serves),
            (adds(B), Expected::Done),
            kills(A),
            (joins(B, [A, B]), Expected::Unreachable),
        ],
    )
}

fn a_member_started_without_a_quorum_answers_only_with_one(on: Versions) -> Result<()> {
    let mut steps = voters([B]);
    steps.extend([
        kills(A),
        kills(B),
        (restarts(A), Expected::Unreachable),
        (restarts(B), Expected::Serves),
    ]);
    run(on, 1, &steps)
}

fn a_dead_learner_is_promoted_and_costs_the_quorum(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (bootstraps(A), Expected::Serves),
            (adds(B), Expected::Done),
            (promotes(B), Expected::Rejected),
            (joins(B, [A, B]), Expected::Serves),
            kills(B),
            (promotes(B), Expected::Done),
            (restarts(B), Expected::Serves),
        ],
    )
}

fn one_learner_at_a_time_is_the_default(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (bootstraps(A), Expected::Serves),
            (adds(B), Expected::Done),
            (adds(C), Expected::Rejected),
            (removes(B), Expected::Done),
            (adds(C), Expected::Done),
        ],
    )
}

fn max_learners_allows_more_learners(on: Versions) -> Result<()> {
    run(
        on,
        2,
        &[
            (bootstraps(A), Expected::Serves),
            (adds(B), Expected::Done),
            (adds(C), Expected::Done),
            (adds(D), Expected::Rejected),
            (joins(B, [A, B]), Expected::Unreachable),
            (joins(B, [A, B, C]), Expected::Serves),
            (joins(C, [A, B, C]), Expected::Serves),
            (promotes(C), Expected::Done),
            (promotes(B), Expected::Done),
        ],
    )
}

fn a_learner_without_its_data_crashes_until_the_leader_changes(on: Versions) -> Result<()> {
    run(
        on,
        1,
        &[
            (bootstraps(A), Expected::Serves),
            (adds(B), Expected::Done),
            (joins(B, [A, B]), Expected::Serves),
            kills(B),
            (ReplayStep::Wipe(B), Expected::Anything),
            (joins(B, [A, B]), Expected::Unreachable),
            (joins(B, [A, B]), Expected::Unreachable),
            (
                ReplayStep::StartUnderNewLeader(B, StartMode::Join([A, B].into())),
                Expected::Serves,
            ),
        ],
    )
}

fn a_learner_on_older_data_crashes_until_the_leader_changes(on: Versions) -> Result<()> {
    run(
        on,
        2,
        &[
            (bootstraps(A), Expected::Serves),
            (adds(B), Expected::Done),
            (joins(B, [A, B]), Expected::Serves),
            kills(B),
            (ReplayStep::Copy(B), Expected::Anything),
            (restarts(B), Expected::Serves),
            (adds(C), Expected::Done),
            (removes(C), Expected::Done),
            kills(B),
            (ReplayStep::Restore(B), Expected::Anything),
            (restarts(B), Expected::Unreachable),
            (
                ReplayStep::StartUnderNewLeader(B, StartMode::ExistingData),
                Expected::Serves,
            ),
        ],
    )
}

fn while_a_voter_is_down_only_the_dead_member_can_be_removed(on: Versions) -> Result<()> {
    let mut steps = voters([B, C]);
    steps.extend([
        kills(C),
        (adds(D), Expected::Rejected),
        (removes(B), Expected::Rejected),
        (removes(C), Expected::Done),
        (adds(D), Expected::Done),
        (removes(D), Expected::Done),
        (removes(B), Expected::Done),
        (removes(A), Expected::Rejected),
    ]);
    run(on, 1, &steps)
}

fn an_empty_initial_cluster_is_rejected(on: Versions) -> Result<()> {
    on_each_version(on, 1, |real| {
        for state in ["new", "existing"] {
            real.spawn(A, "", state)?;
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while !real.has_ended(A)? {
                ensure!(
                    std::time::Instant::now() < until,
                    "etcd keeps running\n{}",
                    real.log_tails()
                );
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        Ok(())
    })
}
