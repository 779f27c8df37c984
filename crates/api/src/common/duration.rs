//! Durations as users write them in resources: `1h`, `30m`, `1h30m`, and `0` where a feature can be disabled.

use std::fmt;
use std::time::Duration;

/// The error for a text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDuration;

impl fmt::Display for InvalidDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a duration such as 1h, 30m or 1h30m, or \"0\"")
    }
}

impl std::error::Error for InvalidDuration {}

/// Parses a duration. Returns `None` for `0`.
pub fn parse(text: &str) -> Result<Option<Duration>, InvalidDuration> {
    if text == "0" {
        return Ok(None);
    }
    seconds(text)
        .map(|seconds| Some(Duration::from_secs(seconds)))
        .ok_or(InvalidDuration)
}

/// Returns the number of seconds. Hours, minutes and seconds come in this order, each at most once, as in the schema's
/// rule.
fn seconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0;
    for (unit, unit_seconds) in [('h', 3600), ('m', 60), ('s', 1)] {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let is_number =
            (1..=5).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || number.starts_with('0') {
            return None;
        }
        total += number.parse::<u64>().ok()? * unit_seconds;
        rest = after;
    }
    (rest.is_empty() && total > 0).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_minutes_and_seconds_add_up() {
        for (text, seconds) in [
            ("1h", 3600),
            ("30m", 1800),
            ("1h30m", 5400),
            ("90s", 90),
            ("72h", 259_200),
            ("1h1m1s", 3661),
        ] {
            assert_eq!(
                parse(text),
                Ok(Some(Duration::from_secs(seconds))),
                "{text}"
            );
        }
    }

    #[test]
    fn zero_is_parsed_as_none() {
        assert_eq!(parse("0"), Ok(None));
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            "", "1", "h", "0h", "01h", "1d", "1.5h", "-1h", "30m1h", "1h1h", "1 h", "100000h", "1H",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
