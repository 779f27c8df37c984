//! A stage on which little stories are played, act by act. The abstract world is one, real etcd processes are another; what
//! can be seen from the outside after each act must be the same on both.

use std::collections::BTreeMap;

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::names::Serial;

/// One thing that is done.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A container starts, with these flags, on whatever is in the member's directory.
    Starts(Serial, StartMode),
    /// A process dies.
    Dies(Serial),
    /// The directory of a member that does not run is emptied.
    Wiped(Serial),
    /// A copy is made of the directory of a member that does not run.
    Copied(Serial),
    /// The copy is put back in place of the directory.
    RolledBack(Serial),
    /// etcd is asked for a change of the membership.
    Asks(MembershipChange),
    /// The same, of a leader whose only other voter dies right before.
    AsksAsItDies(Serial, MembershipChange),
    /// The same, while a member is frozen and nobody has noticed.
    AsksAsItFreezes(Serial, MembershipChange),
    /// The only voter is restarted, and so knows nothing of what its learner had; then the learner's container starts.
    StartsUnderAnotherLeader(Serial, StartMode),
}

/// What is said to come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing that is worth a word.
    Whatever,
    /// The member serves.
    Serves,
    /// The member does not answer: it ended, or waits for a quorum.
    Silent,
    /// The change was made.
    Done,
    /// It was not.
    Refused,
}

/// What can be seen from the outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether what was asked for was done.
    pub done: Option<bool>,
    /// The list of members, where a quorum vouches for it.
    pub members: Option<BTreeMap<Serial, Entry>>,
    /// Who answers, and what.
    pub voices: BTreeMap<Serial, Said>,
}

/// A member as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What etcd calls it.
    pub id: u64,
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether it has a name.
    pub started: bool,
}

/// What a member says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// The cluster it takes itself to be in.
    pub cluster: u64,
    /// Who it takes itself to be.
    pub id: u64,
    /// Whether it answers a linearizable read; a learner, that it knows a leader.
    pub serves: bool,
}

impl Act {
    /// Whether a look shows what is said to come of this.
    pub(crate) fn came(&self, then: Then, look: &Look) -> bool {
        let voice = |serial: &Serial| look.voices.get(serial).map(|said| said.serves);
        match (self, then) {
            (_, Then::Whatever) => true,
            (Self::Starts(serial, _) | Self::StartsUnderAnotherLeader(serial, _), Then::Serves) => {
                voice(serial) == Some(true)
            }
            (Self::Starts(serial, _), Then::Silent) => voice(serial).is_none(),
            (_, Then::Done) => look.done == Some(true),
            (_, Then::Refused) => look.done == Some(false),
            _ => false,
        }
    }
}

/// Gives IDs the numbers in which they were first seen, so that the IDs of two stages can be compared.
#[derive(Debug, Default)]
pub(crate) struct Names {
    clusters: Vec<u64>,
    members: Vec<u64>,
}

impl Names {
    /// The look, with its IDs numbered.
    pub(crate) fn number(&mut self, mut look: Look) -> Look {
        for entry in look.members.iter_mut().flat_map(BTreeMap::values_mut) {
            entry.id = rank(&mut self.members, entry.id);
        }
        for said in look.voices.values_mut() {
            said.cluster = rank(&mut self.clusters, said.cluster);
            said.id = rank(&mut self.members, said.id);
        }
        look
    }
}

fn rank(seen: &mut Vec<u64>, id: u64) -> u64 {
    let at = seen.iter().position(|one| *one == id).unwrap_or_else(|| {
        seen.push(id);
        seen.len() - 1
    });
    u64::try_from(at).unwrap_or(u64::MAX)
}
