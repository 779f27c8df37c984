//! An S3 server in a lab, as a place for backups: versitygw in a pod of a StatefulSet, with a volume, a certificate, a
//! Service and a bucket.
//!
//! Keys and credentials are derived from a CA of the lab, so a second start changes nothing, and `lab down` removes
//! everything.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Uid, chown};
use serde_json::{Value, json};

use crate::cache::sha256;
use crate::command::Cmd;
use crate::parts::images;
use crate::pki::{CertificateFiles, Holder, Pki};
use crate::state::Lab;

/// The namespace of the server that `lab s3` starts.
pub const NAMESPACE: &str = "lab-s3";
/// The pod of the server.
pub const POD: &str = "s3-0";
/// The StatefulSet of the server.
pub const STATEFUL_SET: &str = "s3";
/// The bucket that exists after the start.
pub const BUCKET: &str = "backups";
/// The region that clients must name in their signatures.
pub const REGION: &str = "us-east-1";
/// The size of the volume of `lab s3`.
const VOLUME_SIZE: &str = "2Gi";

/// The name of the Service that clients use.
const SERVICE: &str = "s3";
/// The name of the Service in front of the pod.
const POD_SERVICE: &str = "s3-pod";
/// The Secret with the credentials and the certificate of the server.
const SERVER_SECRET: &str = "s3-server";
/// The port of the container. The user of the server cannot listen on port 443.
const PORT: u16 = 9000;
/// The user and group of the server.
const USER: u32 = 65532;
/// Time limit for the server to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// The credentials of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Credentials {
    /// The ID of the access key.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: String,
}

/// The parameters of a server.
#[derive(Clone, Debug)]
pub struct S3Options<'a> {
    /// The namespace. It must exist.
    pub namespace: &'a str,
    /// The size of the volume, at least 300Mi.
    pub size: &'a str,
    /// The credentials that the server accepts; `None` means those of the lab.
    pub credentials: Option<S3Credentials>,
    /// The address to which the Service routes instead of the pod, for a proxy in front of the server.
    pub proxy: Option<SocketAddrV4>,
}

/// The way to a server, for its clients.
#[derive(Clone, Debug)]
pub struct S3Access {
    /// The URL for pods of the lab.
    pub endpoint: String,
    /// The address of the pod's Service, which this machine reaches. It bypasses a proxy.
    pub direct: SocketAddrV4,
    /// The bucket.
    pub bucket: String,
    /// The region for signatures.
    pub region: String,
    /// The credentials that the server accepts.
    pub credentials: S3Credentials,
    /// The certificate of the CA, in PEM.
    pub ca: String,
}

impl S3Access {
    /// Returns a Secret, a ConfigMap and a `BackupStore` with this name, as YAML without a namespace.
    pub fn store_manifest(&self, store: &str) -> String {
        let S3Access {
            endpoint,
            bucket,
            region,
            credentials,
            ..
        } = self;
        let mut text = format!(
            "apiVersion: v1
kind: Secret
metadata: {{name: {store}-credentials}}
stringData:
  accessKeyID: '{}'
  secretAccessKey: '{}'
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: {store}-ca}}
data:
  ca.crt: |
",
            credentials.access_key_id, credentials.secret_access_key
        );
        for line in self.ca.lines() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {line}");
        }
        let _ = write!(
            text,
            "---
apiVersion: evenkeel.dev/v1alpha1
kind: BackupStore
metadata: {{name: {store}}}
spec:
  s3:
    bucket: {bucket}
    region: {region}
    endpoint: {endpoint}
    pathStyle: true
    allowPrivateAddresses: true
    credentials: {{secret: {store}-credentials}}
    ca: {{configMap: {store}-ca}}
"
        );
        text
    }
}

/// Starts the server of the lab in the namespace [`NAMESPACE`], or repairs it.
pub fn up(lab: &Lab) -> Result<S3Access> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    images::load_versitygw(lab)?;
    apply(lab, &[namespace])?;
    start(
        lab,
        &S3Options {
            namespace: NAMESPACE,
            size: VOLUME_SIZE,
            credentials: None,
            proxy: None,
        },
    )
}

/// Starts a server in a namespace that exists, and waits until it is ready and has its bucket. Changes a server that
/// exists; if it gets other credentials, it is restarted. The nodes must have the image: [`images::load_versitygw`].
pub fn start(lab: &Lab, options: &S3Options<'_>) -> Result<S3Access> {
    let namespace = options.namespace;
    let host = format!("{SERVICE}.{namespace}.svc");
    let (ca, certificate) = certificates(lab, namespace, &host)?;
    let credentials = match &options.credentials {
        Some(credentials) => credentials.clone(),
        None => derive_credentials(&fs::read(&ca.key)?, namespace),
    };
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
    "metadata": {"name": SERVER_SECRET, "namespace": namespace},
    "stringData": {
        "accessKeyID": credentials.access_key_id,
        "secretAccessKey": credentials.secret_access_key,
        "tls.crt": fs::read_to_string(&certificate.cert)?,
        "tls.key": fs::read_to_string(&certificate.key)?,
    }});
    let restart_key = sha256(secret.to_string().as_bytes());
    let mut objects = vec![
        secret,
        stateful_set(options, &restart_key),
        service(namespace, POD_SERVICE, true),
        service(namespace, SERVICE, options.proxy.is_none()),
    ];
    objects.extend(options.proxy.map(|proxy| endpoints(namespace, proxy)));
    apply(lab, &objects)?;
    wait_until_ready(lab, namespace)?;
    create_bucket(lab, namespace)?;
    Ok(S3Access {
        endpoint: format!("https://{host}"),
        direct: SocketAddrV4::new(service_address(lab, namespace)?, 443),
        bucket: BUCKET.to_owned(),
        region: REGION.to_owned(),
        credentials,
        ca: fs::read_to_string(&ca.cert)?,
    })
}

/// Returns the CA of the S3 servers of the lab, and the certificate of the server in a namespace. Issues them when they are
/// missing.
fn certificates(
    lab: &Lab,
    namespace: &str,
    host: &str,
) -> Result<(CertificateFiles, CertificateFiles)> {
    let dir = lab.pki().join("s3");
    fs::create_dir_all(&dir)?;
    // Tests start servers at the same time, and must not create two CAs. The lock is held until the file is closed.
    let lock = fs::File::create(dir.join("lock"))?;
    lock.lock()
        .context("cannot lock the CA of the S3 servers")?;
    let pki = Pki::at(&dir);
    let holder = Holder {
        name: SERVICE,
        group: None,
        names: vec![format!("{host}.cluster.local"), host.to_owned()],
        addresses: Vec::new(),
    };
    let ca = pki.ca("ca")?;
    let certificate = pki.issue("ca", &format!("server-{namespace}"), &holder)?;
    Ok((ca, certificate))
}

/// Derives credentials from the key of the lab's CA: they are secret, and the same after each start.
fn derive_credentials(key: &[u8], namespace: &str) -> S3Credentials {
    let derive = |purpose: &str| {
        let mut input = key.to_vec();
        input.extend_from_slice(format!("\n{purpose}\n{namespace}").as_bytes());
        sha256(&input)
    };
    let access_key = derive("access key").to_uppercase();
    S3Credentials {
        access_key_id: access_key.chars().take(20).collect(),
        secret_access_key: derive("secret key").chars().take(40).collect(),
    }
}

fn stateful_set(options: &S3Options<'_>, restart_key: &str) -> Value {
    let labels = json!({"app": SERVICE});
    let from_secret = |name: &str, key: &str| {
        json!({"name": name,
            "valueFrom": {"secretKeyRef": {"name": SERVER_SECRET, "key": key}}})
    };
    let container = json!({
        "name": "versitygw",
        "image": images::versitygw_image_name(),
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--port", format!(":{PORT}"),
            "--region", REGION,
            "--cert", "/etc/s3/tls.crt",
            "--key", "/etc/s3/tls.key",
            "posix", "/data",
        ],
        "env": [
            from_secret("ROOT_ACCESS_KEY_ID", "accessKeyID"),
            from_secret("ROOT_SECRET_ACCESS_KEY", "secretAccessKey"),
        ],
        "ports": [{"name": "https", "containerPort": PORT}],
        // The kernel accepts connections of a frozen server. So the Service still routes to it, and its clients wait for an
        // answer, as those of a server outside of Kubernetes do.
        "readinessProbe": {
            "tcpSocket": {"port": "https"},
            "periodSeconds": 1,
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "server", "mountPath": "/etc/s3", "readOnly": true},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    });
    let certificate = json!([
        {"key": "tls.crt", "path": "tls.crt"},
        {"key": "tls.key", "path": "tls.key"},
    ]);
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
    "metadata": {"name": STATEFUL_SET, "namespace": options.namespace, "labels": labels},
    "spec": {
        "replicas": 1,
        "serviceName": POD_SERVICE,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": {"lab.evenkeel.dev/restart": restart_key}},
            "spec": {
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 1,
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": USER,
                    "runAsGroup": USER,
                    "fsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container],
                "volumes": [
                    {"name": "server", "secret": {"secretName": SERVER_SECRET, "items": certificate}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        },
        "volumeClaimTemplates": [{
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": options.size}},
            },
        }],
    }})
}

fn service(namespace: &str, name: &str, selects_pod: bool) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": PORT}]}});
    if selects_pod {
        service["spec"]["selector"] = json!({"app": SERVICE});
    }
    service
}

/// Returns the EndpointSlice of a Service without a selector.
fn endpoints(namespace: &str, proxy: SocketAddrV4) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "s3-proxy", "namespace": namespace,
            "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [proxy.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": proxy.port(), "protocol": "TCP"}]})
}

fn apply(lab: &Lab, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    lab.kubectl()
        .args(["apply", "--server-side", "--force-conflicts", "-f", "-"])
        .input(list.to_string())
        .run()?;
    Ok(())
}

/// Waits until the pod of the current template is ready.
fn wait_until_ready(lab: &Lab, namespace: &str) -> Result<()> {
    let limit = lab.patience().times(READY_TIMEOUT).as_secs();
    let (is_ready, output) = kubectl(lab, namespace)
        .args(["rollout", "status", &format!("statefulset/{STATEFUL_SET}")])
        .arg(format!("--timeout={limit}s"))
        .attempt()?;
    if is_ready {
        return Ok(());
    }
    let pods = kubectl(lab, namespace)
        .args(["get", "pods,pvc", "-o", "wide"])
        .attempt()?
        .1;
    bail!(
        "the S3 server in namespace {namespace} is not ready: {output}\n{pods}\n{}",
        lab.patience().advice()
    )
}

/// Creates the bucket, which is a directory on the volume.
fn create_bucket(lab: &Lab, namespace: &str) -> Result<()> {
    let bucket = lab.pod(namespace, POD)?.volume(None)?.join(BUCKET);
    if bucket.is_dir() {
        return Ok(());
    }
    fs::create_dir(&bucket).context("cannot create the bucket")?;
    let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
    chown(&bucket, Some(user), Some(group)).context("cannot change the owner of the bucket")
}

/// Returns the address of the pod's Service.
fn service_address(lab: &Lab, namespace: &str) -> Result<Ipv4Addr> {
    let address = kubectl(lab, namespace)
        .args(["get", "service", POD_SERVICE])
        .args(["-o", "jsonpath={.spec.clusterIP}"])
        .run()?;
    address
        .trim()
        .parse()
        .with_context(|| format!("Service {POD_SERVICE} has the address {address}"))
}

fn kubectl(lab: &Lab, namespace: &str) -> Cmd {
    lab.kubectl().args(["--namespace", namespace])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_depend_on_the_key_and_the_namespace() {
        let first = derive_credentials(b"key", "a");
        assert_eq!(first, derive_credentials(b"key", "a"));
        for other in [
            derive_credentials(b"key", "b"),
            derive_credentials(b"other", "a"),
        ] {
            assert_ne!(first.access_key_id, other.access_key_id);
            assert_ne!(first.secret_access_key, other.secret_access_key);
        }
        assert_eq!(first.access_key_id.len(), 20);
        assert_eq!(first.secret_access_key.len(), 40);
    }
}
