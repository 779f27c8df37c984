//! The pods that the agent runs in. They pass the restricted Pod Security profile, have no token of a ServiceAccount except
//! the one that a store asks for, and read their request from an annotation. Secrets are mounted by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use evenkeel_api::backup::labels;
use evenkeel_api::{BackupStoreSpec, S3Credentials, S3Store, StorePods, quantity};
use evenkeel_archive::tasks::{CredentialSource, Request, S3Config, ServerEncryption, StoreConfig};
use evenkeel_kit::BuildError;
use evenkeel_kit::objects::from_json;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

/// The name of the container in pods with one container.
pub const CONTAINER: &str = "agent";
/// The program in the operator's image.
pub const PROGRAM: &str = "/usr/local/bin/evenkeel-agent";
/// The uid and gid of the agent: `nonroot` in distroless images, and the same as etcd's.
pub const USER: i64 = 65532;
/// The directory of requests. Not a parent of another mount: the volume is read-only, so no mount point can be created in it.
pub const REQUEST_PATH: &str = "/etc/evenkeel/request";
/// The file of the request in pods with one container.
pub const REQUEST_FILE: &str = "request.json";
/// The directory of the store's credentials.
pub const CREDENTIALS_PATH: &str = "/etc/evenkeel/store/credentials";
/// The directory of the store's CA.
pub const CA_PATH: &str = "/etc/evenkeel/store/ca";
/// The directory of the token of a ServiceAccount.
pub const TOKEN_PATH: &str = "/etc/evenkeel/store/token";
/// The directory of a volume store.
pub const VOLUME_PATH: &str = "/var/lib/evenkeel/store";
/// The directory of the certificate for the application.
pub const TLS_PATH: &str = "/etc/evenkeel/tls";
/// The directory for temporary files.
pub const WORK_PATH: &str = "/work";
/// The memory limit of the agent.
pub const MEMORY_LIMIT: &str = "128Mi";
/// The audience of tokens for web identity.
const TOKEN_AUDIENCE: &str = "sts.amazonaws.com";
/// The lifetime of such a token in seconds. The kubelet renews it.
const TOKEN_SECONDS: u32 = 3600;
/// The space for temporary files of a task that spools no data.
const SMALL_WORK_BYTES: u64 = 64 << 20;
/// The time between the deadline of the agent and the end of its pod.
const DEADLINE_GRACE_SECONDS: u64 = 30;

/// The access of a pod to a store: the configuration for the agent, and the volumes that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAccess {
    /// The configuration.
    pub config: StoreConfig,
    /// The volumes of the pod.
    pub volumes: Vec<Value>,
    /// The mounts of the container.
    pub mounts: Vec<Value>,
    /// The ServiceAccount of the pod, if the store asks for one.
    pub service_account: Option<String>,
}

impl StoreAccess {
    /// Returns the access to a store; `None` if the spec names no place, which the schema rejects.
    pub fn of(spec: &BackupStoreSpec) -> Option<Self> {
        if let Some(s3) = &spec.s3 {
            return Self::of_s3(s3);
        }
        let volume = spec.volume.as_ref()?;
        let directory = match &volume.path {
            Some(path) => PathBuf::from(VOLUME_PATH).join(path),
            None => PathBuf::from(VOLUME_PATH),
        };
        Some(Self {
            config: StoreConfig::Directory(directory),
            volumes: vec![
                json!({ "name": "store", "persistentVolumeClaim": { "claimName": volume.claim } }),
            ],
            mounts: vec![json!({ "name": "store", "mountPath": VOLUME_PATH })],
            service_account: None,
        })
    }

    fn of_s3(s3: &S3Store) -> Option<Self> {
        let mut access = Self {
            config: StoreConfig::Directory(PathBuf::new()),
            volumes: Vec::new(),
            mounts: Vec::new(),
            service_account: None,
        };
        let credentials = access.add_credentials(&s3.credentials)?;
        let ca_file = s3.ca.as_ref().map(|ca| {
            access.add(
                "store-ca",
                CA_PATH,
                json!({ "configMap": { "name": ca.config_map, "defaultMode": 0o444,
                    "items": [{ "key": "ca.crt", "path": "ca.crt" }] } }),
            );
            PathBuf::from(CA_PATH).join("ca.crt")
        });
        let encryption = s3.encryption.as_ref().map(|encryption| {
            let key = encryption.kms_key_id.clone();
            key.map_or(ServerEncryption::Server, ServerEncryption::Kms)
        });
        access.config = StoreConfig::S3(S3Config {
            bucket: s3.bucket.clone(),
            prefix: s3.prefix.clone().unwrap_or_default(),
            region: s3.region.clone(),
            endpoint: s3.endpoint.clone(),
            path_style: s3.path_style,
            credentials,
            ca_file,
            encryption,
            allow_http: s3.allow_http,
            allow_private_addresses: s3.allow_private_addresses,
        });
        Some(access)
    }

    fn add_credentials(&mut self, credentials: &S3Credentials) -> Option<CredentialSource> {
        if let Some(secret) = &credentials.secret {
            self.add(
                "store-credentials",
                CREDENTIALS_PATH,
                json!({ "secret": { "secretName": secret, "defaultMode": 0o440 } }),
            );
            return Some(CredentialSource::Directory(CREDENTIALS_PATH.into()));
        }
        let identity = credentials.web_identity.as_ref()?;
        self.add(
            "store-token",
            TOKEN_PATH,
            json!({ "projected": { "defaultMode": 0o440, "sources": [{ "serviceAccountToken": {
                "audience": TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token",
            } }] } }),
        );
        self.service_account = Some(identity.service_account.clone());
        Some(CredentialSource::WebIdentity {
            role_arn: identity.role_arn.clone(),
            token_file: PathBuf::from(TOKEN_PATH).join("token"),
            endpoint: identity.endpoint.clone(),
        })
    }

    fn add(&mut self, name: &str, path: &str, mut volume: Value) {
        volume["name"] = json!(name);
        self.volumes.push(volume);
        self.mounts
            .push(json!({ "name": name, "mountPath": path, "readOnly": true }));
    }
}

/// The parameters of a pod with one task.
#[derive(Clone, Debug)]
pub struct AgentPod<'a> {
    /// The name of the pod.
    pub name: &'a str,
    /// The namespace of the pod.
    pub namespace: &'a str,
    /// The owner reference, from [`owner_reference`].
    pub owner: Value,
    /// The kind of the task, the value of the label [`labels::TASK`].
    pub task: &'a str,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// Further annotations.
    pub annotations: BTreeMap<String, String>,
    /// The image of the agent.
    pub image: &'a str,
    /// The store.
    pub store: &'a StoreAccess,
    /// The request.
    pub request: &'a Request,
    /// The Secret with the certificate for the application, mounted at [`TLS_PATH`].
    pub tls_secret: Option<&'a str>,
    /// The number of bytes that the agent may spool, if any.
    pub spool_bytes: Option<u64>,
    /// The nodes and pull Secrets of the pod, from [`placement`].
    pub placement: &'a Value,
}

impl AgentPod<'_> {
    /// Returns the pod.
    pub fn build(&self) -> Result<Pod, BuildError> {
        let request = serde_json::to_string(self.request)
            .map_err(|source| BuildError::new("a request", source))?;
        let mut annotations = self.annotations.clone();
        annotations.insert(labels::REQUEST.to_owned(), request);
        let mut volumes = self.store.volumes.clone();
        let mut mounts = self.store.mounts.clone();
        volumes.push(request_volume(&[(labels::REQUEST, REQUEST_FILE)]));
        volumes.push(work_volume(self.spool_bytes));
        mounts.push(request_mount());
        mounts.push(json!({ "name": "work", "mountPath": WORK_PATH }));
        if let Some(secret) = self.tls_secret {
            volumes.push(
                json!({ "name": "tls", "secret": { "secretName": secret, "defaultMode": 0o440 } }),
            );
            mounts.push(json!({ "name": "tls", "mountPath": TLS_PATH, "readOnly": true }));
        }
        let container = agent_container(CONTAINER, self.image, REQUEST_FILE, &mounts);
        let mut spec = pod_spec(self.store.service_account.as_deref());
        spec["activeDeadlineSeconds"] =
            json!(self.request.deadline_seconds + DEADLINE_GRACE_SECONDS);
        spec["containers"] = json!([container]);
        spec["volumes"] = json!(volumes);
        place(&mut spec, self.placement);
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": pod_labels(self.task, &self.labels),
                "annotations": annotations,
                "ownerReferences": [self.owner],
            },
            "spec": spec,
        });
        from_json("an agent's Pod", object)
    }
}

/// Returns the owner reference to a resource. The resource is deleted without waiting for its pods.
pub fn owner_reference<K: Resource<DynamicType = ()>>(resource: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": resource.name_any(),
        "uid": resource.uid().unwrap_or_default(),
        "controller": true,
    })
}

/// Returns the labels of an agent's pod.
pub fn pod_labels(task: &str, further: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = further.clone();
    for (key, value) in [
        (evenkeel_api::labels::APP_NAME, "evenkeel-agent"),
        (
            evenkeel_api::labels::APP_MANAGED_BY,
            evenkeel_api::labels::MANAGER,
        ),
        (labels::TASK, task),
    ] {
        all.insert(key.to_owned(), value.to_owned());
    }
    all
}

/// Returns the spec of a pod without containers and volumes.
pub fn pod_spec(service_account: Option<&str>) -> Value {
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        // The agent aborts an upload when it is terminated.
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": { "type": "RuntimeDefault" },
        },
    });
    if let Some(name) = service_account {
        spec["serviceAccountName"] = json!(name);
    }
    spec
}

/// Returns the fields of a pod's spec that decide on which nodes the pod runs, and from which registries its images come.
pub fn placement(
    pull_secrets: &[String],
    node_selector: &BTreeMap<String, String>,
    tolerations: &[Toleration],
) -> Value {
    let mut placement = json!({});
    if !pull_secrets.is_empty() {
        let secrets = pull_secrets.iter().map(|name| json!({ "name": name }));
        placement["imagePullSecrets"] = secrets.collect();
    }
    if !node_selector.is_empty() {
        placement["nodeSelector"] = json!(node_selector);
    }
    if !tolerations.is_empty() {
        placement["tolerations"] = json!(tolerations);
    }
    placement
}

/// Returns the [`placement`] of pods that serve no cluster.
pub fn store_placement(spec: &BackupStoreSpec) -> Value {
    let StorePods {
        pull_secrets,
        node_selector,
        tolerations,
    } = spec.pods.clone().unwrap_or_default();
    placement(&pull_secrets, &node_selector, &tolerations)
}

/// Adds the fields of a [`placement`] to the spec of a pod.
pub fn place(spec: &mut Value, placement: &Value) {
    if let (Some(spec), Some(placement)) = (spec.as_object_mut(), placement.as_object()) {
        spec.extend(placement.clone());
    }
}

/// Returns the security context of each container.
pub fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

/// Returns a container that runs the agent with a request of [`request_volume`].
pub fn agent_container(name: &str, image: &str, request_file: &str, mounts: &[Value]) -> Value {
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM],
        "args": ["--request", format!("{REQUEST_PATH}/{request_file}")],
        // The agent writes its outcome there. The end of the log is no outcome.
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {
            "requests": { "cpu": "50m", "memory": "64Mi" },
            "limits": { "memory": MEMORY_LIMIT },
        },
        "securityContext": container_security(),
        "volumeMounts": mounts,
    })
}

/// Returns the volume with requests: annotations of the pod, each as a file of this name.
pub fn request_volume(requests: &[(&str, &str)]) -> Value {
    let items: Vec<_> = requests
        .iter()
        .map(|(annotation, file)| {
            let path = format!("metadata.annotations['{annotation}']");
            json!({ "path": file, "fieldRef": { "fieldPath": path } })
        })
        .collect();
    json!({ "name": "request", "downwardAPI": { "defaultMode": 0o444, "items": items } })
}

/// Returns the mount of [`request_volume`].
pub fn request_mount() -> Value {
    json!({ "name": "request", "mountPath": REQUEST_PATH, "readOnly": true })
}

/// Returns the volume `work` for temporary files.
pub fn work_volume(spool_bytes: Option<u64>) -> Value {
    let bytes = spool_bytes
        .unwrap_or_default()
        .saturating_add(SMALL_WORK_BYTES);
    json!({ "name": "work", "emptyDir": { "sizeLimit": quantity::binary(bytes) } })
}

#[cfg(test)]
#[path = "agent_pod_tests.rs"]
mod tests;
