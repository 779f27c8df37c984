//! Mutants: the decision function with deliberate bugs, each of which an operator has had or could have. A mutant
//! changes the facts before `decide` or the plan after it; the product code has no switches. The explorer must find
//! every mutant.

use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::{
    EtcdFacts, Membership, OwnedBy, RestorePodState, RestoredVolume, SourceState, StartMode,
    StorageKind,
};
use evenkeel_etcd::identity::{Intent, MembershipChange};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::plan::{DeleteReason, EtcdCreate, EtcdDisruption, EtcdPatch, IdentityChange};
use evenkeel_runtime::{Engine, Observed, Plan};

use crate::Decider;
use crate::model::{ClusterModel, FaultBudget};
use crate::search;

/// A mutant and the smallest model in which it shows.
#[derive(Clone, Copy)]
pub struct Mutant {
    /// The name on the command line.
    pub name: &'static str,
    /// The bug, and its consequence.
    pub description: &'static str,
    members: u8,
    storage: StorageKind,
    budget: FaultBudget,
    tamper_facts: fn(&mut EtcdFacts),
    tamper_plan: fn(&EtcdFacts, &mut Plan<Etcd>),
    sends_after_lease: bool,
    starts_converged: bool,
    owns_data: bool,
    restores: bool,
    restores_in_place: bool,
}

impl Decider for Mutant {
    fn decide(&self, facts: &EtcdFacts) -> Plan<Etcd> {
        let mut tampered = facts.clone();
        (self.tamper_facts)(&mut tampered);
        let mut plan = Etcd::decide(&tampered);
        (self.tamper_plan)(facts, &mut plan);
        plan
    }

    fn sends_after_lease(&self) -> bool {
        self.sends_after_lease
    }
}

impl Mutant {
    /// Returns the initial state in which the bug shows.
    pub fn model(&self) -> ClusterModel {
        let model = ClusterModel::new(self.members, self.storage, 2, self.budget);
        let model = if self.owns_data {
            model.with_owned_data()
        } else {
            model
        };
        let model = if self.restores {
            model.with_restore()
        } else if self.restores_in_place {
            model.with_in_place_restore()
        } else {
            model
        };
        if self.starts_converged {
            search::run_to_quiescence(&model)
        } else {
            model
        }
    }

    /// Returns the mutant of this name.
    pub fn find(name: &str) -> Option<Self> {
        MUTANTS.iter().find(|mutant| mutant.name == name).copied()
    }
}

const ONE_FAULT: FaultBudget = FaultBudget {
    faults: 1,
    crashes: 0,
    edits: 0,
    delays: 0,
};
const ONE_EDIT: FaultBudget = FaultBudget {
    faults: 0,
    crashes: 0,
    edits: 1,
    delays: 0,
};

const BASE: Mutant = Mutant {
    name: "",
    description: "",
    members: 3,
    storage: StorageKind::Persistent,
    budget: ONE_FAULT,
    tamper_facts: |_| {},
    tamper_plan: |_, _| {},
    sends_after_lease: false,
    starts_converged: false,
    owns_data: false,
    restores: false,
    restores_in_place: false,
};

/// The base of bugs that show when a restore replaces a running cluster, or is undone.
const IN_PLACE: Mutant = Mutant {
    members: 1,
    restores_in_place: true,
    starts_converged: true,
    budget: ONE_EDIT,
    ..BASE
};

/// The base of bugs that show in a cluster that begins with the data of a backup.
const RESTORE: Mutant = Mutant {
    members: 1,
    restores: true,
    ..BASE
};

/// All mutants.
pub const MUTANTS: [Mutant; 30] = [
    Mutant {
        name: "starts-recreated-pods-at-once",
        description: "creates the missing pod of a member so that it starts at once: an operator that was frozen starts a member of the replaced cluster late",
        budget: FaultBudget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
        tamper_plan: |facts, plan| {
            let joined = joined_serials(facts);
            for create in &mut plan.create {
                if let EtcdCreate::Pod {
                    serial, start_mode, ..
                } = create
                    && joined.contains(serial)
                {
                    *start_mode = StartMode::ExistingData;
                }
            }
        },
        ..IN_PLACE
    },
    Mutant {
        name: "abandons-replaced-volumes",
        description: "deletes the volumes of a replaced cluster like those of an abandoned bootstrap: the restore cannot be undone",
        tamper_facts: |facts| {
            each_claim(facts, |claim| claim.replaced_until = None);
            if let Observed::Present(identity) = &mut facts.identity {
                identity.replaced = None;
            }
        },
        ..IN_PLACE
    },
    Mutant {
        name: "starts-restored-cluster-early",
        description: "starts the restored cluster while the members of the replaced one still run: two clusters accept writes",
        tamper_facts: |facts| {
            let epoch = facts.identity.present().map(|identity| identity.epoch);
            if let Observed::Present(pods) = &mut facts.pods {
                pods.retain(|pod| Some(pod.epoch) == epoch);
            }
        },
        ..IN_PLACE
    },
    Mutant {
        name: "restarts-restore-empty",
        description: "begins a new epoch without the backup if the volume of a restored seed is lost: the cluster is empty",
        budget: FaultBudget {
            faults: 1,
            ..ONE_EDIT
        },
        tamper_plan: |_, plan| {
            if let Some(EtcdDisruption::UpdateIdentity {
                to,
                why: IdentityChange::SeedLost,
                ..
            }) = &mut plan.disruption
            {
                to.restore = None;
            }
        },
        ..IN_PLACE
    },
    Mutant {
        name: "undoes-without-budget",
        description: "undoes a restore before the PodDisruptionBudget is raised: a drain evicts too many of the members that return",
        members: 3,
        budget: FaultBudget {
            edits: 2,
            ..FaultBudget::NONE
        },
        tamper_plan: |_, plan| {
            if let Some(EtcdDisruption::UpdateIdentity {
                why: IdentityChange::UndoRestore,
                ..
            }) = &plan.disruption
            {
                plan.apply.clear();
            }
        },
        ..IN_PLACE
    },
    Mutant {
        name: "accepts-any-volume",
        description: "accepts any claim with the member's name: a claim restored from older data cost 10 of 10 acknowledged writes",
        tamper_facts: |facts| {
            each_claim(facts, |claim| {
                claim.joined_on = claim.joined_on.and(claim.volume.map(|on| (claim.uid, on)))
            })
        },
        ..BASE
    },
    Mutant {
        name: "reuses-member-on-empty-disk",
        description: "starts a member whose volume is gone under its old ID, with the full list: writes that it acknowledged are lost",
        tamper_facts: |facts| {
            let recorded = joined_serials(facts);
            let seed = facts.identity.present().map(|identity| identity.seed);
            each_member(facts, |member| {
                let may_be_new = !member.is_learner && Some(member.serial) != seed;
                member.has_started &= !may_be_new || recorded.contains(&member.serial);
            });
        },
        ..BASE
    },
    Mutant {
        name: "keeps-join-flags",
        description: "keeps the flags for joining: restarted on an emptied directory the member joins as if it were new",
        tamper_facts: |facts| {
            let health = facts.health.clone();
            each_pod(facts, |pod| {
                let has_joined = health.get(&pod.serial).is_some_and(Observed::is_present);
                if has_joined && matches!(pod.start_mode, StartMode::Join(_)) {
                    pod.start_mode = StartMode::ExistingData;
                }
            });
        },
        ..BASE
    },
    Mutant {
        name: "trusts-flags-the-kubelet-has-not-read",
        description: "trusts flags that the kubelet has not read yet: the container restarts with the old ones",
        tamper_facts: |facts| {
            each_pod(facts, |pod| {
                pod.is_ready |= pod.start_mode == StartMode::ExistingData && pod.joined_gate;
            })
        },
        ..BASE
    },
    Mutant {
        name: "treats-unknown-as-absent",
        description: "treats an unreadable member list as an empty one",
        tamper_facts: |facts| {
            let formed = facts
                .identity
                .present()
                .is_some_and(|identity| identity.cluster_id.is_some());
            let reporter = facts
                .pods
                .present()
                .and_then(|pods| pods.first())
                .map(|pod| pod.serial);
            if let (Observed::Unknown, Some(reporter), true) = (&facts.membership, reporter, formed)
            {
                facts.membership = Observed::Present(Membership {
                    reported_by: reporter,
                    members: Vec::new(),
                    unknown: Vec::new(),
                });
            }
        },
        ..BASE
    },
    Mutant {
        name: "promotes-dead-learner",
        description: "relies on etcd's readiness check, which looks at a learner's log and not at its health",
        members: 1,
        budget: FaultBudget {
            faults: 1,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
        tamper_plan: |facts, plan| {
            let learner = members(facts)
                .into_iter()
                .find(|member| member.is_learner && member.has_started);
            if let Some(member) = learner {
                propose_change(facts, plan, MembershipChange::Promote(member.serial));
            }
        },
        ..BASE
    },
    Mutant {
        name: "counts-dead-voters",
        description: "counts every listed voter as healthy when it removes one",
        budget: FaultBudget {
            faults: 1,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
        tamper_plan: |facts, plan| {
            let surplus = members(facts).len() > usize::from(facts.cluster.members);
            let newest = members(facts)
                .into_iter()
                .filter(|one| !one.is_learner)
                .map(|one| one.serial)
                .max();
            if let Some(serial) = newest.filter(|_| surplus) {
                propose_change(facts, plan, MembershipChange::Remove(serial));
            }
        },
        ..BASE
    },
    Mutant {
        name: "routes-during-bootstrap",
        description: "routes clients while the bootstrap can still restart",
        budget: FaultBudget {
            faults: 0,
            crashes: 0,
            edits: 0,
            delays: 0,
        },
        tamper_plan: |facts, plan| {
            let pods = facts.pods.present().into_iter().flatten();
            plan.patch.extend(
                pods.filter(|pod| pod.is_ready && !pod.is_routed)
                    .map(|pod| EtcdPatch::AttachClients { pod: pod.uid }),
            );
        },
        ..BASE
    },
    Mutant {
        name: "deletes-volume-without-pod",
        description: "deletes the volume of a member because its pod does not run",
        tamper_plan: |facts, plan| {
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
        ..BASE
    },
    Mutant {
        name: "starts-epoch-beside-old-one",
        description: "restarts the bootstrap without waiting for the pods of the last one",
        budget: ONE_EDIT,
        tamper_facts: |facts| {
            let epoch = facts.identity.present().map(|identity| identity.epoch);
            if let Observed::Present(pods) = &mut facts.pods {
                pods.retain(|pod| Some(pod.epoch) == epoch);
            }
        },
        ..BASE
    },
    Mutant {
        name: "keeps-old-member-list",
        description: "keeps the member list that a joining pod was created with: etcd rejects an outdated list forever",
        tamper_plan: |_, plan| {
            plan.patch.retain(|patch| {
                !matches!(
                    patch,
                    EtcdPatch::SetStartMode {
                        from: StartMode::Join(_),
                        to: StartMode::Join(_),
                        ..
                    }
                )
            })
        },
        ..BASE
    },
    Mutant {
        name: "keeps-finished-pods",
        description: "never replaces a pod in a terminal phase: after a full reboot the cluster stayed down",
        tamper_plan: |_, plan| {
            plan.disruption = plan.disruption.take().filter(|disruption| {
                !matches!(
                    disruption,
                    EtcdDisruption::DeletePod {
                        why: DeleteReason::Finished,
                        ..
                    }
                )
            })
        },
        ..BASE
    },
    Mutant {
        name: "creates-seed-ready-to-bootstrap",
        description: "creates the seed's pod in start mode Bootstrap, so that a frozen operator can create it late",
        budget: FaultBudget {
            faults: 1,
            crashes: 1,
            edits: 0,
            delays: 0,
        },
        storage: StorageKind::Ephemeral,
        tamper_plan: |facts, plan| {
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
        ..BASE
    },
    Mutant {
        name: "sends-after-lease-expiry",
        description: "sends a membership change after its lease has expired: a late promotion of a dead learner cost the quorum",
        members: 1,
        budget: FaultBudget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 1,
        },
        starts_converged: true,
        sends_after_lease: true,
        ..BASE
    },
    Mutant {
        name: "adopts-terminating-objects",
        description: "adopts objects of a deleted resource before Kubernetes has deleted them: the cluster loses its volumes one by one",
        members: 1,
        budget: ONE_EDIT,
        starts_converged: true,
        owns_data: true,
        tamper_facts: |facts| {
            if facts.identity_owner == OwnedBy::PreviousResource {
                facts.identity_owner = OwnedBy::Resource;
            }
            each_claim(facts, |claim| claim.is_terminating = false);
        },
        ..BASE
    },
    Mutant {
        name: "finishes-bootstrap-while-claims-are-owned",
        description: "finishes the bootstrap before it removes the owner references of data to keep: a deletion of the resource \
            right after it deletes what clients have written",
        members: 1,
        budget: FaultBudget::NONE,
        tamper_facts: |facts| {
            if facts.identity_owner == OwnedBy::Resource {
                facts.identity_owner = OwnedBy::Unowned;
            }
            each_claim(facts, |claim| claim.is_owned = false);
        },
        ..BASE
    },
    Mutant {
        name: "releases-claims-before-identity",
        description: "removes the owner references of claims before that of the identity: if the resource is deleted in between, \
            the claims that are left read as a cluster that has lost its other members",
        members: 3,
        budget: FaultBudget {
            crashes: 1,
            ..ONE_EDIT
        },
        tamper_facts: |facts| {
            let owns_claim = |claims: &Vec<evenkeel_etcd::facts::ClaimFacts>| {
                claims.iter().any(|claim| claim.is_owned)
            };
            if facts.identity_owner == OwnedBy::Resource
                && facts.claims.present().is_some_and(owns_claim)
            {
                facts.identity_owner = OwnedBy::Unowned;
            }
        },
        ..BASE
    },
    Mutant {
        name: "leaves-newcomer-on-voters-node",
        description: "leaves a new member on the node of a voter that was briefly without a pod: the voter cannot be scheduled elsewhere",
        members: 1,
        budget: FaultBudget {
            faults: 2,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
        starts_converged: true,
        tamper_facts: |facts| each_pod(facts, |pod| pod.unschedulable_since = None),
        ..BASE
    },
    Mutant {
        name: "never-nudges",
        description: "waits for a member that received a snapshot without appending a log entry: in an idle cluster it never serves",
        members: 1,
        budget: FaultBudget {
            edits: 1,
            ..ONE_FAULT
        },
        starts_converged: true,
        tamper_plan: |_, plan| {
            plan.patch
                .retain(|patch| !matches!(patch, EtcdPatch::NudgeMember { .. }));
        },
        ..BASE
    },
    Mutant {
        name: "starts-restored-seed-as-new",
        description: "starts the seed of a restored epoch with `new`: on a directory that was emptied it forms an empty cluster",
        tamper_plan: |_, plan| {
            for patch in &mut plan.patch {
                if let EtcdPatch::SetStartMode { to, .. } = patch
                    && *to == StartMode::Restored
                {
                    *to = StartMode::Bootstrap;
                }
            }
        },
        ..RESTORE
    },
    Mutant {
        name: "starts-seed-before-restore-is-recorded",
        description: "starts the seed although no restore is recorded on its claim: its volume is empty",
        budget: FaultBudget::NONE,
        tamper_facts: |facts| {
            let restore = facts.cluster.restore.clone();
            each_claim(facts, |claim| {
                if let (Some(restore), Some(volume)) = (&restore, claim.volume) {
                    claim.restored = Some(RestoredVolume {
                        restore: restore.id,
                        claim: claim.uid,
                        volume,
                    });
                }
            });
        },
        ..RESTORE
    },
    Mutant {
        name: "records-restore-of-another-claim",
        description: "records a restore without comparing the claim: a claim that was deleted and created again is empty",
        tamper_facts: |facts| {
            let claims = facts.claims.present().cloned().unwrap_or_default();
            for pod in &mut facts.restore_pods {
                let claim = claims.iter().find(|claim| claim.serial == pod.serial);
                pod.claim = claim.map_or(pod.claim, |claim| claim.uid);
            }
        },
        ..RESTORE
    },
    Mutant {
        name: "keeps-first-source",
        description: "keeps the backup that the first spec named: the user corrects it, and the cluster has other data",
        budget: ONE_EDIT,
        tamper_facts: |facts| {
            if let Observed::Present(identity) = &facts.identity {
                facts.cluster.restore = identity.restore.clone();
                facts.source = identity.restore.as_ref().map(|_| SourceState::Usable);
            }
        },
        ..RESTORE
    },
    Mutant {
        name: "waits-for-emptied-restored-seed",
        description: "waits for a restored seed whose directory was emptied: it never starts, and the bootstrap never ends",
        tamper_facts: |facts| each_pod(facts, |pod| pod.crashing_since = None),
        ..RESTORE
    },
    Mutant {
        name: "restores-beside-etcd",
        description: "starts a restore pod that an operator created late, while etcd runs on the volume",
        budget: FaultBudget {
            crashes: 1,
            ..FaultBudget::NONE
        },
        tamper_plan: |facts, plan| {
            let held = facts.restore_pods.iter();
            let held = held.filter(|pod| pod.state == RestorePodState::Held);
            for held in held {
                let of = held.uid;
                plan.disruption = plan.disruption.take().filter(|disruption| {
                    !matches!(disruption, EtcdDisruption::DeleteRestorePod { pod, .. } if *pod == of)
                });
                let release = EtcdPatch::ReleaseRestorePod { pod: of };
                if !plan.patch.contains(&release) {
                    plan.patch.push(release);
                }
            }
        },
        ..RESTORE
    },
];

/// Returns the members whose claims record the volume that they joined on.
fn joined_serials(facts: &EtcdFacts) -> Vec<Serial> {
    let claims = facts.claims.present().into_iter().flatten();
    claims
        .filter(|claim| claim.joined_on.is_some())
        .map(|claim| claim.serial)
        .collect()
}

/// Adds an unchecked membership change to a plan without a disruption.
fn propose_change(facts: &EtcdFacts, plan: &mut Plan<Etcd>, change: MembershipChange) {
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
        .map(|membership| membership.members.clone())
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
    if let Observed::Present(membership) = &mut facts.membership {
        membership.members.iter_mut().for_each(change);
    }
}
