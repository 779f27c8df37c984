//! Points in time in facts. Durations count from timestamps in objects, never from memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time in seconds since 1970 (UTC).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct UnixTime(pub i64);

impl UnixTime {
    /// Returns the duration since `earlier`, zero for a time in the future (clocks differ).
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the time after this duration.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(wait.as_secs()).unwrap_or(i64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_duration_since_a_future_time_is_zero() {
        assert_eq!(UnixTime(10).since(UnixTime(20)), Duration::ZERO);
        assert_eq!(UnixTime(20).since(UnixTime(10)), Duration::from_secs(10));
    }
}
