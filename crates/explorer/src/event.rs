//! What can happen next: the operator's own doing, what kubelets and etcd do by themselves, and what goes wrong.

use evenkeel_etcd::facts::{StartMode, StorageKind};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::plan::EtcdDisruption;
use evenkeel_etcd::view::quorum;

use crate::Decider;
use crate::effect::{self, Effect, Etcds, Outcome};
use crate::observe::{Sight, observe};
use crate::starting::Starting;
use crate::words::Shown;
use crate::world::{Disk, Inputs, Stranger, Violation, World};

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operator looks, and decides on these writes.
    Decide(Vec<Effect>),
    /// The operator looks while something is hidden from it, and decides on these writes.
    DecideBlind(Sight, Vec<Effect>),
    /// The operator's next write.
    Write(Effect),
    /// The operator's next write is a call that etcd would refuse, had it noticed who is down.
    WriteUnnoticed(Effect),
    /// The operator's next write is a call that times out, for the quorum has just been lost; it is made when that is back.
    WriteTimesOut(Effect),
    /// The operator crashes: what it had not yet written is forgotten.
    Crash,
    /// Another operator takes over while this one is frozen in mid-plan.
    Freeze,
    /// The frozen one wakes, and its next write goes out.
    LateWrite(Effect),
    /// A kubelet sees what the API says of a pod.
    Sees(Serial),
    /// A newcomer's pod is given the node, and its volume a place there, that a voter which is away will need.
    TakesPlace {
        /// Who comes.
        newcomer: Serial,
        /// Who is away.
        of: Serial,
    },
    /// A kubelet starts a pod's container.
    Starts(Serial),
    /// A learner that knows less than its leader takes it to know gets another leader.
    LeaderChanges(Serial),
    /// A pod on its way out is gone.
    Leaves(Serial),
    /// The identity of a former resource is gone.
    IdentityGoes,
    /// A claim of a former resource is gone.
    ClaimGoes(Serial),
    /// A node comes back.
    NodeUp(Serial),
    /// The operator can reach a member again.
    Heard(Serial),
    /// Somebody deletes the identity.
    IdentityDeleted,
    /// Somebody adds a voter that never starts.
    StrangerAdded,
    /// Somebody deletes a pod.
    PodDeleted(Serial),
    /// A pod ends for good.
    PodEnds(Serial),
    /// A member's process dies.
    ProcessDies(Serial),
    /// A member's claim is deleted with its pod.
    ClaimDeleted(Serial),
    /// A member's claim is created again from an older copy, what was written on it included.
    ClaimSwapped(Serial),
    /// A member's directory is emptied under it.
    Wiped(Serial),
    /// A member's node goes down.
    NodeDown(Serial),
    /// A member's node is gone for good.
    NodeGone(Serial),
    /// The operator cannot reach a member that others reach.
    Unheard(Serial),
    /// The user wants another number of members.
    Edited(u8),
    /// The user wants pods to be built from something else.
    Rolled(Inputs),
    /// The user deletes the resource and creates it again.
    Recreated,
    /// The user deletes the resource alone, its pods orphaned, and creates it again.
    RecreatedOverOrphans,
    /// Time passes, longer than anybody's patience.
    TimePasses,
}

impl Event {
    /// Everything that can happen next.
    pub fn all(world: &World, decider: &dyn Decider) -> Vec<Self> {
        let mut events = Self::by_itself(world, decider);
        events.extend(Self::wrong(world, decider));
        events
    }

    /// What happens by itself when nothing goes wrong.
    pub fn by_itself(world: &World, decider: &dyn Decider) -> Vec<Self> {
        let mut events = Vec::new();
        for (serial, pod) in &world.pods {
            if pod.unheard {
                events.push(Self::Heard(*serial));
            }
            if pod.down {
                events.push(Self::NodeUp(*serial));
            } else if pod.deleting {
                events.push(Self::Leaves(*serial));
            } else if !pod.finished && pod.start != StartMode::Held {
                let is_news =
                    |(start, gate): &(StartMode, bool)| (start, *gate) != (&pod.start, pod.gate);
                if pod.seen.as_ref().is_none_or(is_news) && !world.is_kept_out(*serial) {
                    events.push(Self::Sees(*serial));
                }
                if !pod.runs && world.starting(*serial) != Ok(Starting::Ends) {
                    events.push(Self::Starts(*serial));
                }
            }
        }
        if world.former {
            events.push(Self::IdentityGoes);
        }
        let former = world
            .claims
            .iter()
            .filter(|(serial, claim)| claim.former && !world.pods.contains_key(serial));
        events.extend(former.map(|(serial, _)| Self::ClaimGoes(*serial)));
        match world.pending.first() {
            Some(effect) => events.push(Self::Write(effect.clone())),
            None => {
                let decided = decide(world, decider, Sight::Clear);
                if !decided.is_empty() {
                    events.push(Self::Decide(decided));
                }
            }
        }
        events
    }

    /// What may go wrong.
    pub(crate) fn wrong(world: &World, decider: &dyn Decider) -> Vec<Self> {
        let mut events = Vec::new();
        if let Some(effect) = world.late.first() {
            events.push(Self::LateWrite(effect.clone()));
        }
        if let Some(effect @ Effect::Ask(intent)) = world.pending.first() {
            if effect::depends_on_notice(world, intent.change) {
                events.push(Self::WriteUnnoticed(effect.clone()));
            }
            if effect::takes_into_log(world, intent.change).is_some() {
                events.push(Self::WriteTimesOut(effect.clone()));
            }
        }
        let learners = world
            .pods
            .keys()
            .filter(|serial| world.waits_for_another_leader(**serial).is_some());
        events.extend(learners.map(|serial| Self::LeaderChanges(*serial)));
        if world.budget.crashes > 0 && !world.pending.is_empty() {
            events.push(Self::Crash);
            if world.late.is_empty() {
                events.push(Self::Freeze);
            }
        }
        if world.budget.edits > 0 {
            events.extend(
                [1, 3]
                    .into_iter()
                    .filter(|wanted| *wanted != world.wanted)
                    .map(Self::Edited),
            );
            if world.rolls {
                let others = [Inputs::First, Inputs::Second, Inputs::Bad];
                let others = others.into_iter().filter(|inputs| *inputs != world.inputs);
                events.extend(others.map(Self::Rolled));
            } else {
                events.extend([Self::Recreated, Self::RecreatedOverOrphans]);
            }
        }
        let something_new = world.pods.values().any(|pod| !pod.old)
            || world
                .clusters
                .iter()
                .any(|cluster| cluster.stranger == Some(Stranger::New));
        if world.budget.delays > 0 && something_new {
            events.push(Self::TimePasses);
        }
        if world.budget.faults > 0 {
            faults(world, decider, &mut events);
        }
        events
    }

    /// Lets it happen.
    pub fn happen(&self, world: &mut World, decider: &dyn Decider) -> Result<(), Violation> {
        match self {
            Self::Decide(decided) => {
                world.pending.clone_from(decided);
                judge(world)?;
            }
            Self::DecideBlind(_, decided) => {
                world.budget.faults -= 1;
                world.pending.clone_from(decided);
                judge(world)?;
            }
            Self::Write(effect) => {
                world.pending.remove(0);
                if effect::apply(world, effect, Etcds::HasNoticed)? == Outcome::Refused {
                    world.pending.clear();
                }
            }
            Self::WriteUnnoticed(effect) => {
                world.pending.remove(0);
                effect::apply(world, effect, Etcds::HasNotNoticed)?;
            }
            Self::WriteTimesOut(effect) => {
                world.pending.clear();
                if let Effect::Ask(intent) = effect
                    && let Some(cluster) = effect::takes_into_log(world, intent.change)
                {
                    world.clusters[cluster].in_log = Some(intent.change);
                }
            }
            Self::Crash => {
                world.budget.crashes -= 1;
                world.pending.clear();
            }
            Self::Freeze => {
                world.budget.crashes -= 1;
                // Its writes to Kubernetes may still land; a call to etcd is not sent once the lease has run out.
                world.late = std::mem::take(&mut world.pending);
                // Nor is a member restarted then without which there is no majority.
                let is_withheld = |effect: &Effect| {
                    matches!(
                        effect,
                        Effect::Ask(_)
                            | Effect::Delete(EtcdDisruption::RestartMember {
                                via_eviction: false,
                                ..
                            })
                    )
                };
                world
                    .late
                    .retain(|effect| decider.sends_late() || !is_withheld(effect));
            }
            Self::LateWrite(effect) => {
                world.late.remove(0);
                let before = quorums(world);
                if effect::apply(world, effect, Etcds::HasNotNoticed)? == Outcome::Refused {
                    world.late.clear();
                }
                if before > quorums(world) {
                    return Err(Violation(format!(
                        "what was written late costs the quorum: {}",
                        Shown(effect)
                    )));
                }
            }
            Self::Sees(serial) => {
                if let Some(pod) = world.pods.get_mut(serial) {
                    pod.seen = Some((pod.start.clone(), pod.gate));
                }
            }
            Self::Starts(serial) => {
                world.start_etcd(*serial)?;
                effect::overtakes(world, *serial);
            }
            Self::LeaderChanges(serial) => world.catch_up(*serial),
            Self::Leaves(serial) => world.remove_pod(*serial),
            Self::IdentityGoes => (world.identity, world.former) = (None, false),
            Self::ClaimGoes(serial) => {
                world.claims.remove(serial);
            }
            Self::NodeUp(serial) => {
                if let Some(pod) = world.pods.get_mut(serial) {
                    pod.down = false;
                }
            }
            Self::Heard(serial) => {
                if let Some(pod) = world.pods.get_mut(serial) {
                    pod.unheard = false;
                }
            }
            Self::Edited(wanted) => {
                world.budget.edits -= 1;
                world.wanted = *wanted;
            }
            Self::Rolled(inputs) => {
                world.budget.edits -= 1;
                world.inputs = *inputs;
            }
            Self::Recreated => {
                world.budget.edits -= 1;
                world.resource += 1;
                world.goes();
            }
            Self::RecreatedOverOrphans => {
                world.budget.edits -= 1;
                world.resource += 1;
            }
            Self::TimePasses => {
                world.budget.delays -= 1;
                let_time_pass(world);
            }
            fault => go_wrong(fault, world),
        }
        if matches!(
            self,
            Self::IdentityGoes | Self::ClaimGoes(_) | Self::Leaves(_)
        ) {
            world.forget_former();
        }
        world.settle();
        world.check()
    }
}

/// Everything that was new is old.
pub fn let_time_pass(world: &mut World) {
    for pod in world.pods.values_mut() {
        pod.old = true;
    }
    for stranger in world
        .clusters
        .iter_mut()
        .filter_map(|cluster| cluster.stranger.as_mut())
    {
        *stranger = Stranger::Old;
    }
    if let Some(intent) = world
        .identity
        .as_mut()
        .and_then(|identity| identity.intent.as_mut())
    {
        intent.recorded_at = crate::observe::LONG_AGO;
    }
}

/// How many sealed clusters can agree: one, or none.
fn quorums(world: &World) -> usize {
    let sealed = world
        .identity
        .as_ref()
        .is_some_and(|identity| identity.bootstrapped);
    usize::from(
        world
            .true_cluster()
            .is_some_and(|cluster| sealed && world.has_quorum(cluster)),
    )
}

/// A plan is judged by the world it was made for: carried out at once, it must not cost a quorum that was there. What dies
/// between the decision and the call is not the plan's fault; that etcd may notice and refuse is not its merit.
fn judge(world: &World) -> Result<(), Violation> {
    let sealed = world
        .identity
        .as_ref()
        .is_some_and(|identity| identity.bootstrapped);
    let Some(cluster) = world
        .true_cluster()
        .filter(|cluster| sealed && world.has_quorum(*cluster))
    else {
        return Ok(());
    };
    let mut after = world.clone();
    for effect in &world.pending {
        // Whoever has one or two members, all of them well, wants them restarted all the same.
        let few = world.wanted <= 2
            && world.votes(cluster) <= 2
            && world.alive_voters(cluster) == world.votes(cluster);
        if few
            && matches!(
                effect,
                Effect::Delete(EtcdDisruption::RestartMember {
                    via_eviction: false,
                    ..
                })
            )
        {
            break;
        }
        if effect::apply(&mut after, effect, Etcds::HasNotNoticed)? == Outcome::Refused {
            break;
        }
        if !after.has_quorum(cluster) {
            return Err(Violation(format!(
                "it is decided to cost the quorum: {}",
                Shown(effect)
            )));
        }
    }
    Ok(())
}

/// What an operator that looks now would write.
pub fn decide(world: &World, decider: &dyn Decider, sight: Sight) -> Vec<Effect> {
    effect::effects(&decider.decide(&observe(world, sight)))
}

/// Newcomers that no kubelet has seen yet, each with the voters whose place they could get.
fn places(world: &World) -> Vec<Event> {
    let Some(cluster) = world
        .true_cluster()
        .filter(|_| world.storage == StorageKind::Persistent)
    else {
        return Vec::new();
    };
    let members = &world.clusters[cluster].members;
    let unseen = |serial: &Serial| world.pods.get(serial).is_none_or(|pod| pod.seen.is_none());
    let comes = |serial: &Serial| {
        let waits = world
            .pods
            .get(serial)
            .is_some_and(|pod| matches!(pod.start, StartMode::Join(_)) && !pod.deleting);
        waits
            && unseen(serial)
            && world
                .claims
                .get(serial)
                .is_some_and(|claim| claim.took.is_none())
    };
    let newcomers = members
        .iter()
        .filter(|(serial, member)| member.learner && comes(serial));
    let away: Vec<_> = members
        .iter()
        .filter(|(serial, member)| !member.learner && unseen(serial))
        .collect();
    newcomers
        .flat_map(|(newcomer, _)| {
            away.iter().map(|(of, _)| Event::TakesPlace {
                newcomer: *newcomer,
                of: **of,
            })
        })
        .collect()
}

fn faults(world: &World, decider: &dyn Decider, events: &mut Vec<Event>) {
    events.extend(places(world));
    if world.pending.is_empty() && world.identity.is_some() {
        let blind = |sight| Event::DecideBlind(sight, decide(world, decider, sight));
        events.extend([Sight::NoEtcd, Sight::NoObjects].map(blind));
    }
    if world.identity.is_some() && world.meddles {
        events.push(Event::IdentityDeleted);
        if takes_a_stranger(world).is_some() {
            events.push(Event::StrangerAdded);
        }
    }
    for (serial, pod) in &world.pods {
        events.push(Event::PodDeleted(*serial));
        if !pod.down && !pod.finished {
            events.push(Event::NodeDown(*serial));
            events.push(Event::PodEnds(*serial));
        }
        if pod.runs {
            events.push(Event::ProcessDies(*serial));
            events.push(Event::Unheard(*serial));
            events.push(Event::Wiped(*serial));
        }
        events.push(Event::NodeGone(*serial));
    }
    for (serial, claim) in &world.claims {
        events.push(Event::ClaimDeleted(*serial));
        if claim.disk != Disk::Empty {
            events.push(Event::ClaimSwapped(*serial));
        }
    }
}

/// The cluster that would take one voter more, and agree without it. (With a single member etcd takes one that costs it its
/// quorum; then only whoever did that can help.)
fn takes_a_stranger(world: &World) -> Option<usize> {
    let cluster = world
        .true_cluster()
        .filter(|cluster| world.clusters[*cluster].stranger.is_none())?;
    let (alive, votes) = (world.alive_voters(cluster), world.votes(cluster));
    (alive == votes && alive >= quorum(votes + 1)).then_some(cluster)
}

fn go_wrong(fault: &Event, world: &mut World) {
    world.budget.faults -= 1;
    match fault {
        Event::IdentityDeleted => {
            (world.identity, world.former) = (None, false);
            world
                .clusters
                .iter_mut()
                .for_each(|cluster| cluster.orphaned = true);
        }
        Event::StrangerAdded => {
            if let Some(cluster) = takes_a_stranger(world) {
                world.clusters[cluster].stranger = Some(Stranger::New);
            }
        }
        Event::PodDeleted(serial) => world.remove_pod(*serial),
        Event::PodEnds(serial) => {
            if let Some(pod) = world.pods.get_mut(serial) {
                (pod.finished, pod.runs) = (true, false);
            }
        }
        Event::Unheard(serial) => {
            if let Some(pod) = world.pods.get_mut(serial) {
                pod.unheard = true;
            }
        }
        Event::TakesPlace { newcomer, of } => {
            let place = world.place(*of);
            world
                .claims
                .get_mut(newcomer)
                .into_iter()
                .for_each(|claim| claim.took = Some(place));
            world
                .pods
                .get_mut(newcomer)
                .into_iter()
                .for_each(|pod| pod.seen = Some((pod.start.clone(), pod.gate)));
        }
        Event::ProcessDies(serial) => {
            if let Some(pod) = world.pods.get_mut(serial) {
                pod.runs = false;
            }
        }
        Event::Wiped(serial) => {
            world.set_disk(*serial, Disk::Empty);
            if let Some(pod) = world.pods.get_mut(serial) {
                pod.runs = false;
            }
        }
        Event::ClaimDeleted(serial) => {
            world.claims.remove(serial);
            world.remove_pod(*serial);
        }
        Event::ClaimSwapped(serial) => {
            world.remove_pod(*serial);
            let uid = world.fresh_uid();
            if let Some(claim) = world.claims.get_mut(serial) {
                claim.uid = uid;
                if let Disk::Data {
                    cluster, serial, ..
                } = claim.disk
                {
                    claim.disk = Disk::Data {
                        cluster,
                        serial,
                        stale: true,
                    };
                }
            }
        }
        Event::NodeDown(serial) => {
            if let Some(pod) = world.pods.get_mut(serial) {
                (pod.down, pod.runs) = (true, false);
            }
        }
        Event::NodeGone(serial) => {
            world.remove_pod(*serial);
            if let Some(claim) = world
                .claims
                .get_mut(serial)
                .filter(|_| world.storage == StorageKind::Persistent)
            {
                claim.lost = true;
            }
        }
        _ => {}
    }
}
