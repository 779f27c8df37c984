//! Kubernetes, CoreDNS and the CSI driver of the lab: one program, built from the Go module in `lab/kube`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::cache::{self, CacheKey};
use crate::parts::go::{GoBuild, GoToolchain};
use crate::parts::{debian, sources};
use crate::progress::Progress;

/// The version of Kubernetes in `go.mod`.
pub const VERSION: &str = "v1.35.4";
/// The names under which the program can be started.
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

/// Returns the path of a file in the sources of Kubernetes.
pub fn source(path: &str) -> Result<PathBuf> {
    let dir = GoToolchain::get()?.module_dir(&sources().join("kube"), "k8s.io/kubernetes")?;
    Ok(dir.join(path))
}

/// Returns the directory of the program; builds it when it is missing in the cache.
pub fn get() -> Result<PathBuf> {
    let module = sources().join("kube");
    let linker_flags = format!(
        "-X k8s.io/component-base/version.gitVersion={VERSION} \
         -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35"
    );
    let key = CacheKey::default().text(&linker_flags).tree(&module)?;
    cache::get_or_build("kube", key, |dir| {
        let go = GoToolchain::get()?;
        let progress = Progress::start(
            &format!("Kubernetes {VERSION}"),
            "built from source, about 6 minutes the first time",
        );
        let build = GoBuild {
            module: &module,
            package: ".",
            linker_flags: &linker_flags,
            output: &dir.join("kube"),
        };
        go.build(&build, &progress)?;
        std::os::unix::fs::symlink("kube", dir.join("kubectl"))?;
        progress.finish();
        Ok(())
    })
}

/// Runs the tests of the CSI driver with their output on the standard streams.
pub fn test() -> Result<ExitCode> {
    debian::install_tools()?;
    let passed = GoToolchain::get()?.test(&sources().join("kube"), "./csi/...")?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
