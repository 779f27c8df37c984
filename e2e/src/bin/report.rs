//! Prints the result of a test run: `report DIRECTORY [RECORD WHEN]`. DIRECTORY is the one that `hack/test` created for the run,
//! RECORD the file for the result of `make test-all`. Exits with 1 if a test or a step failed or no test ran.
#![expect(clippy::print_stdout, reason = "the program prints a report")]

use std::path::Path;
use std::process::ExitCode;

use evenkeel_e2e::report::{go, junit, record_page, steps, summary};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (dir, record) = match &args[..] {
        [dir] => (dir, None),
        [dir, record, when] => (dir, Some((record, when))),
        _ => {
            println!("usage: report DIRECTORY [RECORD WHEN]");
            return ExitCode::from(2);
        }
    };
    let read = |name: &str| std::fs::read_to_string(Path::new(dir).join(name)).unwrap_or_default();
    let mut tests = junit(&read("unit.xml"));
    tests.extend(go(&read("go")));
    tests.extend(junit(&read("e2e.xml")));
    let steps = steps(&read("steps"));
    if let Some((record, when)) = record
        && let Err(error) = std::fs::write(record, record_page(&steps, &tests, when))
    {
        println!("failed to write {record}: {error}");
        return ExitCode::from(2);
    }
    print!("{}", summary(&steps, &tests, &read("not-run"), dir));
    let failed =
        tests.iter().any(|test| test.failed.is_some()) || steps.iter().any(|step| step.failed);
    ExitCode::from(u8::from(failed || tests.is_empty()))
}
