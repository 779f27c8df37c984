//! Replays scripts on the explorer's model, whose rules alone decide the result of each step.

use anyhow::{Result, bail, ensure};
use evenkeel_etcd::facts::{StartMode, StorageKind};
use evenkeel_etcd::identity::{Identity, Intent, MembershipChange, Uid};
use evenkeel_etcd::names::{Epoch, Lineage, Serial};
use evenkeel_explorer::effect::{self, Effect, FailureDetection, WriteResult};
use evenkeel_explorer::event::ModelEvent;
use evenkeel_explorer::model::{
    BACKUPS, ClusterModel, DiskState, FaultBudget, ModelClaim, ModelPod, TemplateVariant,
    restore_of,
};
use evenkeel_explorer::observe::{NOW, Visibility, observe};

use crate::stage::{IdNumbering, ListedEntry, MemberReply, ObservedState, ReplayStep};

fn change_write(change: MembershipChange) -> Effect {
    Effect::ChangeMembership(Intent::new(change, [].into(), NOW))
}

/// The model and the numbering of its IDs.
pub(crate) struct ModelReplay {
    model: ClusterModel,
    names: IdNumbering,
}

impl ModelReplay {
    /// Creates a model in which the first member is the seed of an epoch in bootstrap.
    pub(crate) fn new(max_learners: u8) -> Self {
        let plenty = FaultBudget {
            faults: 99,
            crashes: 0,
            edits: 0,
            delays: 0,
        };
        let mut model = ClusterModel::new(3, StorageKind::Persistent, max_learners, plenty);
        model.identity = Some(Identity {
            lineage: Lineage(7),
            epoch: Epoch::FIRST,
            seed: Serial(0),
            seed_storage: None,
            cluster_id: None,
            bootstrapped: false,
            next_serial: Serial(9),
            intent: None,
            replacements: [].into(),
            snapshotted_version: None,
            highest_epoch: None,
            next_epoch: None,
            replaced: None,
            restore: None,
            resource_uid: Uid(1000),
        });
        Self {
            model,
            names: IdNumbering::default(),
        }
    }

    /// Applies one step. Returns the state afterwards.
    pub(crate) fn run(&mut self, step: &ReplayStep) -> Result<ObservedState> {
        let done = match step {
            ReplayStep::Change(change) => {
                Some(self.send_change(*change, FailureDetection::Detected)?)
            }
            ReplayStep::ChangeAsMemberDies(serial, change) => {
                self.apply(ModelEvent::ProcessDied(*serial))?;
                self.apply(ModelEvent::WriteTimedOut(change_write(*change)))?;
                Some(false)
            }
            ReplayStep::ChangeAsMemberFreezes(serial, change) => {
                self.apply(ModelEvent::ProcessDied(*serial))?;
                Some(self.send_change(*change, FailureDetection::NotDetected)?)
            }
            other => {
                self.apply_to_member(other)?;
                None
            }
        };
        self.model.settle();
        Ok(self.state(done))
    }

    fn apply_to_member(&mut self, step: &ReplayStep) -> Result<()> {
        match step {
            ReplayStep::Start(serial, start) => {
                self.create_objects(*serial, start);
                self.apply(ModelEvent::ContainerStarted(*serial))?;
            }
            ReplayStep::StartUnderNewLeader(serial, start) => {
                self.create_objects(*serial, start);
                ensure!(
                    self.model.needs_new_leader(*serial).is_some(),
                    "the member needs no other leader"
                );
                self.apply(ModelEvent::LeaderChanged(*serial))?;
            }
            ReplayStep::Kill(serial) => self.apply(ModelEvent::ProcessDied(*serial))?,
            ReplayStep::Wipe(serial) => self.apply(ModelEvent::DiskWiped(*serial))?,
            ReplayStep::RestoreBackup(serial) => {
                self.model.restores = true;
                if let Some(identity) = &mut self.model.identity {
                    identity.restore = restore_of(BACKUPS[0]);
                }
                self.create_objects(*serial, &StartMode::Held);
                ensure!(
                    self.model.disk(*serial) == Some(DiskState::Empty),
                    "the directory is not empty"
                );
                self.model
                    .set_disk(*serial, DiskState::Restored(BACKUPS[0]));
            }
            ReplayStep::Restore(serial) => {
                if let Some(DiskState::Data {
                    cluster, serial, ..
                }) = self.model.disk(*serial)
                {
                    self.model.set_disk(
                        serial,
                        DiskState::Data {
                            cluster,
                            serial,
                            stale: true,
                        },
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn send_change(&mut self, change: MembershipChange, etcd: FailureDetection) -> Result<bool> {
        match effect::apply(&mut self.model, &change_write(change), etcd) {
            Ok(outcome) => Ok(outcome == WriteResult::Done),
            Err(violation) => bail!("the model forbids {change:?}: {}", violation.0),
        }
    }

    fn apply(&mut self, event: ModelEvent) -> Result<()> {
        match event.apply(&mut self.model, &evenkeel_explorer::RealDecider) {
            Ok(()) => Ok(()),
            Err(violation) => bail!("the model forbids {event}: {}", violation.0),
        }
    }

    /// Creates the member's claim and pod, with flags that its kubelet has read.
    fn create_objects(&mut self, serial: Serial, start: &StartMode) {
        let (epoch, old) = (Epoch::FIRST, self.model.pods.remove(&serial));
        let uid = old.map_or_else(|| self.model.fresh_uid(), |pod| pod.uid);
        let fresh = ModelClaim::new(uid, epoch, TemplateVariant::Original, false);
        self.model.claims.entry(serial).or_insert(fresh);
        let mut pod = ModelPod::new(uid, epoch, TemplateVariant::Original, start.clone(), 0);
        pod.kubelet_view = Some((start.clone(), false));
        self.model.pods.insert(serial, pod);
    }

    fn state(&mut self, done: Option<bool>) -> ObservedState {
        let facts = observe(&self.model, Visibility::Full);
        let members = facts.membership.present().map(|membership| {
            let entry = |one: &evenkeel_etcd::facts::ListedMember| {
                (
                    one.serial,
                    ListedEntry {
                        id: one.id.0,
                        learner: one.is_learner,
                        started: one.has_started,
                    },
                )
            };
            membership.members.iter().map(entry).collect()
        });
        let replies = facts.health.iter().filter_map(|(serial, health)| {
            let health = health.present()?;
            Some((
                *serial,
                MemberReply {
                    cluster: health.cluster_id.0,
                    id: health.member_id.0,
                    serves: health.is_serving,
                },
            ))
        });
        let replies = replies.collect();
        self.names.number(ObservedState {
            done,
            members,
            replies,
        })
    }
}
