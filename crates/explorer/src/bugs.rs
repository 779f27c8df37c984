//! Deliberate bugs, each one that an operator has had or could have: wrappers that tamper with what `decide` is told, or
//! with what it says. The product's own code carries no switches. The explorer must find every one of them.

use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::{EtcdFacts, Membership, OwnedBy, StartMode, StorageKind};
use evenkeel_etcd::identity::{Intent, MembershipChange};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::plan::{DeleteReason, EtcdCreate, EtcdDisruption, EtcdPatch};
use evenkeel_runtime::{Engine, Observed, Plan};

use crate::Decider;
use crate::explore;
use crate::world::{Budget, World};

/// A bug, by name, and where to look for it.
#[derive(Clone, Copy)]
pub struct Bug {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does wrong, and what taught us.
    pub what: &'static str,
    members: u8,
    storage: StorageKind,
    budget: Budget,
    told: fn(&mut EtcdFacts),
    said: fn(&EtcdFacts, &mut Plan<Etcd>),
    sends_late: bool,
    settled: bool,
    owned: bool,
}

impl Decider for Bug {
    fn decide(&self, facts: &EtcdFacts) -> Plan<Etcd> {
        let mut told = facts.clone();
        (self.told)(&mut told);
        let mut plan = Etcd::decide(&told);
        (self.said)(facts, &mut plan);
        plan
    }

    fn sends_late(&self) -> bool {
        self.sends_late
    }
}

impl Bug {
    /// The world in which it shows.
    pub fn world(&self) -> World {
        let world = World::new(self.members, self.storage, 2, self.budget);
        let world = if self.owned { world.owned() } else { world };
        if self.settled {
            explore::settled(&world)
        } else {
            world
        }
    }

    /// The bug of this name.
    pub fn find(name: &str) -> Option<Self> {
        BUGS.iter().find(|bug| bug.name == name).copied()
    }
}

const ONE_FAULT: Budget = Budget {
    faults: 1,
    crashes: 0,
    edits: 0,
    delays: 0,
};
const ONE_EDIT: Budget = Budget {
    faults: 0,
    crashes: 0,
    edits: 1,
    delays: 0,
};

const PLAIN: Bug = Bug {
    name: "",
    what: "",
    members: 3,
    storage: StorageKind::Persistent,
    budget: ONE_FAULT,
    told: |_| {},
    said: |_, _| {},
    sends_late: false,
    settled: false,
    owned: false,
};

/// All of them.
pub const BUGS: [Bug; 16] = [
    Bug {
        name: "any-volume-will-do",
        what: "takes whatever claim has the member's name: rolled back to older data it cost 10 of 10 acknowledged writes",
        told: |facts| {
            each_claim(facts, |claim| {
                claim.joined_on = claim.joined_on.and(claim.volume.map(|on| (claim.uid, on)))
            })
        },
        ..PLAIN
    },
    Bug {
        name: "same-member-on-an-empty-disk",
        what: "starts a member whose volume is gone under its old ID, with the full list: it has forgotten what it acknowledged",
        told: |facts| {
            let on_their_claims = noted(facts);
            let seed = facts.identity.present().map(|identity| identity.seed);
            each_member(facts, |member| {
                let may_be_new = !member.is_learner && Some(member.serial) != seed;
                member.has_started &= !may_be_new || on_their_claims.contains(&member.serial);
            });
        },
        ..PLAIN
    },
    Bug {
        name: "flags-never-turned",
        what: "leaves the joining flags as they were: restarted on an emptied directory the member joins as if new",
        told: |facts| {
            let voices = facts.health.clone();
            each_pod(facts, |pod| {
                let has_joined = voices.get(&pod.serial).is_some_and(Observed::is_present);
                if has_joined && matches!(pod.start_mode, StartMode::Join(_)) {
                    pod.start_mode = StartMode::ExistingData;
                }
            });
        },
        ..PLAIN
    },
    Bug {
        name: "turned-in-the-api-is-turned",
        what: "trusts flags that the kubelet has not seen yet: the container restarts with the old ones",
        told: |facts| {
            each_pod(facts, |pod| {
                pod.is_ready |= pod.start_mode == StartMode::ExistingData && pod.joined_gate;
            })
        },
        ..PLAIN
    },
    Bug {
        name: "unknown-is-absent",
        what: "takes a list of members that could not be read for a list without members",
        told: |facts| {
            let formed = facts
                .identity
                .present()
                .is_some_and(|identity| identity.cluster_id.is_some());
            let teller = facts
                .pods
                .present()
                .and_then(|pods| pods.first())
                .map(|pod| pod.serial);
            if let (Observed::Unknown, Some(told_by), true) = (&facts.membership, teller, formed) {
                facts.membership = Observed::Present(Membership {
                    reported_by: told_by,
                    members: Vec::new(),
                    unknown: Vec::new(),
                });
            }
        },
        ..PLAIN
    },
    Bug {
        name: "promotes-the-dead",
        what: "believes etcd's readiness check, which looks at a learner's log and not at its life",
        members: 1,
        budget: Budget {
            faults: 1,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
        said: |facts, plan| {
            let learner = members(facts)
                .into_iter()
                .find(|member| member.is_learner && member.has_started);
            if let Some(member) = learner {
                call(facts, plan, MembershipChange::Promote(member.serial));
            }
        },
        ..PLAIN
    },
    Bug {
        name: "counts-the-dead-as-well",
        what: "counts every voter in the list as healthy when it removes one",
        budget: Budget {
            faults: 1,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
        said: |facts, plan| {
            let surplus = members(facts).len() > usize::from(facts.cluster.members);
            let newest = members(facts)
                .into_iter()
                .filter(|one| !one.is_learner)
                .map(|one| one.serial)
                .max();
            if let Some(serial) = newest.filter(|_| surplus) {
                call(facts, plan, MembershipChange::Remove(serial));
            }
        },
        ..PLAIN
    },
    Bug {
        name: "routes-before-the-seal",
        what: "lets clients in while the bootstrap can still begin again",
        budget: Budget {
            faults: 0,
            crashes: 0,
            edits: 0,
            delays: 0,
        },
        said: |facts, plan| {
            let pods = facts.pods.present().into_iter().flatten();
            plan.patch.extend(
                pods.filter(|pod| pod.is_ready && !pod.is_routed)
                    .map(|pod| EtcdPatch::AttachClients { pod: pod.uid }),
            );
        },
        ..PLAIN
    },
    Bug {
        name: "no-pod-no-volume",
        what: "deletes the volume of a member because its pod does not run",
        said: |facts, plan| {
            let with_pods: Vec<Serial> = facts
                .pods
                .present()
                .into_iter()
                .flatten()
                .map(|pod| pod.serial)
                .collect();
            let idle = facts
                .claims
                .present()
                .into_iter()
                .flatten()
                .find(|claim| claim.joined_on.is_some() && !with_pods.contains(&claim.serial));
            if let Some(claim) = idle {
                plan.disruption = Some(EtcdDisruption::DeleteClaim {
                    claim: claim.uid,
                    serial: claim.serial,
                    why: DeleteReason::MemberRemoved,
                });
            }
        },
        ..PLAIN
    },
    Bug {
        name: "two-epochs-at-once",
        what: "begins again without waiting for what the last bootstrap left running",
        budget: ONE_EDIT,
        told: |facts| {
            let epoch = facts.identity.present().map(|identity| identity.epoch);
            if let Observed::Present(pods) = &mut facts.pods {
                pods.retain(|pod| Some(pod.epoch) == epoch);
            }
        },
        ..PLAIN
    },
    Bug {
        name: "an-old-list",
        what: "leaves a joiner with the list it was created with: etcd refuses an old list for ever",
        said: |_, plan| {
            plan.patch.retain(|mark| {
                !matches!(
                    mark,
                    EtcdPatch::SetStartMode {
                        from: StartMode::Join(_),
                        to: StartMode::Join(_),
                        ..
                    }
                )
            })
        },
        ..PLAIN
    },
    Bug {
        name: "ended-pods-stay",
        what: "never replaces a pod in a terminal phase: a full reboot left the cluster down for good",
        said: |_, plan| {
            plan.disruption = plan.disruption.take().filter(|step| {
                !matches!(
                    step,
                    EtcdDisruption::DeletePod {
                        why: DeleteReason::Finished,
                        ..
                    }
                )
            })
        },
        ..PLAIN
    },
    Bug {
        name: "created-ready-to-found",
        what: "creates the seed's pod ready to found a cluster, so that a frozen operator can create it late",
        budget: Budget {
            faults: 1,
            crashes: 1,
            edits: 0,
            delays: 0,
        },
        storage: StorageKind::Ephemeral,
        said: |facts, plan| {
            let seed = facts.identity.present().map(|identity| identity.seed);
            for create in &mut plan.create {
                if let EtcdCreate::Pod {
                    serial,
                    start_mode: start,
                    ..
                } = create
                    && Some(*serial) == seed
                {
                    *start = StartMode::Bootstrap;
                }
            }
        },
        ..PLAIN
    },
    Bug {
        name: "calls-after-the-lease",
        what: "sends a call to etcd after its lease has run out: a late promotion of a dead learner cost the quorum",
        members: 1,
        budget: Budget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 1,
        },
        settled: true,
        sends_late: true,
        ..PLAIN
    },
    Bug {
        name: "takes-up-what-is-going",
        what: "takes up what went with a deleted resource, before Kubernetes has deleted it: a cluster whose volumes go one by one",
        members: 1,
        budget: ONE_EDIT,
        settled: true,
        owned: true,
        told: |facts| {
            if facts.identity_owner == OwnedBy::PreviousResource {
                facts.identity_owner = OwnedBy::Resource;
            }
            each_claim(facts, |claim| claim.is_terminating = false);
        },
        ..PLAIN
    },
    Bug {
        name: "first-come-first-served",
        what: "leaves a newcomer in the place of a voter that was away for a moment: the voter can go nowhere else",
        members: 1,
        budget: Budget {
            faults: 2,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
        settled: true,
        told: |facts| each_pod(facts, |pod| pod.unschedulable_since = None),
        ..PLAIN
    },
];

/// Who has noted on its claim what it joined on.
fn noted(facts: &EtcdFacts) -> Vec<Serial> {
    let claims = facts.claims.present().into_iter().flatten();
    claims
        .filter(|claim| claim.joined_on.is_some())
        .map(|claim| claim.serial)
        .collect()
}

/// Asks etcd for a change that nobody judged, where the plan has no step of its own.
fn call(facts: &EtcdFacts, plan: &mut Plan<Etcd>, change: MembershipChange) {
    if let (None, Some(identity)) = (&plan.disruption, facts.identity.present()) {
        let voters = members(facts)
            .iter()
            .filter(|one| !one.is_learner)
            .map(|one| one.serial)
            .collect();
        let intent = Intent::new(change, voters, facts.now);
        plan.disruption = Some(EtcdDisruption::ChangeMembership {
            from: identity.clone(),
            intent,
            transfer_to: None,
        });
    }
}

fn members(facts: &EtcdFacts) -> Vec<evenkeel_etcd::facts::ListedMember> {
    facts
        .membership
        .present()
        .map(|told| told.members.clone())
        .unwrap_or_default()
}

fn each_claim(facts: &mut EtcdFacts, change: impl FnMut(&mut evenkeel_etcd::facts::ClaimFacts)) {
    if let Observed::Present(claims) = &mut facts.claims {
        claims.iter_mut().for_each(change);
    }
}

fn each_pod(facts: &mut EtcdFacts, change: impl FnMut(&mut evenkeel_etcd::facts::PodFacts)) {
    if let Observed::Present(pods) = &mut facts.pods {
        pods.iter_mut().for_each(change);
    }
}

fn each_member(facts: &mut EtcdFacts, change: impl FnMut(&mut evenkeel_etcd::facts::ListedMember)) {
    if let Observed::Present(told) = &mut facts.membership {
        told.members.iter_mut().for_each(change);
    }
}
