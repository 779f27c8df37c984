//! What happens, in words: a violation is told as a story.

use std::fmt;

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::plan::{EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch};

use crate::effect::{self, Effect};
use crate::event::Event;
use crate::observe::Sight;
use crate::world::shown;

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decide(_) => f.write_str("the operator looks and decides"),
            Self::DecideBlind(Sight::NoEtcd, _) => {
                f.write_str("the operator decides while no etcd answers it")
            }
            Self::DecideBlind(..) => {
                f.write_str("the operator decides while Kubernetes does not answer it")
            }
            Self::Write(effect) => write!(f, "the operator writes: {}", Shown(effect)),
            Self::WriteUnnoticed(effect) => {
                write!(
                    f,
                    "the operator writes, before etcd notices who is down: {}",
                    Shown(effect)
                )
            }
            Self::WriteTimesOut(effect) => {
                write!(
                    f,
                    "the operator writes, is told of a timeout, but etcd keeps it in its log: {}",
                    Shown(effect)
                )
            }
            Self::Crash => f.write_str("the operator crashes"),
            Self::Freeze => f.write_str("the operator freezes in mid-plan and another takes over"),
            Self::LateWrite(effect) => {
                write!(f, "the frozen operator wakes and writes: {}", Shown(effect))
            }
            Self::Sees(serial) => write!(
                f,
                "the kubelet of {} sees its pod as it is now",
                shown(*serial)
            ),
            Self::TakesPlace { newcomer, of } => {
                write!(
                    f,
                    "{} is given the place that {} will need",
                    shown(*newcomer),
                    shown(*of)
                )
            }
            Self::Starts(serial) => {
                write!(f, "the kubelet starts the container of {}", shown(*serial))
            }
            Self::LeaderChanges(serial) => {
                write!(
                    f,
                    "{} gets another leader, which takes it for new",
                    shown(*serial)
                )
            }
            Self::Leaves(serial) => write!(f, "the pod of {} is gone", shown(*serial)),
            Self::IdentityGoes => {
                f.write_str("the identity that went with the former resource is gone")
            }
            Self::ClaimGoes(serial) => {
                write!(
                    f,
                    "the claim of {}, which went with the former resource, is gone",
                    shown(*serial)
                )
            }
            Self::IdentityDeleted => f.write_str("somebody deletes the identity"),
            Self::StrangerAdded => f.write_str("somebody adds a voter that never starts"),
            Self::Heard(serial) => write!(f, "the operator reaches {} again", shown(*serial)),
            Self::Unheard(serial) => {
                write!(
                    f,
                    "the operator does not reach {}, while others do",
                    shown(*serial)
                )
            }
            Self::NodeUp(serial) => write!(f, "the node of {} comes back", shown(*serial)),
            Self::PodDeleted(serial) => write!(f, "somebody deletes the pod of {}", shown(*serial)),
            Self::PodEnds(serial) => write!(f, "the pod of {} fails for good", shown(*serial)),
            Self::ProcessDies(serial) => write!(f, "the process of {} dies", shown(*serial)),
            Self::ClaimDeleted(serial) => {
                write!(
                    f,
                    "somebody deletes the pod and the claim of {}",
                    shown(*serial)
                )
            }
            Self::ClaimSwapped(serial) => {
                write!(
                    f,
                    "somebody restores the claim of {} from an older copy",
                    shown(*serial)
                )
            }
            Self::Wiped(serial) => {
                write!(f, "the directory of {} is emptied under it", shown(*serial))
            }
            Self::NodeDown(serial) => write!(f, "the node of {} goes down", shown(*serial)),
            Self::NodeGone(serial) => write!(f, "the node of {} is gone for good", shown(*serial)),
            Self::Edited(wanted) => write!(f, "the user wants {wanted} members"),
            Self::Rolled(inputs) => {
                write!(
                    f,
                    "the user wants pods to be built from something else: {inputs:?}"
                )
            }
            Self::Recreated => f.write_str("the user deletes the resource and creates it again"),
            Self::RecreatedOverOrphans => f.write_str(
                "the user deletes the resource, orphaning its pods, and creates it again",
            ),
            Self::TimePasses => f.write_str("time passes"),
        }
    }
}

pub(crate) struct Shown<'a>(pub(crate) &'a Effect);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |start: &StartMode| match start {
            StartMode::Held => "to be held until it is told how to start".to_owned(),
            StartMode::Bootstrap => "as a new cluster".to_owned(),
            StartMode::Join(list) => {
                format!(
                    "to join {}",
                    list.iter()
                        .map(|one| shown(*one))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            StartMode::ExistingData => "on its own data only".to_owned(),
        };
        match self.0 {
            Effect::Create(EtcdCreate::Identity(_)) => f.write_str("creates the identity"),
            Effect::Create(EtcdCreate::Claim { serial, .. }) => {
                write!(f, "creates the claim of {}", shown(*serial))
            }
            Effect::Create(EtcdCreate::Pod {
                serial,
                start_mode: start,
                ..
            }) => {
                write!(f, "creates the pod of {}, {}", shown(*serial), way(start))
            }
            Effect::Mark(EtcdPatch::SetStartMode { to, .. }) => {
                write!(f, "has a pod start {}", way(to))
            }
            Effect::Mark(EtcdPatch::RecordJoinedVolume { .. }) => {
                f.write_str("notes on a claim that its member joined on it")
            }
            Effect::Mark(EtcdPatch::MarkJoined { .. }) => {
                f.write_str("has a pod start on its own data only, and says so")
            }
            Effect::Mark(EtcdPatch::AttachClients { .. }) => f.write_str("routes clients to a pod"),
            Effect::Mark(EtcdPatch::DetachClients { .. }) => {
                f.write_str("routes clients away from a pod")
            }
            Effect::Mark(EtcdPatch::RecordRemoval { .. }) => {
                f.write_str("keeps the claim of a former member")
            }
            Effect::Mark(EtcdPatch::RecordVersion { .. }) => {
                f.write_str("notes on a claim which version its member runs")
            }
            Effect::Mark(EtcdPatch::RecordTemplateHash { .. }) => {
                f.write_str("notes on a pod what it was built from")
            }
            Effect::Mark(EtcdPatch::ResizeVolume { .. }) => {
                f.write_str("has a claim ask for a larger volume")
            }
            Effect::Mark(EtcdPatch::RecordSpec) => f.write_str("notes the spec"),
            Effect::Mark(EtcdPatch::SetOwner { .. }) => {
                f.write_str("takes something into the resource's ownership")
            }
            Effect::Apply(EtcdApply::PodDisruptionBudget { min, .. }) => {
                write!(f, "has evictions leave {min} voters")
            }
            Effect::Apply(EtcdApply::Object(_)) => {
                f.write_str("keeps a service or a secret as it should be")
            }
            Effect::Swap { from, to } if to.bootstrapped && !from.bootstrapped => {
                f.write_str("seals the epoch")
            }
            Effect::Swap { from, to } if to.epoch != from.epoch => {
                f.write_str("begins a new epoch")
            }
            Effect::Swap { to, .. } => match &to.intent {
                Some(intent) => write!(
                    f,
                    "notes its intent: {}",
                    effect::shown_change(intent.change)
                ),
                None => f.write_str("changes the identity"),
            },
            Effect::Ask(intent) => {
                write!(f, "asks etcd for {}", effect::shown_change(intent.change))
            }
            Effect::Delete(EtcdDisruption::RestartMember {
                serial,
                via_eviction: true,
                ..
            }) => {
                write!(f, "evicts the pod of {}", shown(*serial))
            }
            Effect::Delete(EtcdDisruption::RestartMember { serial, .. }) => {
                write!(f, "restarts {}", shown(*serial))
            }
            Effect::Delete(EtcdDisruption::DeletePod { serial, .. }) => {
                write!(f, "deletes the pod of {}", shown(*serial))
            }
            Effect::Delete(EtcdDisruption::DeleteClaim { serial, .. }) => {
                write!(f, "deletes the claim of {}", shown(*serial))
            }
            Effect::Delete(_) => f.write_str("does nothing"),
        }
    }
}
