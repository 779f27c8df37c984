//! What can happen in the world, by itself or because something goes wrong.

use std::fmt;

/// What can happen.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Start(String),
    Decide(Option<String>),
    Act(Option<usize>),
    Late,
    Crash,
    Freeze,
    Edit(u8),
    Write(String, Option<usize>),
    DeletePod(String),
    DeleteClaim(String),
    LoseVolume(String),
    Wipe(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(name) => write!(f, "{name} starts"),
            Self::Decide(None) => write!(f, "the operator looks, and decides"),
            Self::Decide(Some(name)) => {
                write!(f, "the operator looks while {name} is silent, and decides")
            }
            Self::Act(None) => write!(f, "the operator does the next thing that it decided"),
            Self::Act(Some(asks)) => {
                write!(
                    f,
                    "the operator makes the call, and the member's network is cut after {asks} requests"
                )
            }
            Self::Late => write!(f, "the frozen operator does the next thing that it decided"),
            Self::Crash => write!(f, "the operator dies"),
            Self::Freeze => write!(f, "the operator freezes, and another takes over"),
            Self::Edit(members) => write!(f, "{members} members are wanted"),
            Self::Write(name, None) => write!(f, "a client writes to {name}"),
            Self::Write(name, Some(asks)) => {
                write!(
                    f,
                    "a client writes to {name}, whose network is cut after {asks} requests"
                )
            }
            Self::DeletePod(name) => write!(f, "somebody deletes the pod {name}"),
            Self::DeleteClaim(name) => write!(f, "somebody deletes the claim {name}"),
            Self::LoseVolume(name) => write!(f, "the pod {name} and its volume are lost"),
            Self::Wipe(name) => write!(f, "the volume of {name} is wiped"),
        }
    }
}
