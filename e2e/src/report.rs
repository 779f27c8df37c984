//! The result of a test run, from the files of the runners: JUnit files of nextest, the output of `go test -v`, and the list of
//! steps of `hack/test`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A test that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// The test binary, as nextest names it: `evenkeel-e2e::etcd`.
    pub suite: String,
    /// The name with its modules.
    pub name: String,
    /// When the test began, in seconds since midnight.
    pub began: f64,
    /// The duration in seconds.
    pub took: f64,
    /// The reason of the failure, if it failed.
    pub failed: Option<String>,
    /// The reason why a part was not run, if the test printed one.
    pub not_run: Option<String>,
}

/// A step of a run, such as a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name.
    pub name: String,
    /// The duration in seconds.
    pub took: u64,
    /// Whether the step failed.
    pub failed: bool,
}

/// Parses the tests in a JUnit file of nextest.
pub fn junit(xml: &str) -> Vec<Test> {
    // The output of tests is escaped, so it contains no such tag.
    xml.split("<testcase ").skip(1).map(test).collect()
}

fn test(case: &str) -> Test {
    let (head, body) = case.split_once('>').unwrap_or((case, ""));
    let body = unescaped(&without_tags(
        body.split("</testcase>").next().unwrap_or_default(),
    ));
    let failed = ["<failure", "<error"]
        .iter()
        .find_map(|tag| case.split_once(*tag));
    let line_after = |begins: &str| {
        body.lines()
            .find_map(|line| line.strip_prefix(begins))
            .map(str::to_owned)
    };
    let reason = || {
        let panicked = body
            .lines()
            .skip_while(|line| !line.contains(" panicked at "));
        let panicked = panicked
            .take_while(|line| !line.starts_with("stack backtrace:"))
            .take(4);
        let scene = body
            .lines()
            .filter(|line| line.contains("; its scene is in "))
            .take(1);
        let lines = panicked
            .chain(scene)
            .map(|line| line.chars().take(400).collect::<String>());
        lines.collect::<Vec<_>>().join("\n")
    };
    Test {
        suite: attribute(head, "classname"),
        name: attribute(head, "name"),
        began: seconds_of_day(&attribute(head, "timestamp")),
        took: attribute(head, "time").parse().unwrap_or(0.0),
        failed: failed.map(|_| reason()),
        not_run: line_after("NOT RUN "),
    }
}

/// Returns the text between tags; angle brackets in the output of tests are escaped.
fn without_tags(xml: &str) -> String {
    let text = |part: &str| {
        part.split_once('>')
            .map_or(part, |(_, text)| text)
            .to_owned()
    };
    xml.split('<').map(text).collect::<Vec<_>>().join("\n")
}

fn attribute(head: &str, name: &str) -> String {
    let begins = format!("{name}=\"");
    // `name` is also the end of `classname`.
    let at = head
        .match_indices(&begins)
        .map(|(at, _)| at)
        .find(|at| *at == 0 || head[..*at].ends_with(' '));
    let value = at.and_then(|at| head[at + begins.len()..].split('"').next());
    unescaped(value.unwrap_or_default())
}

fn unescaped(text: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#xA;", "\n"),
        ("&amp;", "&"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (code, is)| text.replace(code, is))
}

/// Returns the seconds since midnight of a time such as `2026-11-17T18:52:16.123+00:00`.
fn seconds_of_day(timestamp: &str) -> f64 {
    let time = timestamp.split_once('T').map_or("", |(_, time)| time);
    let time = time.split(['+', '-', 'Z']).next().unwrap_or_default();
    time.split(':').fold(0.0, |sum, part| {
        sum * 60.0 + part.parse::<f64>().unwrap_or(0.0)
    })
}

/// Parses the tests in the output of `go test -v`.
pub fn go(printed: &str) -> Vec<Test> {
    let test = |line: &str| {
        let (result, rest) = line.strip_prefix("--- ")?.split_once(": ")?;
        let (name, took) = rest.split_once(" (")?;
        Some(Test {
            suite: "CSI driver (Go)".to_owned(),
            name: name.to_owned(),
            began: 0.0,
            took: took.trim_end_matches("s)").parse().unwrap_or(0.0),
            failed: (result == "FAIL").then(|| "see above".to_owned()),
            not_run: (result == "SKIP").then(|| format!("{name}: it needs CAP_SYS_ADMIN")),
        })
    };
    printed.lines().filter_map(test).collect()
}

/// Parses the list of steps; a line is name, seconds, and `failed` or nothing, separated by tabs.
pub fn steps(list: &str) -> Vec<Step> {
    let step = |line: &str| {
        let mut words = line.split('\t');
        let (name, took) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        Some(Step {
            name,
            took,
            failed: words.next() == Some("failed"),
        })
    };
    list.lines().filter_map(step).collect()
}

/// The result of a suite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Suite {
    /// The number of tests that passed.
    pub passed: usize,
    /// The number of tests that failed.
    pub failed: usize,
    /// The number of tests that did not run.
    pub not_run: usize,
    /// The time from the first test's begin to the last test's end, in seconds.
    pub took: f64,
}

/// Returns the result of all tests, and of each suite.
pub fn suites(tests: &[Test]) -> (Suite, BTreeMap<String, Suite>) {
    let mut suites: BTreeMap<String, Vec<&Test>> = BTreeMap::new();
    for test in tests {
        suites.entry(test.suite.clone()).or_default().push(test);
    }
    let of = |tests: &[&Test]| {
        let failed = tests.iter().filter(|test| test.failed.is_some()).count();
        let not_run = tests
            .iter()
            .filter(|test| test.failed.is_none() && test.not_run.is_some())
            .count();
        let begin = tests.iter().map(|test| test.began).fold(f64::MAX, f64::min);
        let end = tests
            .iter()
            .map(|test| test.began + test.took)
            .fold(0.0, f64::max);
        Suite {
            passed: tests.len() - failed - not_run,
            failed,
            not_run,
            took: end - begin,
        }
    };
    let all = of(&tests.iter().collect::<Vec<_>>());
    (
        all,
        suites
            .into_iter()
            .map(|(name, tests)| (name, of(&tests)))
            .collect(),
    )
}

/// Formats the end of the output of `make test`; `not_run` has a line for each suite that was left out. CI reads the last line.
pub fn summary(steps: &[Step], tests: &[Test], not_run: &str, logs: &str) -> String {
    let (all, suites) = suites(tests);
    let mut out = String::from("\ntime of each step\n");
    for step in steps {
        let _ = writeln!(
            out,
            "{:>7} s  {}{}",
            step.took,
            step.name,
            if step.failed { ": FAILED" } else { "" }
        );
    }
    out.push_str("\ntime of each suite\n");
    for (name, suite) in &suites {
        let Suite {
            passed,
            failed,
            took,
            ..
        } = suite;
        let _ = writeln!(
            out,
            "{took:>7.0} s  {name}: {passed} passed, {failed} failed"
        );
    }
    out.push_str("\nten slowest tests\n");
    let mut slowest: Vec<_> = tests.iter().collect();
    slowest.sort_by(|one, other| other.took.total_cmp(&one.took));
    for test in slowest.iter().take(10) {
        let _ = writeln!(out, "{:>7.0} s  {} {}", test.took, test.suite, test.name);
    }
    out.push('\n');
    for line in not_run.lines() {
        let _ = writeln!(out, "NOT RUN: {line}");
    }
    for test in tests {
        if let Some(why) = &test.not_run {
            let _ = writeln!(out, "NOT RUN: {} {}: {why}", test.suite, test.name);
        }
    }
    for test in tests {
        if let Some(why) = &test.failed {
            let _ = writeln!(
                out,
                "FAILED: {} {}\n    {}",
                test.suite,
                test.name,
                why.replace('\n', "\n    ")
            );
        }
    }
    for step in steps.iter().filter(|step| step.failed) {
        let _ = writeln!(out, "FAILED: {}", step.name);
    }
    let _ = writeln!(out, "All output is kept in {logs}.");
    let skipped = if all.not_run > 0 {
        format!(", {} skipped", all.not_run)
    } else {
        String::new()
    };
    let _ = writeln!(out, "{} passed, {} failed{skipped}", all.passed, all.failed);
    out
}

/// Formats the result of a run of all tests, for `bench/results/test-all.md`.
pub fn record_page(steps: &[Step], tests: &[Test], when: &str) -> String {
    let (all, suites) = suites(tests);
    let mut out = format!("# The last run of `make test-all`\n\n{when}\n\n");
    out.push_str("| suite | passed | failed | not run | time |\n|---|---|---|---|---|\n");
    let mut row = |name: &str, suite: &Suite, took: String| {
        let Suite {
            passed,
            failed,
            not_run,
            ..
        } = suite;
        let _ = writeln!(out, "| {name} | {passed} | {failed} | {not_run} | {took} |");
    };
    for (name, suite) in &suites {
        row(name, suite, format!("{:.0} s", suite.took));
    }
    let took: u64 = steps.iter().map(|step| step.took).sum();
    row("all", &all, format!("{} min {} s", took / 60, took % 60));
    out.push_str("\nThe time of a suite is from the begin of its first test to the end of its last one; that of all is the time of the whole run.\n");
    out.push_str("\n| step | time | result |\n|---|---|---|\n");
    for step in steps {
        let _ = writeln!(
            out,
            "| {} | {} s | {} |",
            step.name,
            step.took,
            if step.failed { "failed" } else { "done" }
        );
    }
    let failed: Vec<_> = tests.iter().filter(|test| test.failed.is_some()).collect();
    if !failed.is_empty() {
        out.push_str("\nFailed:\n\n");
        for test in failed {
            let _ = writeln!(out, "- `{}` `{}`", test.suite, test.name);
        }
    }
    for test in tests {
        if let Some(why) = &test.not_run {
            let _ = writeln!(out, "\nNot run: `{}`: {why}", test.name);
        }
    }
    out
}
