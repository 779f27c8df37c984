//! Time zones are those that are compiled in, whatever the system has: the operator's image has none, and an old or wrong
//! database on a node, or on the machine of whoever asks for a plan, must not move a window.

use std::fs;
use std::path::Path;
use std::process::Command;

use evenkeel_api::EtcdClusterSpec;
use evenkeel_api::windows::State;
use jiff::Timestamp;
use serde_json::json;

/// A TZif file with no change of clocks, no offset, and the name `UTC`.
fn a_zone_like_utc() -> Vec<u8> {
    let counts = [0_u32, 0, 0, 0, 1, 4];
    let mut file = b"TZif".to_vec();
    file.extend([0; 16]);
    file.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    file.extend([0; 6]);
    file.extend(b"UTC\0");
    file
}

/// The test runs itself once more where the system's database says that Berlin has the time of Greenwich.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the lab's command is not for a crate that is to be light"
)]
fn a_system_with_a_wrong_database_or_none_moves_no_window() {
    let spec: EtcdClusterSpec =
        serde_json::from_value(json!({ "version": "3.6.16", "maintenance": { "windows":
        [{ "start": "02:00", "duration": "3h", "timeZone": "Europe/Berlin" }] } }))
        .unwrap();
    let midnight: Timestamp = "2026-07-01T00:00:00Z".parse().unwrap();
    let five: Timestamp = "2026-07-01T03:00:00Z".parse().unwrap();
    assert_eq!(
        spec.checked().unwrap().windows.state(midnight),
        State::Open { until: Some(five) }
    );

    if std::env::var_os("TZDIR").is_some() {
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zones");
    fs::create_dir_all(directory.join("Europe")).unwrap();
    fs::write(directory.join("Europe/Berlin"), a_zone_like_utc()).unwrap();
    for system in [directory.as_path(), Path::new("/nowhere")] {
        let again = Command::new(std::env::current_exe().unwrap())
            .env("TZDIR", system)
            .output()
            .unwrap();
        assert!(
            again.status.success(),
            "{}",
            String::from_utf8_lossy(&again.stdout)
        );
    }
}
