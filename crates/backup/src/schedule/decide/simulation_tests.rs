//! Thirteen months of virtual time: two schedules of one cluster, changes of clocks, outages of the store and of the operator,
//! a wall clock that jumps by a day, and agents that fail.

use std::collections::BTreeSet;

use evenkeel_api::{BackupPhase, DrillResult};
use evenkeel_archive::tasks::{FailureReason, Outcome, TaskFailure, TaskResult};
use evenkeel_runtime::{Observed, Requeue};
use serde_json::{Value, json};

use super::super::facts::{
    BackupFacts, DrillPodFacts, DrillPodState, DrillRecord, PrunePodFacts, StoreFacts, backup_name,
    due_of,
};
use super::super::testing::{at, facts, location};
use super::*;

const DAY: i64 = 86_400;

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        i64::try_from((self.0 >> 33) % limit.unsigned_abs()).unwrap()
    }

    fn one_in(&mut self, count: i64) -> bool {
        self.below(count) == 0
    }
}

/// A backup, its schedule and the time at which its agent ends.
struct StoredBackup {
    schedule: usize,
    facts: BackupFacts,
    ends: i64,
}

/// A schedule: its facts without backups, and the times at which its pods end.
struct Scheduled {
    facts: ScheduleFacts,
    keep_last: usize,
    prune_ends: i64,
    drill_ends: i64,
    runs: usize,
    deleted: usize,
    proven: usize,
    damaged: usize,
}

struct World {
    /// The true time, and the error of the wall clock.
    now: i64,
    clock_error: i64,
    is_store_ready: bool,
    is_operator_up: bool,
    backups: Vec<StoredBackup>,
    schedules: Vec<Scheduled>,
    random: Random,
    writes: usize,
    /// The times on the wall clock at which the operator reconciles each schedule again.
    wakes: [Option<UnixTime>; 2],
}

impl World {
    fn new(policies: [Value; 2], seed: u64) -> Self {
        let schedules = policies.into_iter().enumerate().map(|(index, policy)| {
            let mut facts = facts(policy);
            facts.name = format!("plan{index}");
            facts.created = at("2026-02-01T00:00:00Z");
            Scheduled {
                keep_last: usize::try_from(facts.policy.keep.last).unwrap(),
                facts,
                prune_ends: 0,
                drill_ends: 0,
                runs: 0,
                deleted: 0,
                proven: 0,
                damaged: 0,
            }
        });
        Self {
            now: at("2026-02-01T00:00:00Z").0,
            clock_error: 0,
            is_store_ready: true,
            is_operator_up: true,
            backups: Vec::new(),
            schedules: schedules.collect(),
            random: Random(seed),
            writes: 0,
            wakes: [None; 2],
        }
    }

    fn clock(&self) -> UnixTime {
        UnixTime(self.now + self.clock_error)
    }

    fn facts(&self, index: usize) -> ScheduleFacts {
        let mut facts = self.schedules[index].facts.clone();
        facts.now = self.clock();
        facts.store = Observed::Present(StoreFacts {
            is_ready: self.is_store_ready,
            message: String::new(),
        });
        facts.backups = self
            .backups
            .iter()
            .map(|stored| BackupFacts {
                is_own: stored.schedule == index,
                due: due_of(&facts.name, &stored.facts.name),
                ..stored.facts.clone()
            })
            .collect();
        facts
    }

    /// Reconciles a schedule until its plan is empty, and writes the status.
    fn reconcile(&mut self, index: usize) {
        for _ in 0..20 {
            let facts = self.facts(index);
            let outlook = Outlook::new(&facts);
            let plan = outlook.plan();
            if plan.is_noop() {
                self.check_converged(index, &facts, &outlook, &plan);
                let recorded = &mut self.schedules[index].facts.recorded;
                let before = recorded.clone();
                recorded.last_scheduled = outlook.runs.last_scheduled;
                recorded.last_drill_scheduled = outlook.drills.last_scheduled;
                recorded.last_drill = outlook.drills.last.clone();
                recorded.last_drill_success = outlook.drills.last_success.clone();
                if *recorded == before {
                    self.wakes[index] = match plan.requeue {
                        Requeue::At(time) => Some(time),
                        Requeue::OnChange | Requeue::Poll => None,
                    };
                    return;
                }
                // The write of the status triggers a reconcile.
                continue;
            }
            let creates = plan
                .create
                .iter()
                .filter(|create| matches!(create, ScheduleCreate::Backup { .. }));
            assert!(creates.count() <= 1, "one backup at a time");
            for create in plan.create {
                self.create(index, &facts, create);
            }
            for patch in plan.patch {
                self.patch(index, patch);
            }
        }
        panic!("schedule {index} does not converge at {:?}", self.clock());
    }

    /// A converged schedule has taken all due backups, and does nothing until the requested time.
    fn check_converged(
        &self,
        index: usize,
        facts: &ScheduleFacts,
        outlook: &Outlook<'_>,
        plan: &Plan<Schedules>,
    ) {
        let due = outlook
            .policy
            .as_ref()
            .unwrap()
            .backups
            .last_until(facts.now);
        if self.is_store_ready {
            assert!(
                outlook.runs.last_scheduled >= due,
                "{index} {:?}",
                facts.now
            );
        }
        let Requeue::At(wake) = plan.requeue else {
            panic!("a schedule always has a next time");
        };
        assert!(wake > facts.now);
        // A time that a wrong clock has written comes without a request.
        let is_ahead = |time: Option<UnixTime>| time.is_some_and(|time| time > facts.now);
        let mut backups = facts.backups.iter();
        if backups.any(|backup| is_ahead(backup.finished_at) || is_ahead(backup.due)) {
            return;
        }
        let mut later = facts.clone();
        later.recorded.last_scheduled = outlook.runs.last_scheduled;
        later.recorded.last_drill_scheduled = outlook.drills.last_scheduled;
        later.recorded.last_drill = outlook.drills.last.clone();
        later.recorded.last_drill_success = outlook.drills.last_success.clone();
        let is_settled = later.recorded == facts.recorded;
        for between in [plus(facts.now, (wake.0 - facts.now.0) / 2), plus(wake, -1)] {
            later.now = between;
            let plan = Schedules::decide(&later);
            // A pod is deleted after the status is written.
            assert!(
                plan.is_noop() || !is_settled,
                "{index} {between:?} {plan:?}"
            );
        }
    }

    fn create(&mut self, index: usize, facts: &ScheduleFacts, create: ScheduleCreate) {
        self.writes += 1;
        let clock = self.clock();
        match create {
            ScheduleCreate::Backup { name, run, why: _ } => {
                let exists = self.backups.iter().any(|stored| stored.facts.name == name);
                assert!(!exists, "{name} is taken twice");
                let is_running = |stored: &&StoredBackup| {
                    stored.schedule == index && !stored.facts.phase.is_final()
                };
                assert!(
                    self.backups.iter().find(is_running).is_none(),
                    "two run at once"
                );
                assert!(
                    due_of(&facts.name, &name).unwrap() <= clock,
                    "not in the future"
                );
                let ends = self.now + 30 + self.random.below(1_500);
                self.schedules[index].runs += 1;
                self.backups.push(StoredBackup {
                    schedule: index,
                    facts: BackupFacts {
                        uid: format!("{name}-{}", self.now),
                        is_own: true,
                        due: None,
                        run,
                        phase: BackupPhase::Running,
                        location: String::new(),
                        finished_at: None,
                        size: 1,
                        message: String::new(),
                        proven: None,
                        damaged: None,
                        is_terminating: false,
                        name,
                    },
                    ends,
                });
            }
            ScheduleCreate::PrunePod { delete, .. } => {
                self.check_deletion(index, &delete);
                let schedule = &mut self.schedules[index];
                assert!(schedule.facts.prune.is_none() && schedule.facts.drill.is_none());
                schedule.prune_ends = self.now + 10 + self.random.below(300);
                schedule.facts.prune = Some(PrunePodFacts {
                    uid: format!("prune-{}", self.now),
                    created: clock,
                    is_terminating: false,
                    has_started: true,
                    delete: delete.into_iter().collect(),
                    locked: BTreeSet::new(),
                    locked_until: None,
                    outcome: None,
                });
            }
            ScheduleCreate::DrillPod { backup, uid, due } => {
                let stored = self
                    .backups
                    .iter()
                    .find(|stored| stored.facts.name == backup);
                assert!(stored.unwrap().facts.is_good());
                let schedule = &mut self.schedules[index];
                assert!(schedule.facts.drill.is_none());
                schedule.drill_ends = self.now + 60 + self.random.below(600);
                schedule.facts.drill = Some(DrillPodFacts {
                    uid: format!("drill-{}", self.now),
                    created: clock,
                    is_terminating: false,
                    backup,
                    backup_uid: uid,
                    due,
                    version: "3.6.16".to_owned(),
                    state: DrillPodState::Running,
                });
            }
        }
    }

    /// Deletions leave what the policy keeps, the newest good backup and the newest proven one of the cluster.
    fn check_deletion(&self, index: usize, delete: &[String]) {
        let delete: BTreeSet<_> = delete.iter().collect();
        let clock = self.clock();
        let has_passed = |stored: &&StoredBackup| {
            let finished = stored.facts.finished_at;
            finished.is_some_and(|at| at.0 <= clock.0)
        };
        let good = || {
            self.backups
                .iter()
                .filter(|stored| stored.facts.is_good())
                .filter(has_passed)
        };
        let newest = good()
            .max_by_key(|stored| stored.facts.finished_at)
            .unwrap();
        assert!(
            !delete.contains(&newest.facts.location),
            "the newest backup"
        );
        let proven = good().filter(|stored| stored.facts.proven.is_some());
        if let Some(proven) = proven.max_by_key(|stored| stored.facts.finished_at) {
            assert!(
                !delete.contains(&proven.facts.location),
                "the newest proven backup"
            );
        }
        let others = self
            .backups
            .iter()
            .filter(|stored| stored.schedule != index);
        for other in others {
            assert!(
                !delete.contains(&other.facts.location),
                "of another schedule"
            );
        }
        let own = good().filter(|stored| stored.schedule == index);
        let (all, kept) = own.fold((0, 0), |(all, kept), stored| {
            (
                all + 1,
                kept + usize::from(!delete.contains(&stored.facts.location)),
            )
        });
        assert!(
            kept >= all.min(self.schedules[index].keep_last),
            "{kept} of {all} are kept"
        );
    }

    fn patch(&mut self, index: usize, patch: SchedulePatch) {
        self.writes += 1;
        let schedule = &mut self.schedules[index];
        match patch {
            SchedulePatch::RecordDrill {
                backup, at, result, ..
            } => {
                let mut backups = self.backups.iter_mut();
                let stored = backups.find(|stored| stored.facts.name == backup).unwrap();
                match result {
                    DrillResult::Proven => {
                        stored.facts.proven = Some(at);
                        schedule.proven += 1;
                    }
                    DrillResult::Damaged => {
                        stored.facts.damaged = Some(at);
                        schedule.damaged += 1;
                    }
                    DrillResult::NotRun => panic!("nothing to record"),
                }
            }
            SchedulePatch::DeleteBackup { backup, uid } => {
                let position = self
                    .backups
                    .iter()
                    .position(|stored| stored.facts.name == backup);
                let stored = self.backups.remove(position.unwrap());
                assert_eq!((stored.facts.uid, stored.schedule), (uid, index));
                schedule.deleted += usize::from(stored.facts.phase == BackupPhase::Complete);
            }
            SchedulePatch::DeletePod { pod, .. } if pod.ends_with("-prune") => {
                schedule.facts.prune = None;
            }
            SchedulePatch::DeletePod { .. } => {
                let record = schedule.facts.recorded.last_drill.as_ref().unwrap();
                let pod = schedule.facts.drill.take().unwrap();
                assert_eq!(
                    pod.state,
                    DrillPodState::Finished(record.clone()),
                    "recorded first"
                );
            }
        }
    }

    /// Ends the agents whose time has come.
    fn run_agents(&mut self) {
        let (now, clock) = (self.now, self.clock());
        for stored in &mut self.backups {
            let facts = &mut stored.facts;
            if facts.phase.is_final() || stored.ends > now {
                continue;
            }
            facts.finished_at = Some(clock);
            if self.is_store_ready && !self.random.one_in(12) {
                facts.phase = BackupPhase::Complete;
                facts.location = location(&facts.name);
            } else {
                facts.phase = BackupPhase::Failed;
            }
        }
        for schedule in &mut self.schedules {
            if let Some(pod) = &mut schedule.facts.prune
                && pod.outcome.is_none()
                && schedule.prune_ends <= now
            {
                let deleted = u32::try_from(pod.delete.len()).unwrap();
                let outcome = if self.is_store_ready && !self.random.one_in(10) {
                    Outcome::Succeeded(TaskResult::Pruned {
                        deleted,
                        locked: Vec::new(),
                        locked_until: None,
                    })
                } else {
                    Outcome::Failed(TaskFailure {
                        reason: FailureReason::Unreachable,
                        message: String::new(),
                    })
                };
                pod.outcome = Some((outcome, clock));
            }
            if let Some(pod) = &mut schedule.facts.drill
                && pod.state == DrillPodState::Running
                && schedule.drill_ends <= now
            {
                let result = match self.random.below(20) {
                    0 => DrillResult::Damaged,
                    1..=3 => DrillResult::NotRun,
                    _ => DrillResult::Proven,
                };
                pod.state = DrillPodState::Finished(DrillRecord {
                    backup: pod.backup.clone(),
                    at: clock,
                    result,
                    seconds: 7,
                    message: String::new(),
                });
            }
        }
    }

    fn change_faults(&mut self) {
        // Per step of 25 minutes on average, and at each requested time: an outage every few days, for hours.
        if self.is_store_ready {
            self.is_store_ready = !self.random.one_in(300);
        } else {
            self.is_store_ready = self.random.one_in(12);
        }
        if self.is_operator_up {
            self.is_operator_up = !self.random.one_in(300);
        } else {
            self.is_operator_up = self.random.one_in(30);
        }
        if self.clock_error != 0 {
            if self.random.one_in(12) {
                self.clock_error = 0;
            }
        } else if self.random.one_in(1_200) {
            self.clock_error = if self.random.one_in(2) { DAY } else { -DAY };
        }
    }

    fn run_until(&mut self, end: UnixTime, has_faults: bool) {
        while self.now < end.0 {
            let step = self.now + 60 + self.random.below(2_940);
            let wakes = self.wakes.iter().flatten();
            let wake = wakes.map(|wake| wake.0 - self.clock_error).min();
            let is_awake = self.is_operator_up;
            let wake = wake.filter(|wake| is_awake && *wake > self.now);
            self.now = wake.map_or(step, |wake| wake.min(step));
            if has_faults {
                self.change_faults();
            }
            self.run_agents();
            if self.is_operator_up {
                (0..self.schedules.len()).for_each(|index| self.reconcile(index));
            }
        }
    }
}

fn simulate(policies: [Value; 2], seed: u64) -> World {
    let mut world = World::new(policies, seed);
    world.run_until(at("2027-03-01T00:00:00Z"), true);
    (
        world.is_store_ready,
        world.is_operator_up,
        world.clock_error,
    ) = (true, true, 0);
    world.run_until(at("2027-03-09T00:00:00Z"), false);
    for index in 0..2 {
        let facts = world.facts(index);
        let newest = facts.newest_good().unwrap().finished_at.unwrap();
        assert!(
            world.now - newest.0 < 2 * DAY,
            "backups are taken when faults have ended"
        );
        let keep = &facts.policy.keep;
        let most = keep.last + keep.hourly + keep.daily + keep.weekly + keep.monthly;
        let complete = facts.own().filter(|backup| backup.is_good()).count();
        // One that is about to be deleted, the newest proven one, and one from a clock that was ahead.
        assert!(
            complete <= usize::try_from(most).unwrap() + 3,
            "{complete} are left"
        );
        let failed = facts
            .own()
            .filter(|backup| backup.phase == BackupPhase::Failed);
        assert!(failed.count() <= 4);
        let schedule = &world.schedules[index];
        assert!(schedule.deleted > 100, "{}", schedule.deleted);
        assert!(schedule.proven > 10 && schedule.damaged > 0);
    }
    world
}

#[test]
fn thirteen_months_in_berlin_and_new_york() {
    let world = simulate(
        [
            json!({ "schedule": "30 */3 * * *", "timeZone": "Europe/Berlin", "drill": "@weekly",
                "keep": { "last": 4, "daily": 7, "monthly": 3 } }),
            json!({ "schedule": "30 2 * * *", "timeZone": "America/New_York", "drill": "0 12 * * MON,THU",
                "keep": { "last": 3, "weekly": 4 }, "ifMissed": "Skip" }),
        ],
        1,
    );
    // Eight per day, without those that were missed, and with retries.
    assert!(
        (2_500..4_000).contains(&world.schedules[0].runs),
        "{}",
        world.schedules[0].runs
    );
    assert!(
        (300..600).contains(&world.schedules[1].runs),
        "{}",
        world.schedules[1].runs
    );
}

#[test]
fn thirteen_months_on_lord_howe_and_in_berlin() {
    simulate(
        [
            json!({ "schedule": "15 2 * * *", "timeZone": "Australia/Lord_Howe", "drill": "@weekly",
                "keep": { "last": 2, "monthly": 2 } }),
            json!({ "schedule": "45 1-23/4 * * *", "timeZone": "Europe/Berlin", "drill": "@daily",
                "keep": { "last": 1, "hourly": 6 } }),
        ],
        7,
    );
}

#[test]
fn each_due_time_of_a_year_without_faults_has_one_backup() {
    // Clocks in both places skip 02:15 once, and Berlin's show it twice once.
    let policy = |zone: &str| json!({ "schedule": "15 2,14 * * *", "timeZone": zone, "keep": { "last": 100 } });
    let mut world = World::new([policy("Europe/Berlin"), policy("Australia/Lord_Howe")], 3);
    let mut names = [BTreeSet::new(), BTreeSet::new()];
    while world.now < at("2027-03-01T00:00:00Z").0 {
        world.now += 900;
        for stored in &mut world.backups {
            // Each agent succeeds at once.
            if !stored.facts.phase.is_final() {
                stored.facts.phase = BackupPhase::Complete;
                stored.facts.finished_at = Some(UnixTime(world.now));
                stored.facts.location = location(&stored.facts.name);
                names[stored.schedule].insert(stored.facts.name.clone());
            }
        }
        // A user deletes the objects of old backups.
        let limit = UnixTime(world.now - 5 * DAY);
        world
            .backups
            .retain(|stored| stored.facts.finished_at.is_none_or(|at| at > limit));
        (0..2).for_each(|index| world.reconcile(index));
    }
    for (index, names) in names.iter().enumerate() {
        let facts = world.facts(index);
        let policy = ValidPolicy::new(&facts.policy).unwrap();
        let times = std::iter::successors(policy.backups.next_after(facts.created), |time| {
            policy.backups.next_after(*time)
        });
        let expected: BTreeSet<_> = times
            .take_while(|time| time.0 <= world.now - 1_800)
            .map(|due| backup_name(&facts.name, due))
            .collect();
        assert!(expected.len() > 780, "{}", expected.len());
        assert!(
            expected.is_subset(names),
            "{:?}",
            expected.difference(names)
        );
        // And the first, and at most the last.
        assert!(names.len() <= expected.len() + 2);
    }
}
