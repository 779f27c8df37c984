//! Maintenance windows as a fact: whether serving members may be disturbed for a change of the spec.

use evenkeel_api::windows::{WindowState, Windows};
use evenkeel_runtime::UnixTime;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// When serving members may be disturbed for a change of the spec, by the maintenance windows. Recovery does not wait for a
/// window.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum DisruptionWindow {
    /// Now: a window is open, or no windows are configured.
    #[default]
    Allowed,
    /// Not before the next window opens.
    NotBefore(UnixTime),
}

impl DisruptionWindow {
    /// Returns the state of the configured windows at a time.
    pub fn at(windows: &Windows, now: UnixTime) -> Self {
        let now = Timestamp::from_second(now.0).unwrap_or_default();
        match windows.state(now) {
            WindowState::Open { .. } => Self::Allowed,
            WindowState::Closed { until } => Self::NotBefore(UnixTime(until.as_second())),
        }
    }

    /// Returns the time to wait for; `None` if the time has come, as in a preview that has advanced its clock.
    pub fn waits_until(self, now: UnixTime) -> Option<UnixTime> {
        match self {
            Self::Allowed => None,
            Self::NotBefore(opens) if opens <= now => None,
            Self::NotBefore(opens) => Some(opens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_windows_disruptions_are_always_allowed() {
        let now = UnixTime(1_800_000_000);
        let state = DisruptionWindow::at(&Windows::default(), now);
        assert_eq!(state, DisruptionWindow::Allowed);
    }

    #[test]
    fn at_the_opening_of_a_window_there_is_nothing_to_wait_for() {
        let opens = UnixTime(1_800_000_000);
        let state = DisruptionWindow::NotBefore(opens);
        assert_eq!(state.waits_until(UnixTime(opens.0 - 1)), Some(opens));
        assert_eq!(state.waits_until(opens), None);
        assert_eq!(DisruptionWindow::Allowed.waits_until(opens), None);
    }
}
