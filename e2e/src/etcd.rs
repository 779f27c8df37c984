//! An etcd cluster of a story, used as the docs describe: through its resource, the Service `<name>-etcd-client` and the
//! Secret `<name>-etcd-client-tls`.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_history::{ClientTls, WorkloadConfig, WorkloadTarget};
use evenkeel_lab::command::Cmd;
use serde_json::{Value, json};

use crate::workload::CheckedWorkload;
use crate::{Story, api};

/// The client port of etcd.
const PORT: u16 = 2379;

/// Returns the manifest of a cluster; `storage` is a size (`1Gi`), or `None` for the default.
pub fn manifest(name: &str, members: u32, version: &str, storage: Option<&str>) -> Value {
    let mut spec = json!({"version": version, "members": members});
    if let Some(size) = storage {
        spec["storage"] = json!({"size": size});
    }
    json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": {"name": name}, "spec": spec})
}

/// The pod of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPod {
    /// The name of the pod and of the member.
    pub name: String,
    /// The uid; another uid means another pod.
    pub uid: String,
    /// The node; empty if the pod is not scheduled.
    pub node: String,
    /// The pod's address; empty if it has none yet.
    pub ip: String,
    /// Whether the pod is Ready.
    pub ready: bool,
    /// The PVC of the data directory; empty for ephemeral data.
    pub claim: String,
}

/// A member in etcd's member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member ID.
    pub id: u64,
    /// The name; empty before the member has started.
    pub name: String,
    /// The peer URLs.
    pub peer_urls: Vec<String>,
    /// Whether the member is a learner.
    pub learner: bool,
}

/// A cluster in a story's namespace.
pub struct Cluster<'a> {
    story: &'a Story,
    name: String,
}

impl<'a> Cluster<'a> {
    /// Applies the resource with this spec, in YAML or JSON.
    pub fn apply(story: &'a Story, name: &str, spec: &str) -> Self {
        let cluster = Self::named(story, name);
        cluster.set(spec);
        cluster
    }

    /// Creates a cluster with exactly this spec.
    pub fn apply_verbatim(story: &'a Story, name: &str, spec: &str) -> Self {
        let cluster = Self::named(story, name);
        cluster.set_verbatim(spec);
        cluster
    }

    /// Returns a handle for a cluster that exists or will exist.
    pub fn named(story: &'a Story, name: &str) -> Self {
        Self {
            story,
            name: name.to_owned(),
        }
    }

    /// The name of the resource.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies the resource with another spec. Adds a small volume size if the spec has no storage: the lab provides no more
    /// space than the machine has, and many stories run at the same time.
    pub fn set(&self, spec: &str) {
        let has_storage =
            spec.starts_with('{') || spec.lines().any(|line| line.starts_with("storage:"));
        let small = if has_storage {
            ""
        } else {
            "\nstorage: {size: 1Gi}"
        };
        self.set_verbatim(&format!("{}{small}", spec.trim_end()));
    }

    fn set_verbatim(&self, spec: &str) {
        let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
        let head = "apiVersion: evenkeel.dev/v1alpha1\nkind: EtcdCluster\n";
        self.story.apply(&format!(
            "{head}metadata: {{name: {}}}\nspec:\n{spec}",
            self.name
        ));
    }

    /// Changes parts of the spec by a merge patch.
    pub fn patch(&self, spec: &Value) {
        let patch = json!({"spec": spec}).to_string();
        self.story
            .kubectl(&["patch", &self.resource(), "--type=merge", "--patch", &patch]);
    }

    fn resource(&self) -> String {
        format!("etcd/{}", self.name)
    }

    /// Waits for the condition Ready with `kubectl wait`, as users do; panics on timeout.
    pub fn wait_ready(&self, limit: Duration) {
        let limit = format!("--timeout={}s", limit.as_secs());
        let waited =
            self.story
                .try_kubectl(&["wait", "--for=condition=Ready", &self.resource(), &limit]);
        if let Err(output) = waited {
            panic!("{} is not Ready: {output}\n{:#}", self.name, self.status());
        }
    }

    /// Returns the spec.
    pub fn spec(&self) -> Value {
        self.object()["spec"].clone()
    }

    /// Returns the status; null if the operator has not written one.
    pub fn status(&self) -> Value {
        self.object()["status"].clone()
    }

    fn object(&self) -> Value {
        let there = self.story.read(
            "/apis/evenkeel.dev/v1alpha1",
            &format!("etcdclusters/{}", self.name),
        );
        there.unwrap_or_else(|| panic!("there is no EtcdCluster {}", self.name))
    }

    /// Returns the status and the reason of a condition; empty strings if the condition does not exist.
    pub fn condition(&self, kind: &str) -> (String, String) {
        let found = self.find_condition(kind);
        (text(&found, "/status"), text(&found, "/reason"))
    }

    /// Returns the message of a condition; empty if the condition does not exist.
    pub fn condition_message(&self, kind: &str) -> String {
        text(&self.find_condition(kind), "/message")
    }

    fn find_condition(&self, kind: &str) -> Value {
        let status = self.status();
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter()
            .find(|condition| condition["type"] == kind)
            .unwrap_or_default()
    }

    /// Returns the pods of the members, ordered by name.
    pub fn pods(&self) -> Vec<MemberPod> {
        let path = pods_path(self.story.namespace(), &self.name);
        let list = api::get(self.story.lab(), &path).unwrap_or_else(|error| panic!("{error}"));
        pods(&list.unwrap_or_default())
    }

    /// Returns the pod with this name.
    pub fn pod(&self, name: &str) -> MemberPod {
        let found = self.pods().into_iter().find(|pod| pod.name == name);
        found.unwrap_or_else(|| panic!("{} has no pod {name}", self.name))
    }

    /// Returns the host name that clients use and that server certificates contain.
    pub fn host(&self) -> String {
        format!("{}-etcd-client.{}.svc", self.name, self.story.namespace())
    }

    /// Returns the address of the client Service.
    pub fn service_ip(&self) -> String {
        let service = self
            .story
            .read("/api/v1", &format!("services/{}-etcd-client", self.name));
        text(&service.unwrap_or_default(), "/spec/clusterIP")
    }

    /// Returns the client certificate, its key and the CA certificate.
    pub fn client_tls(&self) -> ClientTls {
        let secret = self
            .story
            .read("/api/v1", &format!("secrets/{}-etcd-client-tls", self.name));
        let secret = secret.unwrap_or_default();
        let part = |key: &str| {
            let text = secret["data"][key].as_str();
            let text = text.unwrap_or_else(|| panic!("{}-etcd-client-tls has no {key}", self.name));
            STANDARD.decode(text).expect("a Secret's data is base64")
        };
        ClientTls {
            ca: part("ca.crt"),
            cert: part("tls.crt"),
            key: part("tls.key"),
            server_name: Some(self.host()),
        }
    }

    /// Returns the endpoints for a workload: each member, and the Service.
    pub fn target(&self) -> WorkloadTarget {
        let service = vec![url(&self.service_ip())];
        WorkloadTarget {
            members: endpoints(&self.pods()),
            service,
            tls: Some(self.client_tls()),
        }
    }

    /// Starts clients with 50 operations a second, and follows the members. A higher rate would only make clients wait longer: many
    /// stories run at the same time.
    pub fn workload(&self) -> CheckedWorkload {
        self.workload_with(WorkloadConfig {
            operations_per_second: 50.0,
            ..WorkloadConfig::default()
        })
    }

    /// Starts clients with another configuration, and follows the members.
    pub fn workload_with(&self, config: WorkloadConfig) -> CheckedWorkload {
        let (lab, path) = (
            self.story.lab().clone(),
            pods_path(self.story.namespace(), &self.name),
        );
        // No retries: the follower polls anyway, and its end must not wait for an API server that is down.
        let members = move || {
            Some(endpoints(&pods(
                &api::get_once(&lab, &path).ok()?.unwrap_or_default(),
            )))
        };
        CheckedWorkload::start(
            &self.name,
            config,
            self.target(),
            self.story.lab().patience(),
            members,
        )
    }

    /// Runs `etcdctl` through the Service with the client certificate; it must succeed.
    pub fn etcdctl(&self, args: &[&str]) -> String {
        self.try_etcdctl(args)
            .unwrap_or_else(|output| panic!("{output}"))
    }

    /// Runs `etcdctl` through the Service; returns its output, or its error.
    pub fn try_etcdctl(&self, args: &[&str]) -> Result<String, String> {
        self.etcdctl_at(&self.service_ip(), args)
    }

    /// Runs `etcdctl` at one address, for example of a member, with the host name that the certificates contain.
    pub fn etcdctl_at(&self, ip: &str, args: &[&str]) -> Result<String, String> {
        let tls = self.client_tls();
        let dir = tempfile::tempdir().expect("a directory for the certificates");
        let file = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("certificates can be written");
            path
        };
        let host = self.host();
        let hosts = file(
            "hosts",
            format!("127.0.0.1 localhost\n{ip} {host}\n").as_bytes(),
        );
        let flags = [
            ("--cacert", file("ca.crt", &tls.ca)),
            ("--cert", file("tls.crt", &tls.cert)),
            ("--key", file("tls.key", &tls.key)),
        ];
        let mut command = with_hosts(&hosts, &self.story.lab().programs().join("etcdctl"));
        for (flag, path) in &flags {
            command = command.arg(flag).arg(path);
        }
        let command = command.args([
            "--endpoints",
            &format!("https://{host}:{PORT}"),
            "--command-timeout",
            "10s",
        ]);
        command
            .args(args)
            .run()
            .map_err(|error| format!("{error:#}"))
    }

    /// Returns the member list that etcd reports through the Service.
    pub fn member_list(&self) -> Vec<Member> {
        let mut printed = None;
        // The leader may have changed just now.
        self.story
            .eventually(&format!("{} reports its member list", self.name), || {
                printed = self
                    .try_etcdctl(&["member", "list", "--write-out=json"])
                    .ok();
                printed.is_some()
            });
        members(&printed.unwrap_or_default())
    }

    /// Waits until all members have the same data; no client may be writing.
    pub fn wait_same_data(&self) {
        self.story.eventually(
            &format!("all members of {} have the same data", self.name),
            || {
                let hash = |pod: &MemberPod| {
                    let output = self
                        .etcdctl_at(&pod.ip, &["endpoint", "hashkv", "--write-out=json"])
                        .ok()?;
                    let output: Value = serde_json::from_str(&output).ok()?;
                    // The revision is compared too: members that stopped at different revisions differ.
                    let [hash, revision] =
                        ["hash", "header/revision"].map(|field| format!("/0/HashKV/{field}"));
                    Some((
                        output.pointer(&hash)?.clone(),
                        output.pointer(&revision)?.clone(),
                    ))
                };
                let hashes: Vec<_> = self.pods().iter().map(hash).collect();
                !hashes.is_empty()
                    && hashes
                        .iter()
                        .all(|one| one.is_some() && Some(one) == hashes.first())
            },
        );
    }
}

fn url(ip: &str) -> String {
    format!("https://{ip}:{PORT}")
}

/// Returns the client URLs of all members with an address, Ready or not: a pinned client must see how its member behaves while
/// the member is not Ready.
fn endpoints(pods: &[MemberPod]) -> Vec<String> {
    pods.iter()
        .filter(|pod| !pod.ip.is_empty())
        .map(|pod| url(&pod.ip))
        .collect()
}

fn pods_path(namespace: &str, cluster: &str) -> String {
    format!(
        "/api/v1/namespaces/{namespace}/pods?labelSelector=etcd.evenkeel.dev%2Fcluster%3D{cluster}"
    )
}

fn pods(list: &Value) -> Vec<MemberPod> {
    let mut pods: Vec<_> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(member_pod)
        .collect();
    pods.sort_by(|one, other| one.name.cmp(&other.name));
    pods
}

fn member_pod(pod: &Value) -> MemberPod {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions
        .filter(|condition| condition["type"] == "Ready")
        .any(|ready| ready["status"] == "True");
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let claim =
        volumes.find_map(|volume| volume.pointer("/persistentVolumeClaim/claimName")?.as_str());
    MemberPod {
        name: text(pod, "/metadata/name"),
        uid: text(pod, "/metadata/uid"),
        node: text(pod, "/spec/nodeName"),
        ip: text(pod, "/status/podIP"),
        ready,
        claim: claim.unwrap_or_default().to_owned(),
    }
}

/// Returns a string within an object; empty if it is absent.
fn text(object: &Value, path: &str) -> String {
    object
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Parses the JSON output of `etcdctl member list`.
pub fn members(printed: &str) -> Vec<Member> {
    let list: Value = serde_json::from_str(printed).expect("etcdctl prints JSON");
    let member = |member: &Value| Member {
        id: member["ID"].as_u64().expect("a member has an ID"),
        name: text(member, "/name"),
        peer_urls: member["peerURLs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|url| url.as_str().map(str::to_owned))
            .collect(),
        learner: member["isLearner"] == true,
    };
    list["members"]
        .as_array()
        .into_iter()
        .flatten()
        .map(member)
        .collect()
}

/// Returns a command that runs a program with another `/etc/hosts`. This machine does not resolve the lab's names, and `etcdctl`
/// verifies the host name of the endpoint.
fn with_hosts(hosts: &Path, program: &Path) -> Cmd {
    let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    let own_mounts = Cmd::new("unshare").args(["--mount", "--propagation", "private"]);
    own_mounts
        .args(["sh", "-c", script, "sh"])
        .arg(hosts)
        .arg(program)
}
