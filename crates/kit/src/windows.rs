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
    /// Not before the windows in the spec are valid: none were ever accepted.
    NotBeforeValid,
}

/// The end of the time in which serving members may not be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WindowWait {
    /// The next window opens at this time.
    Opens(UnixTime),
    /// A user corrects the windows in the spec.
    Correction,
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

    /// Returns the event to wait for; `None` if it has come, as in a preview that has advanced its clock.
    pub fn wait(self, now: UnixTime) -> Option<WindowWait> {
        match self {
            Self::Allowed => None,
            Self::NotBefore(opens) if opens <= now => None,
            Self::NotBefore(opens) => Some(WindowWait::Opens(opens)),
            Self::NotBeforeValid => Some(WindowWait::Correction),
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
        let waits = Some(WindowWait::Opens(opens));
        assert_eq!(state.wait(UnixTime(opens.0 - 1)), waits);
        assert_eq!(state.wait(opens), None);
        assert_eq!(DisruptionWindow::Allowed.wait(opens), None);
        assert_eq!(
            DisruptionWindow::NotBeforeValid.wait(opens),
            Some(WindowWait::Correction)
        );
    }
}
