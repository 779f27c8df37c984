//! What was seen of a thing, and whether anything was seen at all.

use serde::{Deserialize, Serialize};

/// What is known of a thing. *Unknown never counts as absent*: an error, a timeout or a question not asked are no
/// evidence that something is not there.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Observed<T> {
    /// It is there, and this is what it looks like.
    Present(T),
    /// It was looked for and is not there.
    Absent,
    /// Nobody knows.
    #[default]
    Unknown,
}

impl<T> Observed<T> {
    /// The thing, if it is known to be there.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(thing) => Some(thing),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// The thing, to be changed, if it is known to be there.
    pub fn present_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Present(thing) => Some(thing),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// Whether it is known to be there.
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present(_))
    }

    /// Whether it is known not to be there. Not the opposite of [`Seen::is_present`].
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// What is known of it, borrowed.
    pub fn as_ref(&self) -> Observed<&T> {
        match self {
            Self::Present(thing) => Observed::Present(thing),
            Self::Absent => Observed::Absent,
            Self::Unknown => Observed::Unknown,
        }
    }
}

impl<T> From<Option<T>> for Observed<T> {
    /// From a complete look: what it does not show is not there.
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::Absent, Self::Present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unknown_is_neither_present_nor_absent() {
        let unknown = Observed::<u8>::default();
        assert!(unknown.is_unknown() && !unknown.is_present() && !unknown.is_absent());
        assert!(unknown.present().is_none());
    }
}
