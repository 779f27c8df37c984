//! The images of a lab: `pause` for every pod, `busybox` for tests, and etcd in the layout of the upstream image
//! (distroless, without a shell, programs in `/usr/local/bin`).

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::cache::{self, CacheKey};
use crate::command::Cmd;
use crate::node::PAUSE_IMAGE;
use crate::parts::etcd::{self, EtcdVersion, PROGRAMS};
use crate::parts::image::ImageBuilder;
use crate::parts::{debian, kube, versitygw};
use crate::progress::Progress;
use crate::state::{Lab, Node};
use crate::{machine::Machine, node};

/// The version of the image layout, part of the cache keys. Increase it when images are built differently.
const LAYOUT_VERSION: &str = "1";
/// The image for tests and for the tour in the README: a shell, a web server and tools.
pub const BUSYBOX_IMAGE: &str = "docker.io/library/busybox:stable";
/// The CA certificates of Debian's package `ca-certificates`, on this host and in images of programs.
const CA_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// An image archive on this host.
#[derive(Clone, Debug)]
pub struct ImageArchive {
    /// The names of the image.
    pub names: Vec<String>,
    /// The path of the archive.
    pub path: PathBuf,
}

/// Returns the images that every node has.
pub fn default_archives() -> Result<Vec<ImageArchive>> {
    Ok(vec![
        pause()?,
        busybox()?,
        etcd_image(EtcdVersion::DEFAULT)?,
    ])
}

/// Returns the image of an etcd version with the names of the public registries.
pub fn etcd_image(version: EtcdVersion) -> Result<ImageArchive> {
    let names = vec![
        format!("gcr.io/etcd-development/etcd:v{version}"),
        format!("quay.io/coreos/etcd:v{version}"),
        format!("registry.k8s.io/etcd:{version}-0"),
    ];
    let programs = etcd::get(version)?;
    let key = CacheKey::default()
        .text(LAYOUT_VERSION)
        .text(&programs.display().to_string());
    cached_archive(&format!("image-etcd-{version}"), key, names, |names, to| {
        let mut image = ImageBuilder::new(&["/usr/local/bin/etcd"], "/var/lib/etcd/");
        image.ports(&["2379/tcp", "2380/tcp"]);
        add_base_files(&mut image)?;
        for dir in [
            "usr/",
            "usr/local/",
            "usr/local/bin/",
            "var/",
            "var/etcd/",
            "var/lib/",
            "var/lib/etcd/",
        ] {
            image.dir(dir, 0o755)?;
        }
        let mut libraries = Vec::new();
        for program in PROGRAMS {
            image.program(&format!("usr/local/bin/{program}"), &programs.join(program))?;
            libraries.extend(etcd::libraries(&programs.join(program))?);
        }
        libraries.sort();
        libraries.dedup();
        for library in libraries {
            let image_path = library.display().to_string();
            image.program(image_path.trim_start_matches('/'), &library)?;
        }
        image.write(names, to)
    })
}

/// Returns the name of the image of the S3 server versitygw.
pub fn versitygw_image_name() -> String {
    format!("docker.io/library/versitygw:v{}", versitygw::VERSION)
}

/// Returns the image of the S3 server versitygw.
pub fn versitygw_image() -> Result<ImageArchive> {
    let program = versitygw::get()?;
    let key = CacheKey::default()
        .text(LAYOUT_VERSION)
        .text(&program.display().to_string());
    cached_archive(
        "image-versitygw",
        key,
        vec![versitygw_image_name()],
        |names, to| program_image_builder(&[&program])?.write(names, to),
    )
}

/// Builds an image of programs with their shared libraries and with the CA certificates of this host, if it has any. The
/// first program is the entrypoint; it runs as a non-root user. The image is not cached, because programs under development
/// change often.
pub fn program_image(name: &str, programs: &[&Path], to: &Path) -> Result<ImageArchive> {
    let names = vec![qualified_name(name)];
    program_image_builder(programs)?.write(&names, to)?;
    Ok(ImageArchive {
        names,
        path: to.to_owned(),
    })
}

fn program_image_builder(programs: &[&Path]) -> Result<ImageBuilder> {
    let mut image = ImageBuilder::new(&[], "/");
    image.user("65532:65532");
    add_base_files(&mut image)?;
    for dir in ["usr/", "usr/local/", "usr/local/bin/"] {
        image.dir(dir, 0o755)?;
    }
    let mut libraries = Vec::new();
    let mut paths = Vec::new();
    for program in programs {
        let file = program
            .file_name()
            .and_then(|name| name.to_str())
            .with_context(|| format!("{} has no file name", program.display()))?;
        let image_path = format!("usr/local/bin/{file}");
        if paths.contains(&image_path) {
            bail!("two programs of the image have the name {file}");
        }
        image.program(&image_path, program)?;
        libraries.extend(etcd::libraries(program)?);
        paths.push(image_path);
    }
    let first = paths.first().context("the image has no program")?;
    image.entrypoint(&[&format!("/{first}")]);
    libraries.sort();
    libraries.dedup();
    for library in libraries {
        let image_path = library.display().to_string();
        image.program(image_path.trim_start_matches('/'), &library)?;
    }
    let certificates = Path::new(CA_CERTIFICATES);
    if certificates.exists() {
        for dir in ["etc/ssl/", "etc/ssl/certs/"] {
            image.dir(dir, 0o755)?;
        }
        image.file(CA_CERTIFICATES.trim_start_matches('/'), certificates)?;
    }
    Ok(image)
}

/// Builds an image of one program and imports it into every node; see [`load_programs`].
pub fn load_program(lab: &Lab, name: &str, program: &Path) -> Result<()> {
    load_programs(lab, name, &[program])
}

/// Builds an image of programs and imports it into every node; replaces an image with the same name.
pub fn load_programs(lab: &Lab, name: &str, programs: &[&Path]) -> Result<()> {
    // Tests are threads of one process and would otherwise use the same archive at the same time.
    static LOAD_LOCK: Mutex<()> = Mutex::new(());
    let _load_lock = LOAD_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let progress = Progress::start(&format!("Import {name} into the nodes"), "");
    let temporary = lab
        .dir()
        .join(format!("program-{}.tar", std::process::id()));
    let result = program_image(name, programs, &temporary).and_then(|archive| {
        save(lab, &archive)?;
        lab.nodes()
            .iter()
            .try_for_each(|node| import(lab, node, &archive))
    });
    // Best effort: `lab down` removes the file at the latest.
    let _ = std::fs::remove_file(temporary);
    result?;
    progress.finish();
    Ok(())
}

/// Imports the image of an etcd version into every node that lacks it.
pub fn load_etcd(lab: &Lab, version: EtcdVersion) -> Result<ImageArchive> {
    let archive = etcd_image(version)?;
    load_everywhere(lab, &format!("etcd {version}"), &archive)?;
    Ok(archive)
}

/// Imports the image of versitygw into every node that lacks it.
pub fn load_versitygw(lab: &Lab) -> Result<()> {
    load_everywhere(lab, "versitygw", &versitygw_image()?)
}

fn load_everywhere(lab: &Lab, title: &str, archive: &ImageArchive) -> Result<()> {
    let progress = Progress::start(&format!("Import {title} into the nodes"), "");
    save(lab, archive)?;
    for node in lab.nodes() {
        load(lab, node, std::slice::from_ref(archive))?;
    }
    progress.finish();
    Ok(())
}

/// Returns the images for a new node of this lab: the default images and those that were loaded into the lab.
pub fn archives(lab: &Lab) -> Result<Vec<ImageArchive>> {
    let mut archives = default_archives()?;
    let dir = archive_dir(lab);
    let entries = if dir.exists() {
        std::fs::read_dir(&dir)?.collect::<std::io::Result<Vec<_>>>()?
    } else {
        Vec::new()
    };
    for path in entries.into_iter().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "tar") {
            let names = std::fs::read_to_string(path.with_extension("names"))?;
            archives.push(ImageArchive {
                names: names.lines().map(str::to_owned).collect(),
                path,
            });
        }
    }
    Ok(archives)
}

/// Saves an image in the directory of the lab, for nodes that are added later; replaces an image with the same name.
fn save(lab: &Lab, archive: &ImageArchive) -> Result<()> {
    let dir = archive_dir(lab);
    std::fs::create_dir_all(&dir)?;
    let name = archive.names.first().context("the image has no name")?;
    let saved = dir.join(format!("{}.tar", name.replace(['/', ':'], "_")));
    crate::files::write(&saved.with_extension("names"), &archive.names.join("\n"))?;
    // A hard link, or a copy, stays valid when the cache is removed.
    crate::files::link(&archive.path, &saved)
}

fn archive_dir(lab: &Lab) -> PathBuf {
    lab.dir().join("images")
}

/// Returns the full name of an image: `evenkeel-operator:1` becomes `docker.io/library/evenkeel-operator:1`.
fn qualified_name(name: &str) -> String {
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

fn busybox() -> Result<ImageArchive> {
    let program = debian::runtime()?.join("bin/busybox");
    let program = if program.exists() {
        program
    } else {
        debian::runtime()?.join("usr/bin/busybox")
    };
    let key = CacheKey::default()
        .text(LAYOUT_VERSION)
        .text(&program.display().to_string());
    cached_archive(
        "image-busybox",
        key,
        vec![BUSYBOX_IMAGE.to_owned()],
        |names, to| {
            let mut image = ImageBuilder::new(&["sh"], "/");
            add_base_files(&mut image)?;
            image.dir("bin/", 0o755)?;
            image.program("bin/busybox", &program)?;
            for applet in Cmd::new(&program)
                .arg("--list")
                .run()?
                .lines()
                .filter(|applet| *applet != "busybox")
            {
                image.symlink(&format!("bin/{applet}"), "busybox")?;
            }
            image.write(names, to)
        },
    )
}

/// Returns the pause image, compiled from `pause.c` in the sources of Kubernetes.
fn pause() -> Result<ImageArchive> {
    let key = CacheKey::default().text(LAYOUT_VERSION).text(kube::VERSION);
    cached_archive(
        "image-pause",
        key,
        vec![PAUSE_IMAGE.to_owned()],
        |names, to| {
            let source = kube::source("build/pause/linux/pause.c")?;
            let program = to.with_extension("program");
            Cmd::new("cc")
                .args(["-Os", "-Wall", "-static", "-s"])
                .arg(format!("-DVERSION={}", kube::VERSION))
                .arg("-o")
                .arg(&program)
                .arg(source)
                .run()?;
            let mut image = ImageBuilder::new(&[], "/");
            image.entrypoint(&["/pause"]);
            image.user("65535:65535");
            image.program("pause", &program)?;
            std::fs::remove_file(program)?;
            image.write(names, to)
        },
    )
}

/// Adds the base files of a distroless image.
fn add_base_files(image: &mut ImageBuilder) -> Result<()> {
    for dir in ["etc/", "home/", "root/"] {
        image.dir(dir, 0o755)?;
    }
    image.dir("tmp/", 0o1777)?;
    let passwd = "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n\
                  nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n";
    image.text("etc/passwd", passwd)?;
    image.text(
        "etc/group",
        "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n",
    )?;
    image.text("etc/nsswitch.conf", "hosts: files dns\n")
}

/// Returns the cached image archive; calls `write` to create it when it is missing.
fn cached_archive(
    name: &str,
    key: CacheKey,
    names: Vec<String>,
    write: impl FnOnce(&[String], &Path) -> Result<()>,
) -> Result<ImageArchive> {
    let key = key.text(&names.join(" "));
    let dir = cache::get_or_build(name, key, |dir| write(&names, &dir.join("image.tar")))?;
    Ok(ImageArchive {
        names,
        path: dir.join("image.tar"),
    })
}

/// Imports the images that a node lacks; an import takes one to two seconds.
pub fn load(lab: &Lab, node: &Node, archives: &[ImageArchive]) -> Result<()> {
    let present = ctr(lab, node)?.args(["images", "list", "-q"]).run()?;
    for archive in archives {
        if !archive
            .names
            .iter()
            .all(|name| present.lines().any(|line| line == name))
        {
            import(lab, node, archive)?;
            tag_with_digest(lab, node, archive)?;
        }
    }
    Ok(())
}

/// Imports an image into a node; replaces an image with the same name.
pub fn import(lab: &Lab, node: &Node, archive: &ImageArchive) -> Result<()> {
    ctr(lab, node)?
        .args(["images", "import", "--no-unpack=false"])
        .arg(&archive.path)
        .run()
        .with_context(|| {
            format!(
                "failed to import image {} into node {}",
                archive.names.join(", "),
                node.name
            )
        })?;
    Ok(())
}

/// Adds the name with the digest to an image, as for a pulled image: `etcd@sha256:…` in addition to `etcd:v3.6.16`. This
/// uses only the first name, since a kubelet reports at most five names per image.
fn tag_with_digest(lab: &Lab, node: &Node, archive: &ImageArchive) -> Result<()> {
    let name = archive.names.first().context("the image has no name")?;
    let output = ctr(lab, node)?
        .args(["images", "list", &format!("name=={name}")])
        .run()?;
    let digest = output
        .split_whitespace()
        .find(|word| word.starts_with("sha256:"));
    let digest =
        digest.with_context(|| format!("node {} does not list the digest of {name}", node.name))?;
    let name_with_digest = format!("{}@{digest}", without_tag(name));
    ctr(lab, node)?
        .args(["images", "tag", "--force", name, &name_with_digest])
        .run()?;
    Ok(())
}

/// Returns the name of an image without its tag; keeps the port of a registry.
fn without_tag(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

fn ctr(lab: &Lab, node: &Node) -> Result<Cmd> {
    let socket = Machine::of(lab, &node.name)?.path_inside(node::CONTAINERD_SOCKET)?;
    Ok(Cmd::new(lab.programs().join("ctr"))
        .arg("--address")
        .arg(&socket)
        .args(["--namespace", "k8s.io"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the paths in the layer of an image, and its config.
    fn contents(archive: &ImageArchive) -> (Vec<String>, serde_json::Value) {
        let (mut paths, mut config) = (Vec::new(), serde_json::Value::Null);
        let mut archive = tar::Archive::new(std::fs::File::open(&archive.path).unwrap());
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            if name == "layer.tar" {
                let mut layer = tar::Archive::new(entry);
                for entry in layer.entries().unwrap() {
                    paths.push(entry.unwrap().path().unwrap().display().to_string());
                }
            } else if name != "manifest.json" {
                config = serde_json::from_reader(entry).unwrap();
            }
        }
        (paths, config)
    }

    #[test]
    fn an_image_has_all_programs_and_starts_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        for program in [&first, &second] {
            std::fs::write(program, "#!/bin/sh\n").unwrap();
        }
        let archive = program_image("pair:1", &[&first, &second], &dir.path().join("image.tar"));
        let (paths, config) = contents(&archive.unwrap());
        for path in ["usr/local/bin/first", "usr/local/bin/second"] {
            assert!(paths.iter().any(|it| it == path), "{path}: {paths:?}");
        }
        assert_eq!(
            config["config"]["Entrypoint"],
            serde_json::json!(["/usr/local/bin/first"])
        );
        let has_certificates = paths
            .iter()
            .any(|it| it == "etc/ssl/certs/ca-certificates.crt");
        assert_eq!(has_certificates, Path::new(CA_CERTIFICATES).exists());
    }

    #[test]
    fn an_image_without_programs_or_with_two_of_one_name_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("image.tar");
        let program = dir.path().join("program");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        assert!(program_image("none:1", &[], &to).is_err());
        let error = program_image("twice:1", &[&program, &program], &to).unwrap_err();
        assert!(error.to_string().contains("program"), "{error}");
    }

    #[test]
    fn a_short_name_is_completed() {
        assert_eq!(
            qualified_name("evenkeel-operator:1"),
            "docker.io/library/evenkeel-operator:1"
        );
        assert_eq!(qualified_name("team/app:1"), "docker.io/team/app:1");
        assert_eq!(
            qualified_name("localhost:5000/thing"),
            "localhost:5000/thing"
        );
    }

    #[test]
    fn a_tag_is_removed_and_a_port_is_kept() {
        assert_eq!(
            without_tag("gcr.io/etcd-development/etcd:v3.6.16"),
            "gcr.io/etcd-development/etcd"
        );
        assert_eq!(without_tag("localhost:5000/thing"), "localhost:5000/thing");
        assert_eq!(
            without_tag("localhost:5000/thing:1"),
            "localhost:5000/thing"
        );
    }
}
