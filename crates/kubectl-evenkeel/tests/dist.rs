//! The release files that `make dist` writes: the archive contains a plugin that runs, and its checksum is the one in
//! `SHA256SUMS` and in the Krew manifest.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the test runs scripts and the plugin, and asserts their output"
)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const URL: &str = "https://downloads.example/evenkeel";

/// Runs a command in a directory, and returns its output.
fn run(directory: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn the_krew_manifest_matches_the_archive() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dist = tempfile::tempdir().unwrap();
    let status = Command::new(root.join("hack/dist"))
        .env("DIST_DIR", dist.path())
        .env("DIST_URL", URL)
        .env("DIST_BINARY", env!("CARGO_BIN_EXE_kubectl-evenkeel"))
        .env("DIST_LEVEL", "1")
        .env_remove("DIST_TARGET")
        .status()
        .unwrap();
    assert!(status.success());
    run(dist.path(), "sha256sum", &["--check", "SHA256SUMS"]);

    let manifest = std::fs::read_to_string(dist.path().join("evenkeel.yaml")).unwrap();
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    assert_eq!(
        manifest["apiVersion"],
        "krew.googlecontainertools.github.com/v1alpha2"
    );
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(manifest["spec"]["version"], format!("v{version}"));
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    let [platform] = platforms.as_slice() else {
        panic!("{platforms:?}")
    };
    let labels = &platform["selector"]["matchLabels"];
    let (os, arch) = (labels["os"].as_str(), labels["arch"].as_str());
    let archive = format!(
        "kubectl-evenkeel_{version}_{}_{}.tar.gz",
        os.unwrap(),
        arch.unwrap()
    );
    assert_eq!(platform["uri"], format!("{URL}/{archive}"));
    let sum = run(dist.path(), "sha256sum", &[&archive]);
    assert_eq!(platform["sha256"].as_str(), sum.split(' ').next());

    // What Krew does: it unpacks the archive, and runs `bin`.
    let unpacked = tempfile::tempdir().unwrap();
    let archive = dist.path().join(archive);
    run(
        unpacked.path(),
        "tar",
        &["-xzf", &archive.to_string_lossy()],
    );
    for file in ["LICENSE", "kubectl_complete-evenkeel"] {
        assert!(unpacked.path().join(file).exists(), "{file}");
    }
    let plugin = unpacked.path().join(platform["bin"].as_str().unwrap());
    let shown = run(
        unpacked.path(),
        &plugin.to_string_lossy(),
        &["version", "--client", "--output", "json"],
    );
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["client"]["version"], version);
    assert_eq!(
        shown["client"]["platform"],
        format!("{}/{}", os.unwrap(), arch.unwrap())
    );
}
