//! The etcd images: available under the names that clusters pull, with the layout of the official images.

use evenkeel_e2e::{RESTRICTED, Story};
use evenkeel_lab::parts::etcd::EtcdVersion;
use evenkeel_lab::parts::images::{etcd_image, load};
use serde_json::json;

use crate::pods;

/// Returns the names of a version, independently of the code that assigns them.
fn names(version: &str) -> [String; 3] {
    [
        format!("gcr.io/etcd-development/etcd:v{version}"),
        format!("quay.io/coreos/etcd:v{version}"),
        format!("registry.k8s.io/etcd:{version}-0"),
    ]
}

/// Returns a pod with an image that must be on the node already; `spec` and `container` as for [`pods::pod`].
fn pod(name: &str, image: &str, spec: &str, container: &str) -> String {
    let (spec, container) = (
        spec.replace('\n', "\n  "),
        container.replace('\n', "\n      "),
    );
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  {spec}
  containers:
    - name: main
      image: {image}
      imagePullPolicy: Never
      {container}
      {RESTRICTED}
---
"
    )
}

/// Runs commands in images on nodes, each once in a pod of its own.
struct OneShotPods<'a> {
    story: &'a Story,
    pods: Vec<(String, String)>,
}

impl<'a> OneShotPods<'a> {
    fn new(story: &'a Story) -> Self {
        Self {
            story,
            pods: Vec::new(),
        }
    }

    fn run(&mut self, node: &str, image: &str, command: &[&str], says: &str) {
        let name = format!("once-{}", self.pods.len());
        let spec = format!("restartPolicy: Never\n{}", pods::on(node));
        self.story.apply(&pod(
            &name,
            image,
            &spec,
            &format!("command: {}", json!(command)),
        ));
        self.pods.push((name, says.to_owned()));
    }

    /// Waits until each pod has succeeded, and compares its output.
    fn check(self) {
        for (name, says) in self.pods {
            self.story.eventually(&format!("{name} has run"), || {
                self.story.field(&["pod", &name], ".status.phase") == "Succeeded"
            });
            let output = self.story.kubectl(&["logs", &name]);
            assert!(
                output.contains(&says),
                "{name} printed {output:?}, expected {says:?}"
            );
        }
    }
}

#[test]
fn every_node_has_etcd_under_each_public_image_name() {
    let story = Story::begin("images-names");
    let mut once = OneShotPods::new(&story);
    for node in story.lab().nodes() {
        for name in names("3.6.16") {
            once.run(
                &node.name,
                &name,
                &["/usr/local/bin/etcd", "--version"],
                "etcd Version: 3.6.16\n",
            );
        }
    }
    assert_eq!(once.pods.len(), 3 * story.lab().nodes().len());
    once.check();
}

/// Returns a pod that runs the image's own command, and can write only to its data directory.
fn etcd(image: &str) -> String {
    let spec = "securityContext: {fsGroup: 2000}\nvolumes: [{name: data, emptyDir: {}}]";
    let mounts = "volumeMounts: [{name: data, mountPath: /var/lib/etcd}]";
    pod("etcd", image, spec, mounts).replace(
        "securityContext: {allow",
        "securityContext: {readOnlyRootFilesystem: true, allow",
    )
}

#[test]
fn etcd_runs_with_the_images_own_command_as_a_restricted_pod() {
    let story = Story::begin("images-runs");
    story.apply(&etcd(&names("3.6.16")[2]));
    pods::wait_for(&story, &["etcd"]);
    let context = story.get(&["pod", "etcd"])["spec"]["containers"][0]["securityContext"].clone();
    assert_eq!(
        (&context["readOnlyRootFilesystem"], &context["runAsNonRoot"]),
        (&json!(true), &json!(true))
    );
    story.eventually("etcd is healthy", || {
        story
            .try_kubectl(&["exec", "etcd", "--", "etcdctl", "endpoint", "health"])
            .is_ok()
    });
    story.kubectl(&["exec", "etcd", "--", "etcdctl", "put", "/keel", "even"]);
    let got = story.kubectl(&[
        "exec",
        "etcd",
        "--",
        "etcdctl",
        "get",
        "/keel",
        "--print-value-only",
    ]);
    assert_eq!(got.trim(), "even");
    let leader = story.kubectl(&["exec", "etcd", "--", "etcdctl", "endpoint", "status"]);
    assert!(leader.contains("3.6.16"), "{leader}");
    assert_eq!(pods::restarts(&story, "etcd"), 0);
}

#[test]
fn the_image_has_its_three_programs_and_no_shell() {
    let story = Story::begin("images-shape");
    story.apply(&etcd(&names("3.6.16")[0]));
    pods::wait_for(&story, &["etcd"]);
    let exec = |words: &[&str]| {
        let mut args = vec!["exec", "etcd", "--"];
        args.extend(words);
        story.try_kubectl(&args)
    };
    for (program, argument, says) in [
        ("/usr/local/bin/etcd", "--version", "etcd Version: 3.6.16"),
        (
            "/usr/local/bin/etcdctl",
            "version",
            "etcdctl version: 3.6.16",
        ),
        (
            "/usr/local/bin/etcdutl",
            "version",
            "etcdutl version: 3.6.16",
        ),
    ] {
        let output = exec(&[program, argument]).unwrap();
        assert!(output.contains(says), "{output}");
    }
    for absent in ["sh", "/bin/sh", "/bin/bash", "ls", "cat", "/busybox/sh"] {
        let output = exec(&[absent]).unwrap_err();
        assert!(
            output.contains("executable file not found") || output.contains("no such file"),
            "{absent}: {output}"
        );
    }
}

#[test]
fn every_other_version_can_be_built_and_reports_its_version() {
    let story = Story::begin("images-versions");
    let mut once = OneShotPods::new(&story);
    for text in ["3.5.16", "3.5.30", "3.5.35", "3.7.3"] {
        let version: EtcdVersion = text.parse().unwrap();
        let archive = match etcd_image(version) {
            Ok(archive) => archive,
            // Only Debian has this version, and removes it when it packages the next one.
            Err(error) if text == "3.5.30" => {
                let why = format!("{error:#}").replace('\n', " ");
                eprintln!("\nNOT RUN etcd 3.5.30 is no longer available: {why}");
                continue;
            }
            Err(error) => panic!("{error:#}"),
        };
        for node in story.lab().nodes() {
            load(story.lab(), node, std::slice::from_ref(&archive)).unwrap();
        }
        let node = &story.lab().nodes()[0].name;
        for name in names(text) {
            once.run(
                node,
                &name,
                &["/usr/local/bin/etcd", "--version"],
                &format!("etcd Version: {text}\n"),
            );
        }
        let name = &names(text)[0];
        once.run(
            node,
            name,
            &["/usr/local/bin/etcdctl", "version"],
            &format!("etcdctl version: {text}\n"),
        );
        once.run(
            node,
            name,
            &["/usr/local/bin/etcdutl", "version"],
            &format!("etcdutl version: {text}\n"),
        );
    }
    once.check();
}
