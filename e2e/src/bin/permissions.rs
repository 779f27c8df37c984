//! Compares the permissions that the operator used in the stories with those that it has: `permissions DIRECTORY MANIFEST`.
#![expect(clippy::print_stdout, reason = "the program prints a report")]

use std::path::Path;
use std::process::ExitCode;

use evenkeel_e2e::permissions::{granted, recorded};
use serde_json::Value;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, manifest] = &args[..] else {
        println!("usage: permissions DIRECTORY MANIFEST");
        return ExitCode::from(2);
    };
    match compare(Path::new(dir), Path::new(manifest)) {
        Ok((used, unused)) => {
            println!(
                "the operator used {used} permissions in the stories; granted and never used: {}",
                unused.len()
            );
            unused
                .iter()
                .for_each(|permission| println!("  {permission}"));
            ExitCode::from(u8::from(!unused.is_empty()))
        }
        Err(why) => {
            println!("{why}");
            ExitCode::from(2)
        }
    }
}

fn compare(dir: &Path, manifest: &Path) -> Result<(usize, Vec<String>), String> {
    let used = recorded(dir).map_err(|why| format!("{}: {why}", dir.display()))?;
    let text = std::fs::read_to_string(manifest)
        .map_err(|why| format!("{}: {why}", manifest.display()))?;
    let mut objects: Vec<Value> = Vec::new();
    for document in text.split("\n---\n") {
        let object = serde_saphyr::from_str::<Option<Value>>(document);
        objects.extend(object.map_err(|why| format!("{}: {why}", manifest.display()))?);
    }
    let granted = granted(&objects);
    Ok((
        used.len(),
        granted.difference(&used).map(ToString::to_string).collect(),
    ))
}
