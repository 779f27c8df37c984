//! The abstract world as a stage: its own rules and nothing else decide what comes of an act.

use anyhow::{Result, bail, ensure};
use evenkeel_etcd::facts::{StartMode, StorageKind};
use evenkeel_etcd::identity::{Identity, Intent, MembershipChange, Uid};
use evenkeel_etcd::names::{Epoch, Lineage, Serial};
use evenkeel_explorer::effect::{self, Effect, Etcds, Outcome};
use evenkeel_explorer::event::Event;
use evenkeel_explorer::observe::{NOW, Sight, observe};
use evenkeel_explorer::world::{Budget, Claim, Disk, Inputs, Pod, World};

use crate::stage::{Act, Entry, Look, Names, Said};

fn asking(change: MembershipChange) -> Effect {
    Effect::Ask(Intent::new(change, [].into(), NOW))
}

/// The world, and how its IDs are numbered.
pub(crate) struct Imagined {
    world: World,
    names: Names,
}

impl Imagined {
    /// A world in which the first member is the seed of an epoch that is not sealed.
    pub(crate) fn new(max_learners: u8) -> Self {
        let plenty = Budget {
            faults: 99,
            crashes: 0,
            edits: 0,
            delays: 0,
        };
        let mut world = World::new(3, StorageKind::Persistent, max_learners, plenty);
        world.identity = Some(Identity {
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
            resource_uid: Uid(1000),
        });
        Self {
            world,
            names: Names::default(),
        }
    }

    /// Does one thing, and looks.
    pub(crate) fn play(&mut self, act: &Act) -> Result<Look> {
        let done = match act {
            Act::Asks(change) => Some(self.ask(*change, Etcds::HasNoticed)?),
            Act::AsksAsItDies(serial, change) => {
                self.happen(Event::ProcessDies(*serial))?;
                self.happen(Event::WriteTimesOut(asking(*change)))?;
                Some(false)
            }
            Act::AsksAsItFreezes(serial, change) => {
                self.happen(Event::ProcessDies(*serial))?;
                Some(self.ask(*change, Etcds::HasNotNoticed)?)
            }
            other => {
                self.do_to_member(other)?;
                None
            }
        };
        self.world.settle();
        Ok(self.look(done))
    }

    fn do_to_member(&mut self, act: &Act) -> Result<()> {
        match act {
            Act::Starts(serial, start) => {
                self.prepare(*serial, start);
                self.happen(Event::Starts(*serial))?;
            }
            Act::StartsUnderAnotherLeader(serial, start) => {
                self.prepare(*serial, start);
                ensure!(
                    self.world.waits_for_another_leader(*serial).is_some(),
                    "it needs no other leader"
                );
                self.happen(Event::LeaderChanges(*serial))?;
            }
            Act::Dies(serial) => self.happen(Event::ProcessDies(*serial))?,
            Act::Wiped(serial) => self.happen(Event::Wiped(*serial))?,
            Act::RolledBack(serial) => {
                if let Some(Disk::Data {
                    cluster, serial, ..
                }) = self.world.disk(*serial)
                {
                    self.world.set_disk(
                        serial,
                        Disk::Data {
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

    fn ask(&mut self, change: MembershipChange, etcd: Etcds) -> Result<bool> {
        match effect::apply(&mut self.world, &asking(change), etcd) {
            Ok(outcome) => Ok(outcome == Outcome::Done),
            Err(violation) => bail!("the world forbids {change:?}: {}", violation.0),
        }
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event.happen(&mut self.world, &evenkeel_explorer::Real) {
            Ok(()) => Ok(()),
            Err(violation) => bail!("the world forbids {event}: {}", violation.0),
        }
    }

    /// The member's claim and pod, with flags that its kubelet has seen.
    fn prepare(&mut self, serial: Serial, start: &StartMode) {
        let (epoch, old) = (Epoch::FIRST, self.world.pods.remove(&serial));
        let uid = old.map_or_else(|| self.world.fresh_uid(), |pod| pod.uid);
        let fresh = Claim::new(uid, epoch, Inputs::First);
        self.world.claims.entry(serial).or_insert(fresh);
        let mut pod = Pod::new(uid, epoch, Inputs::First, start.clone(), 0);
        pod.seen = Some((start.clone(), false));
        self.world.pods.insert(serial, pod);
    }

    fn look(&mut self, done: Option<bool>) -> Look {
        let facts = observe(&self.world, Sight::Clear);
        let members = facts.membership.present().map(|told| {
            let entry = |one: &evenkeel_etcd::facts::ListedMember| {
                (
                    one.serial,
                    Entry {
                        id: one.id.0,
                        learner: one.is_learner,
                        started: one.has_started,
                    },
                )
            };
            told.members.iter().map(entry).collect()
        });
        let voices = facts.health.iter().filter_map(|(serial, voice)| {
            let voice = voice.present()?;
            Some((
                *serial,
                Said {
                    cluster: voice.cluster_id.0,
                    id: voice.member_id.0,
                    serves: voice.is_serving,
                },
            ))
        });
        let voices = voices.collect();
        self.names.number(Look {
            done,
            members,
            voices,
        })
    }
}
