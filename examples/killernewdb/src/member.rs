//! The logic of a member of the made-up database `killernewdb`. Network and disk are parameters ([`Environment`]), so that
//! the program and the explorer run the same code.
//!
//! The rules:
//! - Members have names and a list with a version. The first in the list is the primary, which alone accepts writes.
//! - A write is acknowledged when a majority of the listed members have it on disk.
//! - The primary of a new list changes the list, and only from the version that the caller observed. A new member has all
//!   data before it is listed. No write is accepted before every member, including those that leave, has the list
//!   (*settled*).
//! - The bootstrap list, version 1, accepts no writes: a repeated bootstrap must not lose data.
//! - There are no elections. If the data of the primary is *lost*, the operator reports that to the next member in the
//!   list. That member collects, from enough other members, every write that a majority may have acknowledged, and continues
//!   without the lost members. The report must be true.
//!
//! Limits: writes wait while the primary is unreachable, each write sends all data, and a read may return a write that was
//! never acknowledged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A member list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemberList {
    /// The version.
    pub version: u64,
    /// The members, the primary first.
    pub members: Vec<String>,
    /// Whether every member is known to have the list.
    pub settled: bool,
    /// The members that have left and may not have the list yet.
    pub former: Vec<String>,
}

/// The state of a member on disk. The later of two copies has the larger (version, seq).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DbState {
    /// The member list.
    pub list: MemberList,
    /// The number of writes.
    pub seq: u64,
    /// The data.
    pub data: BTreeMap<String, String>,
}

impl DbState {
    fn position(&self) -> (u64, u64) {
        (self.list.version, self.seq)
    }
}

/// A request to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Returns the member list.
    Status,
    /// Returns a value.
    Get(String),
    /// Writes a value.
    Put(String, String),
    /// Bootstraps the database on this member, if it has no data.
    Bootstrap,
    /// Replaces the member list of this version.
    Change {
        /// The version that the caller observed.
        version: u64,
        /// The new list.
        members: Vec<String>,
        /// The members whose data is lost.
        lost: Vec<String>,
    },
    /// Returns the complete state, for other members.
    State,
    /// Replaces the complete state, sent by other members.
    Copy(DbState),
}

/// The reply of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The request was executed.
    Done,
    /// The member has no data.
    Empty,
    /// The member list.
    Status(MemberList),
    /// A value.
    Value(Option<String>),
    /// The complete state.
    State(DbState),
    /// This member is not the primary; the named one is.
    #[serde(rename = "Elsewhere")]
    NotPrimary(String),
    /// The request was not executed, or its effect is not known.
    #[serde(rename = "Refused")]
    Rejected(String),
}

/// The disk of a member, and its connections to the others.
pub trait Environment {
    /// Writes the state to disk durably.
    fn store(&mut self, state: &DbState) -> Result<(), String>;
    /// Sends a request to another member. Returns `None` without a reply.
    fn request(&mut self, member: &str, request: &Request) -> Option<Reply>;
}

/// A member.
#[derive(Clone, Debug)]
pub struct DbMember {
    /// The name.
    pub name: String,
    /// The state on disk, `None` if the member never had data.
    pub state: Option<DbState>,
}

/// Returns the size of a majority.
pub fn majority(of: usize) -> usize {
    of / 2 + 1
}

type Answer = Result<Reply, String>;

impl DbMember {
    /// Handles a request.
    pub fn answer(&mut self, request: Request, environment: &mut impl Environment) -> Reply {
        let answer = match (request, self.state.clone()) {
            (Request::Copy(copy), _) => self.copy(copy, environment),
            (Request::Bootstrap, None) => self.bootstrap(environment),
            (_, None) => Ok(Reply::Empty),
            (Request::Bootstrap, Some(_)) => Ok(Reply::Done),
            (Request::Status, Some(state)) => Ok(Reply::Status(state.list)),
            (Request::State, Some(state)) => Ok(Reply::State(state)),
            (
                Request::Change {
                    version,
                    members,
                    lost,
                },
                Some(state),
            ) => self.change(state, version, members, &lost, environment),
            (Request::Get(key), Some(state)) => match other_primary(&self.name, &state) {
                Some(primary) => Ok(Reply::NotPrimary(primary)),
                None => Ok(Reply::Value(state.data.get(&key).cloned())),
            },
            (Request::Put(key, value), Some(state)) => match other_primary(&self.name, &state) {
                Some(primary) => Ok(Reply::NotPrimary(primary)),
                None => self.put(key, value, environment),
            },
        };
        answer.unwrap_or_else(Reply::Rejected)
    }

    fn store(&mut self, state: DbState, environment: &mut impl Environment) -> Result<(), String> {
        environment.store(&state)?;
        self.state = Some(state);
        Ok(())
    }

    fn bootstrap(&mut self, environment: &mut impl Environment) -> Answer {
        let list = MemberList {
            version: 1,
            members: vec![self.name.clone()],
            settled: true,
            former: Vec::new(),
        };
        let state = DbState {
            list,
            ..DbState::default()
        };
        self.store(state, environment)?;
        Ok(Reply::Done)
    }

    fn copy(&mut self, copy: DbState, environment: &mut impl Environment) -> Answer {
        if self
            .state
            .as_ref()
            .is_some_and(|own| own.position() > copy.position())
        {
            return Err("this member has a later state".to_owned());
        }
        self.store(copy, environment)?;
        Ok(Reply::Done)
    }

    fn put(&mut self, key: String, value: String, environment: &mut impl Environment) -> Answer {
        let mut state = self.settled(environment)?;
        if state.list.version < 2 {
            return Err("the bootstrap list accepts no writes".to_owned());
        }
        state.seq += 1;
        state.data.insert(key, value);
        self.store(state.clone(), environment)?;
        let copy = Request::Copy(state.clone());
        let others = state
            .list
            .members
            .iter()
            .filter(|other| **other != self.name);
        let have = 1 + others
            .filter(|other| environment.request(other, &copy) == Some(Reply::Done))
            .count();
        if have < majority(state.list.members.len()) {
            return Err(format!(
                "only {have} of {} members have the write, which may be lost",
                state.list.members.len()
            ));
        }
        Ok(Reply::Done)
    }

    fn change(
        &mut self,
        own: DbState,
        version: u64,
        members: Vec<String>,
        lost: &[String],
        environment: &mut impl Environment,
    ) -> Answer {
        if members.first() != Some(&self.name) {
            return Err("this member would not be the primary".to_owned());
        }
        let mut state = match other_primary(&self.name, &own) {
            None => own,
            Some(_) => self.collect_latest(own, lost, environment)?,
        };
        if state.list.version != version {
            return Err(format!("the list has version {}", state.list.version));
        }
        let copy = Request::Copy(state.clone());
        for new in members
            .iter()
            .filter(|name| !state.list.members.contains(name))
        {
            if environment.request(new, &copy) != Some(Reply::Done) {
                return Err(format!("{new} did not accept the data"));
            }
        }
        let before = state.list.members.iter().chain(&state.list.former);
        let former = before.filter(|name| !members.contains(name) && !lost.contains(name));
        state.list.former = former.cloned().collect();
        (state.list.version, state.list.members, state.list.settled) =
            (version + 1, members, false);
        self.store(state, environment)?;
        self.settled(environment).map(|_| Reply::Done)
    }

    /// Returns the state once every member has the list.
    fn settled(&mut self, environment: &mut impl Environment) -> Result<DbState, String> {
        let Some(mut state) = self.state.clone() else {
            return Err("this member has no data".to_owned());
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
                if environment.request(other, &copy) != Some(Reply::Done) {
                    return Err(format!("{other} does not have the list yet"));
                }
            }
            (state.list.settled, state.list.former) = (true, Vec::new());
            self.store(state.clone(), environment)?;
        }
        Ok(state)
    }

    /// Returns the latest state of any member, after the data of the primary is lost. Every majority must contain a member
    /// that replied: replied + majority > total.
    fn collect_latest(
        &self,
        own: DbState,
        lost: &[String],
        environment: &mut impl Environment,
    ) -> Result<DbState, String> {
        let (mut latest, mut have) = (own, BTreeMap::new());
        loop {
            let (version, mut replied) = (
                latest.list.version,
                usize::from(latest.list.members.contains(&self.name)),
            );
            for other in latest.list.members.clone() {
                if other == self.name || lost.contains(&other) {
                    continue;
                }
                if !have.contains_key(&other)
                    && let Some(Reply::State(state)) = environment.request(&other, &Request::State)
                {
                    have.insert(other.clone(), state);
                }
                replied += usize::from(have.contains_key(&other));
            }
            let others = have.values().max_by_key(|state| state.position());
            if let Some(later) = others.filter(|it| it.position() > latest.position()) {
                latest = later.clone();
            }
            let total = latest.list.members.len();
            if latest.list.version > version {
                // The later list may have other members.
                continue;
            }
            if !latest
                .list
                .members
                .first()
                .is_some_and(|primary| lost.contains(primary))
            {
                return Err("the primary is not lost".to_owned());
            }
            return if replied + majority(total) > total {
                Ok(latest)
            } else {
                Err(format!("only {replied} of {total} members replied"))
            };
        }
    }
}

fn other_primary(name: &str, state: &DbState) -> Option<String> {
    let primary = state.list.members.first()?;
    (primary != name).then(|| primary.clone())
}
