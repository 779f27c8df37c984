//! Points in time, as facts carry them: every duration counts from a timestamp in an object, never from memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnixTime(pub i64);

impl UnixTime {
    /// How long ago `earlier` was; nothing for what lies ahead (clocks differ).
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This much later.
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
    fn a_timestamp_from_the_future_is_no_time_ago() {
        assert_eq!(UnixTime(10).since(UnixTime(20)), Duration::ZERO);
        assert_eq!(UnixTime(20).since(UnixTime(10)), Duration::from_secs(10));
    }
}
