//! `kubectl` with the operator's service account, through a proxy.

use std::process::{Child, Stdio};

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::{ACCOUNT, grant, kubeconfig_for, token};
use evenkeel_e2e::proxy::{Proxy, Write};
use evenkeel_lab::command::Cmd;
use serde_json::json;
use tempfile::TempDir;

/// A proxy, and a kubeconfig with its address.
pub(crate) struct ProxiedKubectl<'a> {
    pub(crate) proxy: Proxy,
    story: &'a Story,
    dir: TempDir,
}

impl<'a> ProxiedKubectl<'a> {
    pub(crate) fn new(story: &'a Story) -> Self {
        grant(story);
        // Permissions that these stories need and the operator does not have.
        story.kubectl(&[
            "create",
            "role",
            "more",
            "--verb=delete",
            "--resource=configmaps",
        ]);
        let account = format!("--serviceaccount={}:{ACCOUNT}", story.namespace());
        story.kubectl(&["create", "rolebinding", "more", "--role=more", &account]);
        let who = format!("--as=system:serviceaccount:{}:{ACCOUNT}", story.namespace());
        story.eventually("the API server uses these permissions", || {
            let may = |verb: &str| {
                story
                    .try_kubectl(&["auth", "can-i", verb, "configmaps", &who])
                    .is_ok()
            };
            may("create") && may("delete")
        });
        let token = token(story);
        let proxy = Proxy::start_as(story.lab(), &token);
        let dir = tempfile::tempdir().unwrap();
        let config = kubeconfig_for(&proxy.url(), &token, story.namespace());
        std::fs::write(dir.path().join("config"), config.to_string()).unwrap();
        Self { proxy, story, dir }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Cmd {
        let command = Cmd::new(self.story.lab().programs().join("kubectl")).args(args);
        let command = command.env("KUBECONFIG", self.dir.path().join("config"));
        command
            .arg("--cache-dir")
            .arg(self.dir.path().join("cache"))
    }

    /// Runs kubectl to its end.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        self.command(args)
            .run()
            .map_err(|error| format!("{error:#}"))
    }

    /// Creates a ConfigMap from a file, as JSON: `kubectl create configmap` sends protobuf.
    pub(crate) fn create(&self, name: &str) -> Result<String, String> {
        self.kubectl(&[
            "create",
            "--validate=false",
            "--filename",
            &self.manifest(name),
        ])
    }

    /// Starts to create a ConfigMap.
    pub(crate) fn start_create(&self, name: &str) -> Running {
        self.start(&[
            "create",
            "--validate=false",
            "--filename",
            &self.manifest(name),
        ])
    }

    fn manifest(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        std::fs::write(&path, object.to_string()).unwrap();
        path.to_string_lossy().into_owned()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let quiet = |command: &mut std::process::Command| {
            _ = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
        };
        Running(self.command(args).spawn(quiet).unwrap())
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.story.try_kubectl(&["get", "configmap", name]).is_ok()
    }
}

/// A process, killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn succeeds(mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn creates(name: &'static str) -> impl Fn(&Write) -> bool {
    move |write| write.verb == "POST" && write.is_to("configmaps") && write.name() == Some(name)
}
