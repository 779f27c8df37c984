//! Compares what the operator was seen to use in the stories with what it is given: `rights DIRECTORY MANIFEST`.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::path::Path;
use std::process::ExitCode;

use evenkeel_e2e::rights::{granted, noted};
use serde_json::Value;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, manifest] = &args[..] else {
        println!("usage: rights DIRECTORY MANIFEST");
        return ExitCode::from(2);
    };
    match compare(Path::new(dir), Path::new(manifest)) {
        Ok((used, unused)) => {
            println!(
                "the operator used {used} rights in the stories; granted and never used: {}",
                unused.len()
            );
            unused.iter().for_each(|right| println!("  {right}"));
            ExitCode::from(u8::from(!unused.is_empty()))
        }
        Err(why) => {
            println!("{why}");
            ExitCode::from(2)
        }
    }
}

fn compare(dir: &Path, manifest: &Path) -> Result<(usize, Vec<String>), String> {
    let used = noted(dir).map_err(|why| format!("{}: {why}", dir.display()))?;
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
