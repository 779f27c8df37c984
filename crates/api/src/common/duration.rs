//! Durations as users write them: `1h`, `30m`, `1h30m`, and `0` where none is an answer, too.

use std::fmt;
use std::time::Duration;

/// What was read is no such duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotARetention(String);

impl fmt::Display for NotARetention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a duration such as 1h, 30m or 1h30m, nor \"0\"",
            self.0
        )
    }
}

impl std::error::Error for NotARetention {}

/// How long `text` is; nothing for `0`.
pub fn parse(text: &str) -> Result<Option<Duration>, NotARetention> {
    if text == "0" {
        return Ok(None);
    }
    seconds(text)
        .map(|it| Some(Duration::from_secs(it)))
        .ok_or_else(|| NotARetention(text.to_owned()))
}

/// Hours, then minutes, then seconds, each at most once, as the schema's rule has it.
fn seconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0;
    for (unit, length) in [('h', 3600), ('m', 60), ('s', 1)] {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let plain =
            (1..=5).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
        if !plain || number.starts_with('0') {
            return None;
        }
        total += number.parse::<u64>().ok()? * length;
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
    fn nought_switches_it_off() {
        assert_eq!(parse("0"), Ok(None));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "1", "h", "0h", "01h", "1d", "1.5h", "-1h", "30m1h", "1h1h", "1 h", "100000h", "1H",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
