//! How long the lab waits on a slow machine. Every time limit of the lab is written for an ordinary machine and is
//! multiplied by the lab's patience, which `lab up --patience` records.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::progress::human;
use crate::state::{Lab, LabName};

/// Names the environment variable that sets the patience of a lab.
pub const VARIABLE: &str = "LAB_PATIENCE";
/// A lost node would go unnoticed for twenty minutes with more.
const MOST: u8 = 100;
/// Shortest and longest pause between two looks at a condition.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// The factor by which a lab's time limits are multiplied: 1 on an ordinary machine, more on a slow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Patience(u8);

impl Patience {
    /// Returns the patience of the lab `name`. A lab without a readable record has the default: `lab down` works
    /// from the name alone.
    pub fn of(name: &LabName) -> Self {
        Lab::find(name)
            .ok()
            .flatten()
            .map(|lab| lab.patience())
            .unwrap_or_default()
    }

    /// Returns whether the machine is slow: what is quicker side by side is then done one by one.
    pub fn is_slow(self) -> bool {
        self.0 > 1
    }

    /// Multiplies a limit.
    pub fn times(self, limit: Duration) -> Duration {
        limit * u32::from(self.0)
    }

    /// Multiplies a number of seconds, as flags and files of Kubernetes have it.
    pub fn seconds(self, seconds: u64) -> u64 {
        seconds * u64::from(self.0)
    }

    /// Asks until the answer is yes; fails when `limit` times the patience has passed, and says what can be set.
    pub fn wait_for(
        self,
        limit: Duration,
        what: &str,
        mut ask: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let limit = self.times(limit);
        let deadline = Instant::now() + limit;
        loop {
            let began = Instant::now();
            if ask()? {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "waited {} for {what}, in vain; {}",
                    human(limit),
                    self.advice()
                );
            }
            // Most looks start a program: on a slow machine they would keep what they wait for from happening.
            std::thread::sleep((2 * began.elapsed()).clamp(PAUSES.0, PAUSES.1));
        }
    }

    /// Says how a slow machine gets longer limits. Part of every error that a limit causes.
    pub fn advice(self) -> String {
        let more = self.0.saturating_mul(3).min(MOST);
        if self.0 >= MOST {
            return format!("the time limits are already multiplied by {}", self.0);
        }
        format!(
            "if this machine is slow, `lab up --patience {more}` ({VARIABLE}={more}) multiplies all time limits by {more} (now {})",
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
        if !(1..=MOST).contains(&times) {
            bail!("the patience is a whole number from 1 to {MOST}, not {times}");
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
            format!("the patience is a whole number from 1 to {MOST}, not `{text}`")
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
    fn all_limits_are_multiplied() {
        let patience: Patience = "3".parse().unwrap();
        assert_eq!(
            patience.times(Duration::from_secs(120)),
            Duration::from_secs(360)
        );
        assert_eq!(patience.seconds(12), 36);
        assert_eq!(Patience::default().seconds(12), 12);
    }

    #[test]
    fn only_whole_numbers_from_1_to_100_are_taken() {
        for bad in ["", "0", "101", "256", "-1", "1.5", "x"] {
            assert!(bad.parse::<Patience>().is_err(), "{bad:?} was taken");
            assert!(
                serde_json::from_str::<Patience>(bad).is_err(),
                "{bad:?} was read"
            );
        }
        assert_eq!(
            serde_json::to_string(&"100".parse::<Patience>().unwrap()).unwrap(),
            "100"
        );
    }

    #[test]
    fn a_limit_that_is_met_names_the_setting() {
        let never = Patience::default()
            .wait_for(Duration::ZERO, "the moon", || Ok(false))
            .unwrap_err()
            .to_string();
        assert!(
            never.contains("for the moon") && never.contains("LAB_PATIENCE=3"),
            "{never}"
        );
        let most = Patience(MOST).advice();
        assert!(
            most.contains("already") && !most.contains("lab up"),
            "{most}"
        );
    }

    #[test]
    fn a_wait_ends_with_the_first_yes() {
        let mut looks = 0;
        Patience::default()
            .wait_for(Duration::from_secs(60), "the second look", || {
                looks += 1;
                Ok(looks == 2)
            })
            .unwrap();
        assert_eq!(looks, 2);
    }
}
