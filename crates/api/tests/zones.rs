//! Time zones come from the database that is compiled in, not from the system: the operator's image has none, and an old
//! or wrong database on the machine that runs the plugin must not move a window.

use std::fs;
use std::path::Path;
use std::process::Command;

use evenkeel_api::EtcdClusterSpec;
use evenkeel_api::windows::WindowState;
use jiff::Timestamp;
use serde_json::json;

/// Returns a TZif file without transitions, with offset 0 and the name `UTC`.
fn utc_zone_file() -> Vec<u8> {
    let counts = [0_u32, 0, 0, 0, 1, 4];
    let mut file = b"TZif".to_vec();
    file.extend([0; 16]);
    file.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    file.extend([0; 6]);
    file.extend(b"UTC\0");
    file
}

/// Runs the test again in an environment whose database says that Berlin's time is UTC, and in one without a database.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "this crate does not depend on the lab's Command"
)]
fn a_wrong_or_missing_system_database_moves_no_window() {
    let spec: EtcdClusterSpec =
        serde_json::from_value(json!({ "version": "3.6.16", "maintenance": { "windows":
        [{ "start": "02:00", "duration": "3h", "timeZone": "Europe/Berlin" }] } }))
        .unwrap();
    let midnight: Timestamp = "2026-07-01T00:00:00Z".parse().unwrap();
    let five: Timestamp = "2026-07-01T03:00:00Z".parse().unwrap();
    assert_eq!(
        spec.validate().unwrap().windows.state(midnight),
        WindowState::Open { until: Some(five) }
    );

    if std::env::var_os("TZDIR").is_some() {
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zones");
    fs::create_dir_all(directory.join("Europe")).unwrap();
    fs::write(directory.join("Europe/Berlin"), utc_zone_file()).unwrap();
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
