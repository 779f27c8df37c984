//! Why etcd ended, according to the end of its log, which Kubernetes keeps as the container's termination message.

use serde_json::Value;

/// The part of the error of a write to a full volume.
const NO_SPACE_LEFT: &str = "no space left on device";
/// The length to which an error is cut, in characters.
const MAX_ERROR_CHARS: usize = 200;

/// The reason why etcd ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CrashReason {
    /// The volume is full.
    VolumeFull,
    /// The error that etcd logged.
    Error(String),
}

impl CrashReason {
    /// Returns the reason in the end of a log; `None` if it has no error.
    pub(super) fn of(log: &str) -> Option<Self> {
        if log.contains(NO_SPACE_LEFT) {
            return Some(Self::VolumeFull);
        }
        let mut lines = log.lines().rev();
        lines.find_map(error_of).map(Self::Error)
    }
}

/// Returns message and error of a log line of level error or above, or of a panic of the Go runtime. Values that change
/// with each start are left out: the status must not change while the reason stays.
fn error_of(line: &str) -> Option<String> {
    if let Some(panic) = line.trim().strip_prefix("panic: ") {
        return Some(cut(&format!("panic: {panic}")));
    }
    let entry: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    if !["fatal", "panic", "error", "dpanic"].contains(&text("level")) {
        return None;
    }
    let error = text("error");
    let message = text("msg");
    Some(cut(&match (message, error) {
        ("", error) => error.to_owned(),
        (message, "") => message.to_owned(),
        (message, error) => format!("{message}: {error}"),
    }))
}

fn cut(text: &str) -> String {
    let text = text.trim_end_matches(['.', ' ']);
    if text.chars().count() <= MAX_ERROR_CHARS {
        return text.to_owned();
    }
    let cut = text.chars().take(MAX_ERROR_CHARS - 1);
    cut.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_volume_is_recognized_anywhere_in_the_log() {
        let log = "{\"level\":\"fatal\",\"msg\":\"failed to save\",\"error\":\"write /data/member/wal/0.tmp: no space left on device\"}\n";
        assert_eq!(CrashReason::of(log), Some(CrashReason::VolumeFull));
    }

    #[test]
    fn the_last_error_of_the_log_is_the_reason() {
        let log = concat!(
            "{\"level\":\"info\",\"ts\":\"2026-11-17T10:00:00Z\",\"msg\":\"starting\"}\n",
            "{\"level\":\"fatal\",\"ts\":\"2026-11-17T10:00:01Z\",\"msg\":\"discovery failed\",\"error\":\"member count is unequal\"}\n",
            "{\"level\":\"info\",\"msg\":\"closing\"}\n",
        );
        let error = "discovery failed: member count is unequal".to_owned();
        assert_eq!(CrashReason::of(log), Some(CrashReason::Error(error)));
        let panic =
            "panic: tocommit(11) is out of range [lastIndex(8)]\n\ngoroutine 1 [running]:\n";
        let error = "panic: tocommit(11) is out of range [lastIndex(8)]".to_owned();
        assert_eq!(CrashReason::of(panic), Some(CrashReason::Error(error)));
        assert_eq!(
            CrashReason::of("{\"level\":\"info\",\"msg\":\"fine\"}"),
            None
        );
    }
}
