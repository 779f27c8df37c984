//! The report at the end of `make test`, from files in the runners' formats.

use evenkeel_e2e::report::{go, junit, record_page, steps, suites, summary};

const JUNIT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="evenkeel" tests="3" failures="1" errors="0" uuid="0" timestamp="2026-11-17T18:52:00.000+00:00" time="9.000">
    <testsuite name="evenkeel-e2e::etcd" tests="2" disabled="0" errors="0" failures="1">
        <testcase name="heal::it_heals" classname="evenkeel-e2e::etcd" timestamp="2026-11-17T18:52:00.000+00:00" time="4.500">
            <system-out>quick &amp; quiet</system-out>
        </testcase>
        <testcase name="heal::it_does_not" classname="evenkeel-e2e::etcd" timestamp="2026-11-17T18:52:02.000+00:00" time="7.000">
            <failure message="panicked" type="test failure">thread 'x' panicked at heal.rs:7:
not within 90 s: it is healed
--- all-gone-1 failed; its scene is in /logs/scenes/all-gone-1.txt</failure>
        </testcase>
    </testsuite>
    <testsuite name="evenkeel-e2e::lab" tests="1" disabled="0" errors="0" failures="0">
        <testcase name="full::images::old" classname="evenkeel-e2e::lab" timestamp="2026-11-17T18:52:01.000+00:00" time="1.000">
            <system-err>
NOT RUN etcd 3.5.30 can no longer be had</system-err>
        </testcase>
    </testsuite>
</testsuites>
"#;

#[test]
fn the_report_lists_times_slowest_tests_failures_and_skips() {
    let mut tests = junit(JUNIT);
    tests.extend(go(
        "=== RUN   TestGrow\n--- PASS: TestGrow (0.10s)\n--- SKIP: TestMount (0.00s)\nPASS\n",
    ));
    let (all, each) = suites(&tests);
    assert_eq!((all.passed, all.failed, all.not_run), (2, 1, 2));
    assert!(
        (each["evenkeel-e2e::etcd"].took - 9.0).abs() < 0.01,
        "not from the first begin to the last end: {each:?}"
    );
    let steps = steps("build\t60\t\nend of the lab\t3\tfailed\n");
    let report_text = summary(&steps, &tests, "the stories: E2E=skip\n", "/logs");
    let slowest = report_text
        .split("ten slowest tests\n")
        .nth(1)
        .unwrap()
        .trim_start();
    assert!(
        slowest.starts_with("7 s  evenkeel-e2e::etcd heal::it_does_not\n"),
        "{report_text}"
    );
    let words = [
        "60 s  build\n",
        "9 s  evenkeel-e2e::etcd: 1 passed, 1 failed\n",
        "NOT RUN: the stories: E2E=skip\n",
        "NOT RUN: evenkeel-e2e::lab full::images::old: etcd 3.5.30 can no longer be had\n",
        "FAILED: evenkeel-e2e::etcd heal::it_does_not\n",
        "not within 90 s: it is healed\n",
        "its scene is in /logs/scenes/all-gone-1.txt\n",
        "FAILED: end of the lab\n",
    ];
    for word in words {
        assert!(
            report_text.contains(word),
            "{word:?} is not in {report_text}"
        );
    }
    assert_eq!(
        report_text.lines().last(),
        Some("2 passed, 1 failed, 2 skipped")
    );
    let record = record_page(&steps, &tests, "2026-11-17, commit abc");
    assert!(
        record.contains("| evenkeel-e2e::etcd | 1 | 1 | 0 | 9 s |\n"),
        "{record}"
    );
    assert!(
        record.contains("| all | 2 | 1 | 2 | 1 min 3 s |\n"),
        "{record}"
    );
}
