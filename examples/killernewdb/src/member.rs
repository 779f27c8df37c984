//! What a member of the made-up database `killernewdb` does with a request. No network and no disk: those are handed in
//! ([`Around`]), so that the program and the explorer run the same code.
//!
//! The rules, all of them:
//! - Members have names, and a list with a version. The first in the list is the primary; it alone takes writes.
//! - A write is acknowledged when a majority of the listed members have it on disk.
//! - A list is changed by whoever is its primary afterwards, and only from the version that the caller has seen. A newcomer has
//!   all data before it is listed, and no write is taken before everybody, those who leave too, has the new list (*settled*).
//! - A founder's list, version 1, takes no writes: whoever founds it may have to try again, and nothing must be lost by that.
//! - Nobody is elected. When the primary's data is gone *for good*, the next in the list is told so, gathers what a majority
//!   may have acknowledged from enough of the others, and goes on without those that are gone. Whoever tells it must be right.
//!
//! What it does not do: writes wait while the primary is away; each sends everything that there is; a read may show a write
//! that was never acknowledged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A list of members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct List {
    /// Its version.
    pub version: u64,
    /// The members, the primary first.
    pub members: Vec<String>,
    /// Whether everybody is known to have it.
    pub settled: bool,
    /// Those that have left, and may not have heard of it.
    pub former: Vec<String>,
}

/// What a member has on disk. The later of two copies has the larger (version, seq).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    /// The list.
    pub list: List,
    /// How many writes there have been.
    pub seq: u64,
    /// The data.
    pub data: BTreeMap<String, String>,
}

impl State {
    fn position(&self) -> (u64, u64) {
        (self.list.version, self.seq)
    }
}

/// What a member can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// How it is.
    Status,
    /// A value.
    Get(String),
    /// To write a value.
    Put(String, String),
    /// To be the first member, if it has no data yet.
    Found,
    /// To have this list follow the one of that version.
    Change {
        /// The version that the caller has seen.
        version: u64,
        /// The new list.
        members: Vec<String>,
        /// Those whose data is gone for good.
        lost: Vec<String>,
    },
    /// For all that it has; members ask each other.
    State,
    /// To have this instead of what it has; members tell each other.
    Copy(State),
}

/// What a member says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// It has no data.
    Empty,
    /// The list that it has.
    Status(List),
    /// A value.
    Value(Option<String>),
    /// All that it has.
    State(State),
    /// Ask this member: it is the primary.
    Elsewhere(String),
    /// It is not done, or not known to be done.
    Refused(String),
}

/// What is around a member: its disk, and the others.
pub trait Around {
    /// Puts this on disk, for good.
    fn store(&mut self, state: &State) -> Result<(), String>;
    /// Asks another member; nothing if it does not answer.
    fn ask(&mut self, member: &str, request: &Request) -> Option<Reply>;
}

/// A member.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// What it has on disk; nothing if it has never had anything.
    pub state: Option<State>,
}

/// How many of so many are a majority.
pub fn majority(of: usize) -> usize {
    of / 2 + 1
}

type Answer = Result<Reply, String>;

impl Member {
    /// Does what it is asked for.
    pub fn answer(&mut self, request: Request, around: &mut impl Around) -> Reply {
        let answer = match (request, self.state.clone()) {
            (Request::Copy(copy), _) => self.copy(copy, around),
            (Request::Found, None) => self.found(around),
            (_, None) => Ok(Reply::Empty),
            (Request::Found, Some(_)) => Ok(Reply::Done),
            (Request::Status, Some(state)) => Ok(Reply::Status(state.list)),
            (Request::State, Some(state)) => Ok(Reply::State(state)),
            (
                Request::Change {
                    version,
                    members,
                    lost,
                },
                Some(state),
            ) => self.change(state, version, members, &lost, around),
            (Request::Get(key), Some(state)) => match elsewhere(&self.name, &state) {
                Some(primary) => Ok(Reply::Elsewhere(primary)),
                None => Ok(Reply::Value(state.data.get(&key).cloned())),
            },
            (Request::Put(key, value), Some(state)) => match elsewhere(&self.name, &state) {
                Some(primary) => Ok(Reply::Elsewhere(primary)),
                None => self.put(key, value, around),
            },
        };
        answer.unwrap_or_else(Reply::Refused)
    }

    fn store(&mut self, state: State, around: &mut impl Around) -> Result<(), String> {
        around.store(&state)?;
        self.state = Some(state);
        Ok(())
    }

    fn found(&mut self, around: &mut impl Around) -> Answer {
        let list = List {
            version: 1,
            members: vec![self.name.clone()],
            settled: true,
            former: Vec::new(),
        };
        let founded = State {
            list,
            ..State::default()
        };
        self.store(founded, around)?;
        Ok(Reply::Done)
    }

    fn copy(&mut self, copy: State, around: &mut impl Around) -> Answer {
        if self
            .state
            .as_ref()
            .is_some_and(|own| own.position() > copy.position())
        {
            return Err("I have something later".to_owned());
        }
        self.store(copy, around)?;
        Ok(Reply::Done)
    }

    fn put(&mut self, key: String, value: String, around: &mut impl Around) -> Answer {
        let mut state = self.settled(around)?;
        if state.list.version < 2 {
            return Err("founded, and not yet open".to_owned());
        }
        state.seq += 1;
        state.data.insert(key, value);
        self.store(state.clone(), around)?;
        let copy = Request::Copy(state.clone());
        let others = state
            .list
            .members
            .iter()
            .filter(|other| **other != self.name);
        let have = 1 + others
            .filter(|other| around.ask(other, &copy) == Some(Reply::Done))
            .count();
        if have < majority(state.list.members.len()) {
            return Err(format!(
                "only {have} of {} have it: it may or may not last",
                state.list.members.len()
            ));
        }
        Ok(Reply::Done)
    }

    fn change(
        &mut self,
        own: State,
        version: u64,
        members: Vec<String>,
        lost: &[String],
        around: &mut impl Around,
    ) -> Answer {
        if members.first() != Some(&self.name) {
            return Err("I would not be the primary".to_owned());
        }
        let mut state = match elsewhere(&self.name, &own) {
            None => own,
            Some(_) => self.gathered(own, lost, around)?,
        };
        if state.list.version != version {
            return Err(format!("the list is of version {}", state.list.version));
        }
        let copy = Request::Copy(state.clone());
        for newcomer in members
            .iter()
            .filter(|name| !state.list.members.contains(name))
        {
            if around.ask(newcomer, &copy) != Some(Reply::Done) {
                return Err(format!("{newcomer} did not take the data"));
            }
        }
        let before = state.list.members.iter().chain(&state.list.former);
        let former = before.filter(|name| !members.contains(name) && !lost.contains(name));
        state.list.former = former.cloned().collect();
        (state.list.version, state.list.members, state.list.settled) =
            (version + 1, members, false);
        self.store(state, around)?;
        self.settled(around).map(|_| Reply::Done)
    }

    /// What it has, once everybody has the list.
    fn settled(&mut self, around: &mut impl Around) -> Result<State, String> {
        let Some(mut state) = self.state.clone() else {
            return Err("I have no data".to_owned());
        };
        if !state.list.settled {
            let copy = Request::Copy(state.clone());
            for other in state
                .list
                .members
                .iter()
                .chain(&state.list.former)
                .filter(|other| **other != self.name)
            {
                if around.ask(other, &copy) != Some(Reply::Done) {
                    return Err(format!("{other} does not have the list yet"));
                }
            }
            (state.list.settled, state.list.former) = (true, Vec::new());
            self.store(state.clone(), around)?;
        }
        Ok(state)
    }

    /// The latest that anybody has, when the primary is gone for good. Of every majority there must be one among those asked:
    /// asked + majority > members.
    fn gathered(
        &self,
        own: State,
        lost: &[String],
        around: &mut impl Around,
    ) -> Result<State, String> {
        let (mut latest, mut have) = (own, BTreeMap::new());
        loop {
            let (version, mut asked) = (
                latest.list.version,
                usize::from(latest.list.members.contains(&self.name)),
            );
            for other in latest.list.members.clone() {
                if other == self.name || lost.contains(&other) {
                    continue;
                }
                if !have.contains_key(&other)
                    && let Some(Reply::State(state)) = around.ask(&other, &Request::State)
                {
                    have.insert(other.clone(), state);
                }
                asked += usize::from(have.contains_key(&other));
            }
            let others = have.values().max_by_key(|state| state.position());
            if let Some(later) = others.filter(|it| it.position() > latest.position()) {
                latest = later.clone();
            }
            let of = latest.list.members.len();
            if latest.list.version > version {
                // Its list may name others.
                continue;
            }
            if !latest
                .list
                .members
                .first()
                .is_some_and(|primary| lost.contains(primary))
            {
                return Err("the primary is not gone".to_owned());
            }
            return if asked + majority(of) > of {
                Ok(latest)
            } else {
                Err(format!("only {asked} of {of} have answered"))
            };
        }
    }
}

fn elsewhere(name: &str, state: &State) -> Option<String> {
    let primary = state.list.members.first()?;
    (primary != name).then(|| primary.clone())
}
