//! An etcd cluster of a story, used as the README tells users: by its resource, the Service `<name>-client` and the
//! Secret `<name>-client-tls`.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_history::{ClientTls, WorkloadConfig, WorkloadTarget};
use evenkeel_lab::command::Cmd;
use serde_json::{Value, json};

use crate::watched::Watched;
use crate::{Story, api};

/// Where etcd listens for clients.
const PORT: u16 = 2379;

/// The manifest of a cluster; `storage` is a size (`1Gi`), the default where there is none.
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
    /// Its name, which is the member's too.
    pub name: String,
    /// Its uid: another one means another pod.
    pub uid: String,
    /// The node it is on; empty before it has one.
    pub node: String,
    /// Its address; empty before it has one.
    pub ip: String,
    /// Whether it is Ready.
    pub ready: bool,
    /// The claim of its data; empty for ephemeral ones.
    pub claim: String,
}

/// A member, as etcd tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its ID.
    pub id: u64,
    /// Its name; empty before it has started.
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Whether it has no vote yet.
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

    /// A new cluster of exactly this spec.
    pub fn apply_as_it_is(story: &'a Story, name: &str, spec: &str) -> Self {
        let cluster = Self::named(story, name);
        cluster.set_as_it_is(spec);
        cluster
    }

    /// One that is there, or will be.
    pub fn named(story: &'a Story, name: &str) -> Self {
        Self {
            story,
            name: name.to_owned(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies the resource again with another spec. Where it says nothing of volumes they are small: the lab promises no more
    /// space than the machine has, and many stories run side by side.
    pub fn set(&self, spec: &str) {
        let says = spec.starts_with('{') || spec.lines().any(|line| line.starts_with("storage:"));
        let small = if says { "" } else { "\nstorage: {size: 1Gi}" };
        self.set_as_it_is(&format!("{}{small}", spec.trim_end()));
    }

    fn set_as_it_is(&self, spec: &str) {
        let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
        let head = "apiVersion: evenkeel.dev/v1alpha1\nkind: EtcdCluster\n";
        self.story.apply(&format!(
            "{head}metadata: {{name: {}}}\nspec:\n{spec}",
            self.name
        ));
    }

    /// Changes some of the spec, by a merge patch of it.
    pub fn patch(&self, spec: &Value) {
        let patch = json!({"spec": spec}).to_string();
        self.story
            .kubectl(&["patch", &self.resource(), "--type=merge", "--patch", &patch]);
    }

    fn resource(&self) -> String {
        format!("etcd/{}", self.name)
    }

    /// Waits until it is Ready, as users do; fails the story when it does not come to be.
    pub fn wait_ready(&self, limit: Duration) {
        let limit = format!("--timeout={}s", limit.as_secs());
        let waited =
            self.story
                .try_kubectl(&["wait", "--for=condition=Ready", &self.resource(), &limit]);
        if let Err(said) = waited {
            panic!("{} is not Ready: {said}\n{:#}", self.name, self.status());
        }
    }

    /// What the operator says of it; null where it has said nothing.
    pub fn status(&self) -> Value {
        let there = self.story.read(
            "/apis/evenkeel.dev/v1alpha1",
            &format!("etcdclusters/{}", self.name),
        );
        there.unwrap_or_else(|| panic!("there is no EtcdCluster {}", self.name))["status"].clone()
    }

    /// A condition's status and reason; empty where it has none.
    pub fn condition(&self, kind: &str) -> (String, String) {
        let status = self.status();
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        let it = all
            .into_iter()
            .find(|condition| condition["type"] == kind)
            .unwrap_or_default();
        (text(&it, "/status"), text(&it, "/reason"))
    }

    /// Its members' pods, by name.
    pub fn pods(&self) -> Vec<MemberPod> {
        let path = pods_path(self.story.namespace(), &self.name);
        let list = api::get(self.story.lab(), &path).unwrap_or_else(|error| panic!("{error}"));
        pods(&list.unwrap_or_default())
    }

    /// The pod of this name.
    pub fn pod(&self, name: &str) -> MemberPod {
        let found = self.pods().into_iter().find(|pod| pod.name == name);
        found.unwrap_or_else(|| panic!("{} has no pod {name}", self.name))
    }

    /// The name that clients use, and that servers' certificates have.
    pub fn host(&self) -> String {
        format!("{}-etcd-client.{}.svc", self.name, self.story.namespace())
    }

    /// The Service's address.
    pub fn service_ip(&self) -> String {
        let service = self
            .story
            .read("/api/v1", &format!("services/{}-etcd-client", self.name));
        text(&service.unwrap_or_default(), "/spec/clusterIP")
    }

    /// What a client of it needs for TLS.
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

    /// Where a workload finds it: each member, and the Service.
    pub fn target(&self) -> WorkloadTarget {
        let service = vec![url(&self.service_ip())];
        WorkloadTarget {
            members: endpoints(&self.pods()),
            service,
            tls: Some(self.client_tls()),
        }
    }

    /// Sets clients to work on it, 50 operations a second, and follows its members. Many stories run side by side: more would only
    /// wait longer.
    pub fn workload(&self) -> Watched {
        self.workload_with(WorkloadConfig {
            operations_per_second: 50.0,
            ..WorkloadConfig::default()
        })
    }

    /// Sets clients to work on it in another way than usual, and follows its members.
    pub fn workload_with(&self, config: WorkloadConfig) -> Watched {
        let (lab, path) = (
            self.story.lab().clone(),
            pods_path(self.story.namespace(), &self.name),
        );
        // Once: it looks again anyway, and whoever ends it does not wait for an API server that is gone.
        let members = move || {
            Some(endpoints(&pods(
                &api::get_once(&lab, &path).ok()?.unwrap_or_default(),
            )))
        };
        Watched::start(
            &self.name,
            config,
            self.target(),
            self.story.lab().patience(),
            members,
        )
    }

    /// Runs `etcdctl` through the Service, with a client's certificate; it must succeed.
    pub fn etcdctl(&self, args: &[&str]) -> String {
        self.try_etcdctl(args)
            .unwrap_or_else(|said| panic!("{said}"))
    }

    /// Runs `etcdctl` through the Service; says what it printed, or what it complained about.
    pub fn try_etcdctl(&self, args: &[&str]) -> Result<String, String> {
        self.etcdctl_at(&self.service_ip(), args)
    }

    /// Runs `etcdctl` on one address, a member's say, under the name that the certificates have.
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

    /// The members, as etcd tells through the Service.
    pub fn member_list(&self) -> Vec<Member> {
        let mut printed = None;
        // Whoever leads may have changed just now.
        self.story
            .eventually(&format!("{} lists its members", self.name), || {
                printed = self
                    .try_etcdctl(&["member", "list", "--write-out=json"])
                    .ok();
                printed.is_some()
            });
        members(&printed.unwrap_or_default())
    }

    /// Waits until all members hold the same data: nobody may be writing.
    pub fn holds_the_same_everywhere(&self) {
        self.story.eventually(
            &format!("all members of {} hold the same", self.name),
            || {
                let hash = |pod: &MemberPod| {
                    let said = self
                        .etcdctl_at(&pod.ip, &["endpoint", "hashkv", "--write-out=json"])
                        .ok()?;
                    let said: Value = serde_json::from_str(&said).ok()?;
                    // The revision belongs to it: two that stand still at different ones are not the same.
                    let [hash, revision] =
                        ["hash", "header/revision"].map(|field| format!("/0/HashKV/{field}"));
                    Some((
                        said.pointer(&hash)?.clone(),
                        said.pointer(&revision)?.clone(),
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

/// Where the members with an address listen, Ready or not: a client that keeps to a member shall see what it does when
/// it is not.
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

/// A text within an object; empty where there is none.
fn text(object: &Value, path: &str) -> String {
    object
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// The members in what `etcdctl member list` printed as JSON.
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

/// A program that takes another file for `/etc/hosts`. This machine does not know the lab's names, and `etcdctl` takes
/// the name that it verifies from the endpoint alone.
fn with_hosts(hosts: &Path, program: &Path) -> Cmd {
    let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    let own_mounts = Cmd::new("unshare").args(["--mount", "--propagation", "private"]);
    own_mounts
        .args(["sh", "-c", script, "sh"])
        .arg(hosts)
        .arg(program)
}
