//! The events of the model.

use std::fmt;

/// An event.
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
            Self::Decide(None) => write!(f, "the operator observes and decides"),
            Self::Decide(Some(name)) => {
                write!(
                    f,
                    "the operator observes without an answer of {name}, and decides"
                )
            }
            Self::Act(None) => write!(f, "the operator executes its next action"),
            Self::Act(Some(asks)) => {
                write!(
                    f,
                    "the operator makes the call, and the network of the member is cut after {asks} requests"
                )
            }
            Self::Late => write!(f, "the frozen operator executes its next action"),
            Self::Crash => write!(f, "the operator crashes"),
            Self::Freeze => write!(f, "the operator freezes, and another takes over"),
            Self::Edit(members) => write!(f, "spec.members becomes {members}"),
            Self::Write(name, None) => write!(f, "a client writes to {name}"),
            Self::Write(name, Some(asks)) => {
                write!(
                    f,
                    "a client writes to {name}, whose network is cut after {asks} requests"
                )
            }
            Self::DeletePod(name) => write!(f, "a user deletes Pod {name}"),
            Self::DeleteClaim(name) => write!(f, "a user deletes PersistentVolumeClaim {name}"),
            Self::LoseVolume(name) => write!(f, "Pod {name} and its volume are lost"),
            Self::Wipe(name) => write!(f, "the volume of {name} is wiped"),
        }
    }
}
