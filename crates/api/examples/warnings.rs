//! Writes the validations of the policy that warns about doubtful specs as YAML to the standard output. The chart makes a
//! ValidatingAdmissionPolicy of them.

use std::error::Error;

use evenkeel_api::admission_validations;
use serde_json::json;

/// Returns the content of the file.
pub fn file() -> Result<String, Box<dyn Error>> {
    let head = "# Generated from crates/api: run make generate.";
    let validations = serde_saphyr::to_string(&json!({ "validations": admission_validations() }))?;
    Ok(format!("{head}\n{validations}"))
}

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", file()?);
    Ok(())
}
