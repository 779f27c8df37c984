//! The images a lab has: `pause` for every pod, `busybox` for tests, and etcd as upstream ships it: distroless, so no
//! shell, with its programs in `/usr/local/bin`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::cache::{self, Key};
use crate::command::Cmd;
use crate::node::PAUSE_IMAGE;
use crate::parts::etcd::{self, PROGRAMS, Version};
use crate::parts::image::Image;
use crate::parts::{debian, kube};
use crate::progress::Stage;
use crate::state::{Lab, Node};
use crate::{machine::Machine, node};

/// Bumped when images are made differently.
const RECIPE: &str = "1";
/// The image tests and the README's tour run: a shell, a web server and tools.
pub const BUSYBOX_IMAGE: &str = "docker.io/library/busybox:stable";

/// An image on this machine, to be loaded into nodes.
#[derive(Clone, Debug)]
pub struct Archive {
    /// The names it has.
    pub names: Vec<String>,
    /// The archive.
    pub path: PathBuf,
}

/// The images every node has.
pub fn basic() -> Result<Vec<Archive>> {
    Ok(vec![pause()?, busybox()?, etcd_image(Version::DEFAULT)?])
}

/// The image of an etcd version, under the names by which people's clusters pull it.
pub fn etcd_image(version: Version) -> Result<Archive> {
    let names = vec![
        format!("gcr.io/etcd-development/etcd:v{version}"),
        format!("quay.io/coreos/etcd:v{version}"),
        format!("registry.k8s.io/etcd:{version}-0"),
    ];
    let programs = etcd::get(version)?;
    let key = Key::default()
        .text(RECIPE)
        .text(&programs.display().to_string());
    make(&format!("image-etcd-{version}"), key, names, |names, to| {
        let mut image = Image::new(&["/usr/local/bin/etcd"], "/var/lib/etcd/");
        image.ports(&["2379/tcp", "2380/tcp"]);
        distroless(&mut image)?;
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
            let inside = library.display().to_string();
            image.program(inside.trim_start_matches('/'), &library)?;
        }
        image.write(names, to)
    })
}

/// An image of one program of this machine, with the libraries it needs and nothing else. It runs as an ordinary user. Not
/// kept in the cache: programs under development change all the time.
pub fn program_image(name: &str, program: &Path, to: &Path) -> Result<Archive> {
    let file = program
        .file_name()
        .and_then(|name| name.to_str())
        .context("a program has a name")?;
    let inside = format!("usr/local/bin/{file}");
    let mut image = Image::new(&[], "/");
    image.entrypoint(&[&format!("/{inside}")]);
    image.user("65532:65532");
    distroless(&mut image)?;
    for dir in ["usr/", "usr/local/", "usr/local/bin/"] {
        image.dir(dir, 0o755)?;
    }
    image.program(&inside, program)?;
    for library in etcd::libraries(program)? {
        let inside = library.display().to_string();
        image.program(inside.trim_start_matches('/'), &library)?;
    }
    let names = vec![qualified(name)];
    image.write(&names, to)?;
    Ok(Archive {
        names,
        path: to.to_owned(),
    })
}

/// Makes an image of a program, and loads it into every node, in the place of one of the same name.
pub fn load_program(lab: &Lab, name: &str, program: &Path) -> Result<()> {
    // Stories are threads of one process: they would write, import and remove the same file.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let stage = Stage::begin(&format!("{name} into the nodes"), "");
    let made = lab
        .dir()
        .join(format!("program-{}.tar", std::process::id()));
    let loaded = program_image(name, program, &made).and_then(|archive| {
        keep(lab, &archive)?;
        lab.nodes()
            .iter()
            .try_for_each(|node| import(lab, node, &archive))
    });
    // Best effort: it goes with the lab at the latest.
    let _ = std::fs::remove_file(made);
    loaded?;
    stage.done();
    Ok(())
}

/// Loads the image of an etcd version into every node that lacks it.
pub fn load_etcd(lab: &Lab, version: Version) -> Result<Archive> {
    let archive = etcd_image(version)?;
    let stage = Stage::begin(&format!("etcd {version} into the nodes"), "");
    keep(lab, &archive)?;
    for node in lab.nodes() {
        load(lab, node, std::slice::from_ref(&archive))?;
    }
    stage.done();
    Ok(archive)
}

/// The images that nodes of this lab have: those of every lab, and those that were loaded since, for nodes that come later.
pub fn of(lab: &Lab) -> Result<Vec<Archive>> {
    let mut archives = basic()?;
    let dir = kept_in(lab);
    let kept = if dir.exists() {
        std::fs::read_dir(&dir)?.collect::<std::io::Result<Vec<_>>>()?
    } else {
        Vec::new()
    };
    for path in kept.into_iter().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "tar") {
            let names = std::fs::read_to_string(path.with_extension("names"))?;
            archives.push(Archive {
                names: names.lines().map(str::to_owned).collect(),
                path,
            });
        }
    }
    Ok(archives)
}

/// Keeps an image with the lab, in the place of one of the same name.
fn keep(lab: &Lab, archive: &Archive) -> Result<()> {
    let dir = kept_in(lab);
    std::fs::create_dir_all(&dir)?;
    let name = archive.names.first().context("an image has a name")?;
    let kept = dir.join(format!("{}.tar", name.replace(['/', ':'], "_")));
    crate::files::write(&kept.with_extension("names"), &archive.names.join("\n"))?;
    let _ = std::fs::remove_file(&kept);
    // A link where that is possible; a cleaned cache takes nothing from it.
    if std::fs::hard_link(&archive.path, &kept).is_err() {
        std::fs::copy(&archive.path, &kept)
            .with_context(|| format!("cannot keep {}", kept.display()))?;
    }
    Ok(())
}

fn kept_in(lab: &Lab) -> PathBuf {
    lab.dir().join("images")
}

/// An image's name as containerd keeps it: `evenkeel-operator:1` is `docker.io/library/evenkeel-operator:1`.
fn qualified(name: &str) -> String {
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

fn busybox() -> Result<Archive> {
    let program = debian::runtime()?.join("bin/busybox");
    let program = if program.exists() {
        program
    } else {
        debian::runtime()?.join("usr/bin/busybox")
    };
    let key = Key::default()
        .text(RECIPE)
        .text(&program.display().to_string());
    make(
        "image-busybox",
        key,
        vec![BUSYBOX_IMAGE.to_owned()],
        |names, to| {
            let mut image = Image::new(&["sh"], "/");
            distroless(&mut image)?;
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

/// The genuine one, compiled from the source that Kubernetes' module carries.
fn pause() -> Result<Archive> {
    let key = Key::default().text(RECIPE).text(kube::VERSION);
    make(
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
            let mut image = Image::new(&[], "/");
            image.entrypoint(&["/pause"]);
            image.user("65535:65535");
            image.program("pause", &program)?;
            std::fs::remove_file(program)?;
            image.write(names, to)
        },
    )
}

/// What a distroless image has beside its programs.
fn distroless(image: &mut Image) -> Result<()> {
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

fn make(
    name: &str,
    key: Key,
    names: Vec<String>,
    write: impl FnOnce(&[String], &Path) -> Result<()>,
) -> Result<Archive> {
    let key = key.text(&names.join(" "));
    let dir = cache::get(name, key, |dir| write(&names, &dir.join("image.tar")))?;
    Ok(Archive {
        names,
        path: dir.join("image.tar"),
    })
}

/// Loads images into a node, those it lacks only: importing takes a second or two each.
pub fn load(lab: &Lab, node: &Node, archives: &[Archive]) -> Result<()> {
    let present = ctr(lab, node)?.args(["images", "list", "-q"]).run()?;
    for archive in archives {
        if !archive
            .names
            .iter()
            .all(|name| present.lines().any(|line| line == name))
        {
            import(lab, node, archive)?;
            name_by_digest(lab, node, archive)?;
        }
    }
    Ok(())
}

/// Loads an image into a node, in the place of one of the same name.
pub fn import(lab: &Lab, node: &Node, archive: &Archive) -> Result<()> {
    ctr(lab, node)?
        .args(["images", "import", "--no-unpack=false"])
        .arg(&archive.path)
        .run()
        .with_context(|| {
            format!(
                "cannot load {} into {}",
                archive.names.join(", "),
                node.name
            )
        })?;
    Ok(())
}

/// Has a node know an image by its digest, too, as it would one that it pulled: `etcd@sha256:…` beside `etcd:v3.6.16`. Under its first
/// name alone: kubelets tell of five names at most.
fn name_by_digest(lab: &Lab, node: &Node, archive: &Archive) -> Result<()> {
    let name = archive.names.first().context("an image has a name")?;
    let listed = ctr(lab, node)?
        .args(["images", "list", &format!("name=={name}")])
        .run()?;
    let digest = listed
        .split_whitespace()
        .find(|word| word.starts_with("sha256:"));
    let digest =
        digest.with_context(|| format!("{} does not tell the digest of {name}", node.name))?;
    let named = format!("{}@{digest}", untagged(name));
    ctr(lab, node)?
        .args(["images", "tag", "--force", name, &named])
        .run()?;
    Ok(())
}

/// An image's name without its tag; a port is none.
fn untagged(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((untagged, tag)) if !tag.contains('/') => untagged,
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

    #[test]
    fn short_names_are_those_of_the_library() {
        assert_eq!(
            qualified("evenkeel-operator:1"),
            "docker.io/library/evenkeel-operator:1"
        );
        assert_eq!(qualified("someone/thing:1"), "docker.io/someone/thing:1");
        assert_eq!(qualified("localhost:5000/thing"), "localhost:5000/thing");
    }

    #[test]
    fn a_tag_is_left_out_and_a_port_is_not() {
        assert_eq!(
            untagged("gcr.io/etcd-development/etcd:v3.6.16"),
            "gcr.io/etcd-development/etcd"
        );
        assert_eq!(untagged("localhost:5000/thing"), "localhost:5000/thing");
        assert_eq!(untagged("localhost:5000/thing:1"), "localhost:5000/thing");
    }
}
