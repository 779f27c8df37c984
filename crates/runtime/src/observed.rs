//! Observed values, and whether they are known at all.

use serde::{Deserialize, Serialize};

/// An observed value. *Unknown never counts as absent*: an error, a timeout or a skipped query is no
/// evidence of absence.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Observed<T> {
    /// The value is present.
    Present(T),
    /// The value was looked up and does not exist.
    Absent,
    /// The value is not known.
    #[default]
    Unknown,
}

impl<T> Observed<T> {
    /// Returns the value, if it is known to be present.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// Returns the value mutably, if it is known to be present.
    pub fn present_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// Returns true if the value is known to be present.
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present(_))
    }

    /// Returns true if the value is known to be absent. Not the opposite of [`Observed::is_present`].
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Returns true if the value is not known.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Returns the observed value by reference.
    pub fn as_ref(&self) -> Observed<&T> {
        match self {
            Self::Present(value) => Observed::Present(value),
            Self::Absent => Observed::Absent,
            Self::Unknown => Observed::Unknown,
        }
    }
}

impl<T> From<Option<T>> for Observed<T> {
    /// Converts a value from a complete observation, in which `None` means absent.
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_value_is_neither_present_nor_absent() {
        let unknown = Observed::<u8>::default();
        assert!(unknown.is_unknown() && !unknown.is_present() && !unknown.is_absent());
        assert!(unknown.present().is_none());
    }
}
