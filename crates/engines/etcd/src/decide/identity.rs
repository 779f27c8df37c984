//! The identity of a cluster: created once, rebuilt, repaired or adopted, before any other rule
//! applies.
//!
//! [`IdentitySituation::of`] determines the situation, [`IdentitySituation::resolve`] gives the
//! result of each.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_runtime::Observed;

use super::{RuleResult, update_identity};
use crate::facts::{
    ClaimFacts, EtcdFacts, OwnedBy, OwnedObject, PodFacts, RestorePodFacts, StartMode,
};
use crate::identity::{ClusterId, Identity, RestoreOrigin};
use crate::names::{Epoch, Serial};
use crate::plan::{
    DeleteReason, EtcdCreate, EtcdDisruption, EtcdWait, IdentityChange, UnreadableObjects,
};
use crate::view::ClusterView;

/// How long Kubernetes may take to delete the objects of a previous resource before the wait is
/// reported as a problem.
const DELETION_GRACE: Duration = Duration::from_secs(60);

/// How many serials are skipped when an identity is rebuilt: a member without pod and claim may
/// still be in etcd's list.
const SKIPPED_SERIALS: u16 = 16;

/// Returns the facts by member, or the result of a situation in which no other rule applies.
pub(super) fn identify(facts: &EtcdFacts) -> Result<ClusterView<'_>, RuleResult> {
    IdentitySituation::of(facts).resolve(facts)
}

/// The situation of a cluster's identity.
#[derive(Debug)]
enum IdentitySituation<'f> {
    /// The resource is being deleted. Kubernetes deletes the owned objects. There is no finalizer:
    /// deleting a namespace removes a namespaced operator first, and a finalizer would then block
    /// the namespace for ever.
    ResourceDeleted,
    /// `spec.paused` is set.
    Paused,
    /// The identity, or claims and pods, could not be read. Unknown never counts as absent.
    Unreadable(UnreadableObjects),
    /// An object of another owner has the name of the identity.
    NameConflict,
    /// Objects of a deleted resource of the same name are terminating. Kubernetes deletes them in
    /// any order: a cluster adopted from them loses the data of its members (observed).
    PreviousResourceTerminating,
    /// Claims and pods belong to different clusters, or to another cluster than the identity. The
    /// operator never treats them as absent.
    Inconsistent,
    /// All objects of the cluster that the status names are gone.
    DataLost(ClusterId),
    /// The resource is new.
    New,
    /// The identity was deleted and can be rebuilt from claims and pods.
    Deleted(Identity),
    /// A restored identity predates the epoch of claims and pods, or the end of its bootstrap. With
    /// it, the operator would delete the clients' data as data of a failed bootstrap. `rebuilt` is
    /// the identity from claims and pods.
    Outdated {
        current: &'f Identity,
        rebuilt: Identity,
    },
    /// The resource was deleted and created again over a bootstrapped cluster.
    Adopted(&'f Identity),
    /// The resource was deleted and created again before bootstrap was finished. No client has
    /// written.
    Abandoned {
        current: &'f Identity,
        highest: Option<Serial>,
    },
    /// A restored identity predates members: their serials would be assigned twice.
    SerialsOutdated {
        current: &'f Identity,
        highest: Serial,
    },
    /// The identity is current.
    Current(ClusterView<'f>),
}

impl<'f> IdentitySituation<'f> {
    fn of(facts: &'f EtcdFacts) -> Self {
        if facts.cluster.is_deleted {
            return Self::ResourceDeleted;
        }
        if facts.cluster.is_paused {
            return Self::Paused;
        }
        let (Observed::Present(claims), Observed::Present(pods)) = (&facts.claims, &facts.pods)
        else {
            return Self::Unreadable(UnreadableObjects::Objects);
        };
        let objects = MemberObjects {
            claims,
            pods,
            restore_pods: &facts.restore_pods,
        };
        match &facts.identity {
            Observed::Present(_) if facts.identity_owner == OwnedBy::PreviousResource => {
                Self::PreviousResourceTerminating
            }
            Observed::Present(identity) => Self::with_identity(facts, identity, objects),
            Observed::Unknown if facts.drift.contains_key(&OwnedObject::Identity) => {
                Self::NameConflict
            }
            Observed::Unknown => Self::Unreadable(UnreadableObjects::Identity),
            Observed::Absent => Self::without_identity(facts, objects),
        }
    }

    fn without_identity(facts: &'f EtcdFacts, objects: MemberObjects<'f>) -> Self {
        if facts.lineages.is_empty() {
            return match facts.cluster.status_cluster_id {
                Some(cluster) => Self::DataLost(cluster),
                None => Self::New,
            };
        }
        let all_readable = facts.lineages.iter().all(Option::is_some);
        if all_readable && objects.all_terminating() {
            return Self::PreviousResourceTerminating;
        }
        match objects.rebuild(facts) {
            Some(identity) => Self::Deleted(identity),
            None => Self::Inconsistent,
        }
    }

    fn with_identity(
        facts: &'f EtcdFacts,
        identity: &'f Identity,
        objects: MemberObjects<'f>,
    ) -> Self {
        // The identity was created late, by an operator that did not see the existing cluster. No
        // second cluster is started.
        let is_own = |lineage: &Option<_>| *lineage == Some(identity.lineage);
        if !identity.bootstrapped && !facts.lineages.iter().all(is_own) {
            return Self::Inconsistent;
        }
        let has_later_epoch = objects
            .latest_epoch()
            .is_some_and(|latest| latest > identity.highest_epoch());
        let predates_bootstrap =
            !identity.bootstrapped && objects.was_bootstrapped(facts, identity);
        if has_later_epoch || predates_bootstrap {
            return Self::with_outdated_identity(facts, identity, objects);
        }
        if identity.resource_uid != facts.cluster.resource_uid {
            return if identity.bootstrapped {
                Self::Adopted(identity)
            } else {
                Self::Abandoned {
                    current: identity,
                    highest: objects.highest_serial(),
                }
            };
        }
        if let Some(highest) = objects.highest_serial_of(identity.epoch)
            && identity.bootstrapped
            && highest >= identity.next_serial
        {
            return Self::SerialsOutdated {
                current: identity,
                highest,
            };
        }
        Self::Current(ClusterView::new(
            facts,
            identity,
            objects.claims,
            objects.pods,
        ))
    }

    /// Claims and pods override the identity only if they prove a bootstrapped cluster. The
    /// operator never leaves a bootstrapped epoch: if members have joined in it, the objects of a
    /// later epoch are wrong.
    fn with_outdated_identity(
        facts: &'f EtcdFacts,
        identity: &'f Identity,
        objects: MemberObjects<'f>,
    ) -> Self {
        let keeps_epoch = identity.bootstrapped && objects.has_joined(identity.epoch);
        let rebuilt = objects
            .rebuild(facts)
            .filter(|rebuilt| rebuilt.bootstrapped && !objects.has_bootstrap_pod() && !keeps_epoch);
        match (rebuilt, facts.cluster.status_cluster_id) {
            (Some(rebuilt), _) => Self::Outdated {
                current: identity,
                rebuilt,
            },
            (None, Some(cluster)) if objects.is_empty() => Self::DataLost(cluster),
            (None, _) => Self::Inconsistent,
        }
    }

    fn resolve(self, facts: &EtcdFacts) -> Result<ClusterView<'f>, RuleResult> {
        let resource_uid = facts.cluster.resource_uid;
        let result = match self {
            Self::ResourceDeleted => RuleResult::Pass,
            Self::Paused => RuleResult::Block(EtcdWait::Paused),
            Self::Unreadable(objects) => RuleResult::Block(EtcdWait::Unreadable(objects)),
            Self::NameConflict => RuleResult::Block(EtcdWait::NameConflict(OwnedObject::Identity)),
            Self::PreviousResourceTerminating => {
                let deadline = facts.cluster.created_at.after(DELETION_GRACE);
                RuleResult::Block(EtcdWait::PreviousResourceDeletion(deadline))
            }
            Self::Inconsistent => RuleResult::Block(EtcdWait::InconsistentObjects),
            Self::DataLost(cluster) => RuleResult::Block(EtcdWait::DataLost(cluster)),
            Self::New => RuleResult::create(vec![EtcdCreate::Identity(new_identity(facts))]),
            Self::Deleted(identity) => RuleResult::create(vec![EtcdCreate::Identity(identity)]),
            Self::Outdated { current, rebuilt } => {
                update_identity(current, IdentityChange::Repair, |to| *to = rebuilt)
            }
            Self::Adopted(current) => update_identity(current, IdentityChange::Adopt, |to| {
                to.resource_uid = resource_uid;
            }),
            Self::Abandoned { current, highest } => {
                update_identity(current, IdentityChange::ResourceReplaced, |to| {
                    new_epoch(facts, to, highest);
                    to.resource_uid = resource_uid;
                })
            }
            Self::SerialsOutdated { current, highest } => {
                update_identity(current, IdentityChange::Repair, |to| {
                    to.next_serial = skip_serials(highest);
                })
            }
            Self::Current(view) => return Ok(view),
        };
        Err(result)
    }
}

/// The claims and pods labelled for a cluster, of every epoch.
#[derive(Clone, Copy, Debug)]
struct MemberObjects<'f> {
    claims: &'f [ClaimFacts],
    pods: &'f [PodFacts],
    restore_pods: &'f [RestorePodFacts],
}

impl<'f> MemberObjects<'f> {
    fn is_empty(self) -> bool {
        self.claims.is_empty() && self.pods.is_empty() && self.restore_pods.is_empty()
    }

    fn claims_of(self, epoch: Epoch) -> impl Iterator<Item = &'f ClaimFacts> {
        self.claims.iter().filter(move |claim| claim.epoch == epoch)
    }

    fn pods_of(self, epoch: Epoch) -> impl Iterator<Item = &'f PodFacts> {
        self.pods.iter().filter(move |pod| pod.epoch == epoch)
    }

    fn all_terminating(self) -> bool {
        self.claims.iter().all(|claim| claim.is_terminating)
            && self.pods.iter().all(|pod| pod.is_terminating)
            && self.restore_pods.iter().all(|pod| pod.is_terminating)
    }

    fn latest_epoch(self) -> Option<Epoch> {
        let claims = self.claims.iter().map(|claim| claim.epoch);
        let restore_pods = self.restore_pods.iter().map(|pod| pod.epoch);
        let pods = self.pods.iter().map(|pod| pod.epoch);
        claims.chain(pods).chain(restore_pods).max()
    }

    fn highest_serial(self) -> Option<Serial> {
        let claims = self.claims.iter().map(|claim| claim.serial);
        let restore_pods = self.restore_pods.iter().map(|pod| pod.serial);
        let pods = self.pods.iter().map(|pod| pod.serial);
        claims.chain(pods).chain(restore_pods).max()
    }

    fn highest_serial_of(self, epoch: Epoch) -> Option<Serial> {
        let claims = self.claims_of(epoch).map(|claim| claim.serial);
        claims
            .chain(self.pods_of(epoch).map(|pod| pod.serial))
            .max()
    }

    fn has_bootstrap_pod(self) -> bool {
        let mut pods = self.pods.iter();
        pods.any(|pod| pod.start_mode == StartMode::Bootstrap)
    }

    /// Returns true if a member is known to have joined in an epoch.
    fn has_joined(self, epoch: Epoch) -> bool {
        self.claims_of(epoch).any(|claim| claim.joined_on.is_some()) || self.has_joined_pod(epoch)
    }

    fn has_joined_pod(self, epoch: Epoch) -> bool {
        self.pods_of(epoch)
            .any(|pod| pod.start_mode == StartMode::ExistingData)
    }

    /// Returns true if an object proves that the bootstrap of the identity's epoch was finished.
    /// Only after bootstrap does the client Service select pods, does the operator retain claims of
    /// removed members, does the status name the cluster, and can a member join whose serial the
    /// identity does not know.
    fn was_bootstrapped(self, facts: &EtcdFacts, identity: &Identity) -> bool {
        let epoch = identity.epoch;
        // Earlier operators wrote the cluster ID to the status as soon as the seed had formed the
        // cluster. A pod that may still form one, or a later epoch without joined members, shows
        // that bootstrap was not finished.
        let may_bootstrap = self
            .pods_of(epoch)
            .any(|pod| pod.start_mode == StartMode::Bootstrap);
        // Until a restore is finished the status names the cluster that it replaces.
        let replaced = identity.replaced.as_ref();
        let status_cluster_id = facts
            .cluster
            .status_cluster_id
            .filter(|id| replaced.is_none_or(|replaced| replaced.cluster_id != Some(*id)));
        let status_proves = status_cluster_id.is_some()
            && !may_bootstrap
            && (self.has_joined(epoch) || epoch == Epoch::FIRST);
        let claim_proves = |claim: &ClaimFacts| {
            let has_unknown_serial =
                claim.joined_on.is_some() && claim.serial >= identity.next_serial;
            claim.removed_at.is_some() || has_unknown_serial
        };
        status_proves
            || self.pods_of(epoch).any(|pod| pod.is_routed)
            || self.claims_of(epoch).any(claim_proves)
    }

    /// Returns true if a member has joined in an epoch and was not removed.
    fn has_members(self, epoch: Epoch) -> bool {
        let is_member =
            |claim: &ClaimFacts| claim.joined_on.is_some() && claim.removed_at.is_none();
        self.claims_of(epoch).any(is_member) || self.has_joined_pod(epoch)
    }

    /// Returns the epoch with the data of clients if a restore was under way or has replaced an epoch: the latest one in
    /// which members have joined, and not one that was replaced. The seed of a later one has not served.
    fn epoch_with_data(self, facts: &EtcdFacts) -> Option<Epoch> {
        let is_replaced = |epoch: Epoch| {
            self.claims_of(epoch)
                .any(|claim| claim.replaced_until.is_some())
        };
        let claims = self.claims.iter().map(|claim| claim.epoch);
        let epochs: BTreeSet<_> = claims
            .chain(self.pods.iter().map(|pod| pod.epoch))
            .filter(|epoch| self.has_members(*epoch))
            .collect();
        let any_replaced = epochs.iter().any(|epoch| is_replaced(*epoch));
        if facts.cluster.status_cluster_id.is_none() && !any_replaced {
            return None;
        }
        let current = epochs.iter().filter(|epoch| !is_replaced(**epoch)).max();
        current.or(epochs.iter().max()).copied()
    }

    /// Rebuilds the identity from the annotations of claims and pods; `None` if they disagree.
    /// Bootstrap was finished if a member has joined. Otherwise no client has written, and a new
    /// epoch begins.
    fn rebuild(self, facts: &EtcdFacts) -> Option<Identity> {
        let mut lineages = facts.lineages.iter();
        let (Some(Some(lineage)), None) = (lineages.next(), lineages.next()) else {
            return None;
        };
        let latest = self.latest_epoch()?;
        let epoch = self.epoch_with_data(facts).unwrap_or(latest);
        let highest = self.highest_serial()?;
        let mut identity = Identity {
            lineage: *lineage,
            epoch,
            highest_epoch: (latest > epoch).then_some(latest),
            next_serial: highest.next(),
            ..new_identity(facts)
        };
        if self.has_members(epoch) {
            identity.cluster_id = facts.cluster.status_cluster_id;
            identity.bootstrapped = true;
            // The origin of existing data is not known.
            identity.restore = None;
            identity.next_serial = skip_serials(highest);
            return Some(identity);
        }
        // A new epoch would delete the data of removed members. Only a user decides that when the
        // identity is lost.
        let has_retained_claim = self.claims.iter().any(|claim| claim.removed_at.is_some());
        if facts.cluster.status_cluster_id.is_some() || has_retained_claim {
            return None;
        }
        new_epoch(facts, &mut identity, Some(highest));
        Some(identity)
    }
}

fn skip_serials(highest: Serial) -> Serial {
    Serial(highest.0.saturating_add(SKIPPED_SERIALS))
}

fn new_identity(facts: &EtcdFacts) -> Identity {
    Identity {
        lineage: facts.new_lineage,
        epoch: Epoch::FIRST,
        seed: Serial(0),
        seed_storage: None,
        cluster_id: None,
        bootstrapped: false,
        next_serial: Serial(1),
        intent: None,
        replacements: BTreeSet::new(),
        snapshotted_version: None,
        restore: facts.cluster.restore.clone(),
        highest_epoch: None,
        next_epoch: None,
        replaced: None,
        resource_uid: facts.cluster.resource_uid,
    }
}

/// Begins a new epoch, which starts from the backup of an in-place restore that is under way, or from the one that the spec
/// names now. The serial of its seed is above every serial in use: objects that were prepared for the old epoch have other
/// names.
pub(super) fn new_epoch(facts: &EtcdFacts, identity: &mut Identity, highest: Option<Serial>) {
    let seed = identity
        .next_serial
        .max(highest.map_or(Serial(0), Serial::next));
    let in_place = identity.restore.take().filter(RestoreOrigin::is_in_place);
    let restore = in_place.or_else(|| facts.cluster.restore.clone());
    identity.begin_epoch(identity.highest_epoch().next(), seed, restore);
}

/// Deletes the pods, then the claims of abandoned epochs. The new epoch starts once all pods are
/// gone: two epochs never serve at once.
pub(super) fn delete_old_epochs(view: &ClusterView<'_>) -> RuleResult {
    if let Some(pod) = view.old_pods.iter().find(|pod| !pod.is_terminating) {
        return RuleResult::disruption(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: deletion_reason(view, pod.epoch),
        });
    }
    if !view.old_pods.is_empty() {
        return RuleResult::Block(EtcdWait::OldEpochDeletion);
    }
    match view.old_claims.iter().find(|claim| !claim.is_terminating) {
        Some(claim) => RuleResult::disruption(EtcdDisruption::DeleteClaim {
            claim: claim.uid,
            serial: claim.serial,
            why: DeleteReason::OldEpoch,
        }),
        None => RuleResult::Pass,
    }
}

fn deletion_reason(view: &ClusterView<'_>, epoch: Epoch) -> DeleteReason {
    match &view.identity.replaced {
        Some(replaced) if replaced.epoch == epoch => DeleteReason::Replaced,
        Some(_) | None => DeleteReason::OldEpoch,
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
