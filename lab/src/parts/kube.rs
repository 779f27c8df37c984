//! Kubernetes, CoreDNS and the lab's CSI driver: one program, built from the Go module in `lab/kube`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::cache::{self, Key};
use crate::parts::go::{Build, Go};
use crate::parts::{debian, sources};
use crate::progress::Stage;

/// The version that the module pins.
pub const VERSION: &str = "v1.35.4";
/// The names the program answers to.
pub const COMPONENTS: [&str; 8] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
    "coredns",
    "lab-csi",
];

/// A file of Kubernetes' own sources.
pub fn source(path: &str) -> Result<PathBuf> {
    let dir = Go::get()?.module_dir(&sources().join("kube"), "k8s.io/kubernetes")?;
    Ok(dir.join(path))
}

/// Builds the program, or finds it; returns its directory.
pub fn get() -> Result<PathBuf> {
    let module = sources().join("kube");
    let linker = format!(
        "-X k8s.io/component-base/version.gitVersion={VERSION} \
         -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35"
    );
    let key = Key::default().text(&linker).tree(&module)?;
    cache::get("kube", key, |dir| {
        let go = Go::get()?;
        let stage = Stage::begin(
            &format!("Kubernetes {VERSION}"),
            "built from source, about 6 minutes the first time",
        );
        let build = Build {
            module: &module,
            package: ".",
            linker: &linker,
            output: &dir.join("kube"),
        };
        go.build(&build, &stage)?;
        std::os::unix::fs::symlink("kube", dir.join("kubectl"))?;
        stage.done();
        Ok(())
    })
}

/// Runs the tests of our own part of it, the CSI driver, showing what they print.
pub fn test() -> Result<ExitCode> {
    debian::install_tools()?;
    let passed = Go::get()?.test(&sources().join("kube"), "./csi/...")?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
