//! The time limits of a lab on a slow machine. Every time limit is chosen for an ordinary machine and is multiplied by
//! the patience of the lab, which `lab up --patience` records.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::progress::format_duration;
use crate::state::{Lab, LabName};

/// The environment variable that sets the patience of a lab.
pub const PATIENCE_VARIABLE: &str = "LAB_PATIENCE";
/// The largest patience. With this value Kubernetes takes twenty minutes to mark a lost node NotReady.
const MAX_PATIENCE: u8 = 100;
/// Shortest pause between two checks of a condition.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Longest pause between two checks of a condition.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The factor by which a lab's time limits are multiplied: 1 on an ordinary machine, more on a slow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Patience(u8);

impl Patience {
    /// Returns the patience of the lab `name`, or the default when its record cannot be read: `lab down` needs only
    /// the name.
    pub fn of(name: &LabName) -> Self {
        Lab::find(name)
            .ok()
            .flatten()
            .map(|lab| lab.patience())
            .unwrap_or_default()
    }

    /// Returns whether the machine is slow. The lab then starts its parts one after the other.
    pub fn is_slow(self) -> bool {
        self.0 > 1
    }

    /// Multiplies a time limit.
    pub fn times(self, limit: Duration) -> Duration {
        limit * u32::from(self.0)
    }

    /// Multiplies a number of seconds, for flags and configuration files of Kubernetes.
    pub fn seconds(self, seconds: u64) -> u64 {
        seconds * u64::from(self.0)
    }

    /// Polls until `is_met` returns true. Fails after `limit` times the patience; the error names the setting.
    pub fn wait_for(
        self,
        limit: Duration,
        condition: &str,
        mut is_met: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let limit = self.times(limit);
        let deadline = Instant::now() + limit;
        loop {
            let began = Instant::now();
            if is_met()? {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "timed out after {} while waiting for {condition}; {}",
                    format_duration(limit),
                    self.advice()
                );
            }
            // Most checks start a program: on a slow machine frequent checks would delay the condition itself.
            std::thread::sleep((2 * began.elapsed()).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL));
        }
    }

    /// Returns a hint how to raise the time limits; part of every timeout error.
    pub fn advice(self) -> String {
        let suggested = self.0.saturating_mul(3).min(MAX_PATIENCE);
        if self.0 >= MAX_PATIENCE {
            return format!("the time limits are already multiplied by {}", self.0);
        }
        format!(
            "if this machine is slow, `lab up --patience {suggested}` ({PATIENCE_VARIABLE}={suggested}) multiplies all time limits by {suggested} (now {})",
            self.0
        )
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self(1)
    }
}

impl TryFrom<u8> for Patience {
    type Error = anyhow::Error;

    fn try_from(times: u8) -> Result<Self> {
        if !(1..=MAX_PATIENCE).contains(&times) {
            bail!("the patience is a whole number from 1 to {MAX_PATIENCE}, not {times}");
        }
        Ok(Self(times))
    }
}

impl From<Patience> for u8 {
    fn from(patience: Patience) -> Self {
        patience.0
    }
}

impl FromStr for Patience {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let times: u8 = text.trim().parse().with_context(|| {
            format!("the patience is a whole number from 1 to {MAX_PATIENCE}, not `{text}`")
        })?;
        Self::try_from(times)
    }
}

impl std::fmt::Display for Patience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_multiplied() {
        let patience: Patience = "3".parse().unwrap();
        assert_eq!(
            patience.times(Duration::from_secs(120)),
            Duration::from_secs(360)
        );
        assert_eq!(patience.seconds(12), 36);
        assert_eq!(Patience::default().seconds(12), 12);
    }

    #[test]
    fn only_integers_from_1_to_100_are_accepted() {
        for bad in ["", "0", "101", "256", "-1", "1.5", "x"] {
            assert!(bad.parse::<Patience>().is_err(), "{bad:?} was parsed");
            assert!(
                serde_json::from_str::<Patience>(bad).is_err(),
                "{bad:?} was deserialized"
            );
        }
        assert_eq!(
            serde_json::to_string(&"100".parse::<Patience>().unwrap()).unwrap(),
            "100"
        );
    }

    #[test]
    fn a_timeout_error_names_the_setting() {
        let error = Patience::default()
            .wait_for(Duration::ZERO, "the disk", || Ok(false))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("for the disk") && error.contains("LAB_PATIENCE=3"),
            "{error}"
        );
        let advice = Patience(MAX_PATIENCE).advice();
        assert!(
            advice.contains("already") && !advice.contains("lab up"),
            "{advice}"
        );
    }

    #[test]
    fn a_wait_ends_when_the_condition_is_met() {
        let mut checks = 0;
        Patience::default()
            .wait_for(Duration::from_secs(60), "the second check", || {
                checks += 1;
                Ok(checks == 2)
            })
            .unwrap();
        assert_eq!(checks, 2);
    }
}
