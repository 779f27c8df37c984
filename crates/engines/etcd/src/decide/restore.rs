//! Restores: the volume of the seed is filled with the data of a backup before the seed starts.
//!
//! A restore pod downloads the backup, lets `etcdutl` write a data directory, and renames that
//! directory into the one that the seed reads. The result is recorded on the claim, with the claim's
//! uid and volume, and only then is the seed's pod created. The seed starts on existing data only: if
//! its volume is empty, it does not start, and a new epoch begins.

use std::time::Duration;

use evenkeel_api::Version;
use evenkeel_runtime::UnixTime;

use super::{RuleResult, bootstrap};
use crate::facts::{
    ClaimFacts, RestoreFailure, RestorePodFacts, RestorePodState, RestoreStep, SourceProblem,
    SourceState,
};
use crate::identity::RestoreOrigin;
use crate::names::{Epoch, Serial};
use crate::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange, RestorePodEnd};
use crate::view::ClusterView;

/// The shortest time between the end of a restore pod and the next attempt.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The longest time between the end of a restore pod and the next attempt, and the time after a
/// failure that a user has to correct.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);

/// Returns the restore pod of the current seed.
pub(super) fn current_pod<'f>(view: &ClusterView<'f>) -> Option<&'f RestorePodFacts> {
    pod_of(view, view.identity.epoch, view.identity.seed)
}

fn pod_of<'f>(view: &ClusterView<'f>, epoch: Epoch, seed: Serial) -> Option<&'f RestorePodFacts> {
    let mut pods = view.facts.restore_pods.iter();
    pods.find(|pod| pod.epoch == epoch && pod.serial == seed)
}

/// Deletes restore pods whose work is done, or that an operator created late.
pub(super) fn delete_unneeded_pods(view: &ClusterView<'_>) -> RuleResult {
    let mut pods = view.facts.restore_pods.iter();
    match pods.find(|pod| !pod.is_terminating && !is_needed(view, pod)) {
        Some(pod) => delete(pod, RestorePodEnd::NotNeeded),
        None => RuleResult::Pass,
    }
}

/// Returns true if the volume of the current seed, or of the next epoch's, is still to be filled.
fn is_needed(view: &ClusterView<'_>, pod: &RestorePodFacts) -> bool {
    let identity = view.identity;
    if let Some(next) = &identity.next_epoch
        && (pod.epoch, pod.serial) == (next.epoch, next.seed)
    {
        return view
            .next_claim
            .is_none_or(|claim| is_unfilled(claim, &next.restore));
    }
    let Some(origin) = &identity.restore else {
        return false;
    };
    if identity.bootstrapped || pod.epoch != identity.epoch || pod.serial != identity.seed {
        return false;
    }
    let Some(seed) = view.members.get(&identity.seed) else {
        return true;
    };
    seed.pod.is_none() && seed.claim.is_none_or(|claim| is_unfilled(claim, origin))
}

fn is_unfilled(claim: &ClaimFacts, origin: &RestoreOrigin) -> bool {
    claim.joined_on.is_none() && !claim.is_restored(origin)
}

/// Takes the next action until the volume of the seed is filled, and passes then.
pub(super) fn fill_seed(view: &ClusterView<'_>, origin: &RestoreOrigin) -> RuleResult {
    let seed = view.identity.seed;
    let member = view.members.get(&seed);
    let volume = VolumeToFill {
        serial: seed,
        epoch: view.identity.epoch,
        origin,
        claim: member.and_then(|member| member.claim),
        has_pod: member.is_some_and(|member| member.pod.is_some()),
        create: view.claim(seed),
    };
    fill(view, &volume, &|| {
        bootstrap::restart(view, IdentityChange::SeedLost)
    })
}

/// The volume of a seed that a restore fills.
#[derive(Debug)]
pub(super) struct VolumeToFill<'v> {
    /// The serial of the seed.
    pub serial: Serial,
    /// The epoch of the seed.
    pub epoch: Epoch,
    /// The restore.
    pub origin: &'v RestoreOrigin,
    /// The claim of the seed.
    pub claim: Option<&'v ClaimFacts>,
    /// Whether the seed has a pod.
    pub has_pod: bool,
    /// The creation of the claim.
    pub create: EtcdCreate,
}

/// Takes the next action until a volume is filled, and passes then. `restart` begins with another volume.
pub(super) fn fill(
    view: &ClusterView<'_>,
    volume: &VolumeToFill<'_>,
    restart: &dyn Fn() -> RuleResult,
) -> RuleResult {
    let (seed, origin, has_pod) = (volume.serial, volume.origin, volume.has_pod);
    let restore_pod = pod_of(view, volume.epoch, seed);
    let Some(claim) = volume.claim else {
        return if has_pod {
            restart()
        } else {
            RuleResult::create(vec![volume.create.clone()])
        };
    };
    if claim.joined_on.is_some() {
        return RuleResult::Pass;
    }
    if claim.is_restored(origin) {
        // etcd 3.5 serves silently on data that 3.6 has written (tried): the data is restored again with
        // the earlier version.
        let version = view.facts.cluster.version;
        let is_newer =
            |written: Version| (written.major, written.minor) > (version.major, version.minor);
        if claim.last_version.is_some_and(is_newer) {
            return restart();
        }
        // The containers of a finished pod never run again.
        return match restore_pod {
            Some(pod) if !pod.is_finished() => {
                RuleResult::Block(EtcdWait::RestorePodDeletion(seed))
            }
            Some(_) | None => RuleResult::Pass,
        };
    }
    // The claim was replaced or is about to be deleted: its content is not known. A new epoch has
    // another name, and its volume is empty.
    if has_pod || claim.restored.is_some() || claim.is_lost || claim.is_terminating {
        return restart();
    }
    match restore_pod {
        Some(pod) if pod.is_terminating => RuleResult::Block(EtcdWait::RestorePodDeletion(seed)),
        Some(pod) if pod.claim != claim.uid || pod.restore != origin.id => {
            delete(pod, RestorePodEnd::OtherVolume)
        }
        Some(pod) => continue_restore(view, claim, pod, restart),
        None => when_usable(view, || {
            RuleResult::create(vec![EtcdCreate::RestorePod {
                serial: seed,
                epoch: volume.epoch,
                claim: claim.uid,
                restore: origin.clone(),
                template_hash: view.facts.cluster.pod_template_hash,
            }])
        }),
    }
}

fn continue_restore(
    view: &ClusterView<'_>,
    claim: &ClaimFacts,
    pod: &RestorePodFacts,
    restart: &dyn Fn() -> RuleResult,
) -> RuleResult {
    let is_outdated = pod
        .template_hash
        .is_some_and(|hash| hash != view.facts.cluster.pod_template_hash);
    match &pod.state {
        RestorePodState::Held | RestorePodState::Running(_) if is_outdated && pod.is_idle => {
            delete(pod, RestorePodEnd::Outdated)
        }
        // The pod is created held, and released by a patch with a precondition on its uid: an
        // operator that was frozen meanwhile cannot start a restore late.
        RestorePodState::Held => when_usable(view, || {
            RuleResult::patch(EtcdPatch::ReleaseRestorePod { pod: pod.uid })
        }),
        RestorePodState::Running(_) => RuleResult::Block(EtcdWait::Restore(pod.serial)),
        RestorePodState::Succeeded => match claim.volume {
            Some(volume) => RuleResult::patch(EtcdPatch::RecordRestored {
                claim: claim.uid,
                volume,
                restore: pod.restore,
            }),
            None => RuleResult::Block(EtcdWait::Restore(pod.serial)),
        },
        RestorePodState::Failed(failure) => {
            let retry_at = retry_at(claim, failure);
            if view.facts.now < retry_at && !is_outdated {
                return RuleResult::Block(EtcdWait::RestoreRetry(pod.serial, retry_at));
            }
            match failure.step {
                // The next attempt replaces the file.
                RestoreStep::Fetch => delete(pod, RestorePodEnd::Failed),
                // These steps leave directories behind that they do not overwrite, also if the pod is
                // deleted meanwhile: the next attempt needs a new volume.
                RestoreStep::Restore | RestoreStep::Install => restart(),
            }
        }
    }
}

/// Returns when the next attempt begins: the delay grows with the time that the restore has taken.
fn retry_at(claim: &ClaimFacts, failure: &RestoreFailure) -> UnixTime {
    let elapsed = failure.at.since(claim.created_at);
    let delay = if failure.is_transient {
        (elapsed / 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY)
    } else {
        MAX_RETRY_DELAY
    };
    failure.at.after(delay)
}

/// Returns the result of `next` if the backup can be restored, and a wait otherwise.
pub(super) fn when_usable(view: &ClusterView<'_>, next: impl FnOnce() -> RuleResult) -> RuleResult {
    match &view.facts.source {
        Some(SourceState::Usable) => next(),
        Some(SourceState::Unusable(problem)) => {
            RuleResult::Block(EtcdWait::RestoreSource(problem.clone()))
        }
        None => RuleResult::Block(EtcdWait::RestoreSource(SourceProblem::Unreadable)),
    }
}

fn delete(pod: &RestorePodFacts, why: RestorePodEnd) -> RuleResult {
    RuleResult::disruption(EtcdDisruption::DeleteRestorePod {
        pod: pod.uid,
        serial: pod.serial,
        why,
    })
}
