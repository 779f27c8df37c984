//! An S3 server of a story, in the story's namespace: a real one, with faults, and with its stored objects as files.
//!
//! Pods reach it by its Service, through a [`Link`] of this machine that can be slow, stalled or cut.

mod link;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_lab::command::Cmd;
use evenkeel_lab::faults::PodFaults;
use evenkeel_lab::parts::{debian, images};
use evenkeel_lab::s3::{self, S3Access, S3Credentials, S3Options};

use crate::operator::{binary, load_image};
use crate::{Story, once_per_run};

pub use link::{Link, LinkState, LinkTraffic};

/// The image with the agent, as [`agent_image`] builds it.
const AGENT_IMAGE: &str = "evenkeel-agent:story";

/// The size of the volume. The file system of the volume uses 64 MiB of it.
const VOLUME_SIZE: &str = "400Mi";

/// The directory in a bucket with the parts of unfinished uploads.
const UNFINISHED_DIR: &str = ".sgwtmp";

/// How long a request of [`S3Server::request`] may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

/// An S3 server of a story. It is deleted with the story's namespace.
pub struct S3Server<'s> {
    story: &'s Story,
    access: S3Access,
    link: Link,
    size: String,
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Answer {
    /// The status code.
    pub code: u16,
    /// The body.
    pub body: String,
}

impl<'s> S3Server<'s> {
    /// Starts a server in the story's namespace, and waits until it is ready and has its bucket.
    pub fn start(story: &'s Story) -> Self {
        Self::with_size(story, VOLUME_SIZE)
    }

    /// Starts a server with a volume of this size, at least 300Mi, of which the file system uses 64 MiB.
    pub fn with_size(story: &'s Story, size: &str) -> Self {
        // The image is built before the stories; if a story is run without `hack/test`, by the first one.
        once_per_run(
            &format!("load the S3 server into {}", story.lab().name()),
            || {
                let loaded = images::load_versitygw(story.lab());
                loaded.unwrap_or_else(|error| panic!("{error:#}"));
            },
        );
        let addresses = story
            .lab()
            .addresses()
            .unwrap_or_else(|error| panic!("{error:#}"));
        let link = Link::start(addresses.host());
        let access = s3::start(
            story.lab(),
            &S3Options {
                namespace: story.namespace(),
                size,
                credentials: None,
                proxy: Some(link.address()),
            },
        );
        let access = access.unwrap_or_else(|error| panic!("{error:#}"));
        link.lead_to(SocketAddr::V4(access.direct));
        Self {
            story,
            access,
            link,
            size: size.to_owned(),
        }
    }

    /// The endpoint, bucket, credentials and CA that clients use.
    pub fn access(&self) -> &S3Access {
        &self.access
    }

    /// The link between clients and the server.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Creates a `BackupStore` for the bucket, with its Secret `<name>-credentials` and its ConfigMap `<name>-ca`. The CRDs
    /// must be installed.
    pub fn create_store(&self, name: &str) {
        self.story.apply(&self.access.store_manifest(name));
    }

    /// Changes the secret access key in the Secret of a `BackupStore` that [`S3Server::create_store`] created.
    pub fn set_store_secret_key(&self, store: &str, secret_access_key: &str) {
        let patch =
            serde_json::json!({"stringData": {"secretAccessKey": secret_access_key}}).to_string();
        let secret = format!("{store}-credentials");
        self.story
            .kubectl(&["patch", "secret", &secret, "--patch", &patch]);
    }

    // Faults

    /// Stops the server; the link closes connections at once.
    pub fn stop(&self) {
        self.scale(0);
        self.story.eventually("the S3 server is stopped", || {
            self.story
                .read("/api/v1", &format!("pods/{}", s3::POD))
                .is_none()
        });
    }

    /// Starts the server again after [`S3Server::stop`].
    pub fn start_again(&self) {
        self.apply(&self.access.credentials);
    }

    /// Kills the process of the server; the kubelet starts it again.
    pub fn kill(&self) {
        self.fault(|pod| pod.kill(None, None));
    }

    /// Freezes the server: it accepts connections, and never answers.
    pub fn freeze(&self) {
        self.fault(|pod| pod.freeze(None, None));
    }

    /// Lets a frozen server continue.
    pub fn thaw(&self) {
        self.fault(|pod| pod.thaw(None, None));
    }

    /// Makes the server reject the credentials, as after a rotation of the key. Restarts the server.
    pub fn reject_credentials(&self) {
        let mut others = self.access.credentials.clone();
        others.secret_access_key = "rotated".repeat(6);
        self.apply(&others);
    }

    /// Makes the server accept its credentials again. Restarts the server.
    pub fn accept_credentials(&self) {
        self.apply(&self.access.credentials);
    }

    /// Fills the disk of the server to the last block.
    pub fn fill_disk(&self) {
        self.fault(|pod| pod.fill_volume(None));
    }

    /// Frees the space that [`S3Server::fill_disk`] has taken.
    pub fn free_disk(&self) {
        self.fault(|pod| pod.free_volume(None));
    }

    // The stored objects

    /// Returns the keys of all objects, sorted.
    pub fn keys(&self) -> Vec<String> {
        let bucket = self.bucket_dir();
        let mut keys = Vec::new();
        add_files(&bucket, &bucket, &mut keys);
        keys.sort();
        keys
    }

    /// Returns the bytes of an object.
    pub fn read(&self, key: &str) -> Vec<u8> {
        std::fs::read(self.file(key)).unwrap_or_else(|error| panic!("{key}: {error}"))
    }

    /// Inverts the bits of one byte of an object, as a disk does that returns wrong data. The server keeps the checksum of
    /// the upload and does not notice it.
    pub fn damage(&self, key: &str, offset: usize) {
        let mut bytes = self.read(key);
        let length = bytes.len();
        let byte = bytes
            .get_mut(offset)
            .unwrap_or_else(|| panic!("{key} has {length} bytes"));
        *byte = !*byte;
        self.overwrite(key, &bytes);
    }

    /// Cuts an object to its first bytes.
    pub fn truncate(&self, key: &str, length: usize) {
        let bytes = self.read(key);
        let kept = bytes
            .get(..length)
            .unwrap_or_else(|| panic!("{key} has {} bytes", bytes.len()));
        self.overwrite(key, kept);
    }

    /// Deletes an object.
    pub fn delete(&self, key: &str) {
        std::fs::remove_file(self.file(key)).unwrap_or_else(|error| panic!("{key}: {error}"));
    }

    /// Returns the number of multipart uploads that were neither completed nor aborted.
    pub fn unfinished_uploads(&self) -> usize {
        // A directory per key, with a directory per upload.
        let uploads = self.bucket_dir().join(UNFINISHED_DIR).join("multipart");
        entries(&uploads)
            .iter()
            .map(|key| entries(key).iter().filter(|it| it.is_dir()).count())
            .sum()
    }

    /// Sends a request with `curl`, signed with these credentials, through the link.
    pub fn request(
        &self,
        verb: &str,
        path: &str,
        body: &[u8],
        credentials: &S3Credentials,
    ) -> Result<S3Answer, String> {
        debian::ensure(&["curl"], || debian::is_on_path("curl"))
            .map_err(|error| format!("{error:#}"))?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (ca, input) = (dir.path().join("ca.crt"), dir.path().join("body"));
        std::fs::write(&ca, &self.access.ca).expect("the directory is writable");
        std::fs::write(&input, body).expect("the directory is writable");
        let S3Credentials {
            access_key_id,
            secret_access_key,
        } = credentials;
        let mut command = Cmd::new("curl")
            .args(["--silent", "--show-error", "--request", verb])
            .args(["--write-out", "\n%{http_code}", "--max-time"])
            .arg(REQUEST_LIMIT.as_secs().to_string())
            .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
            .arg("--aws-sigv4")
            .arg(format!("aws:amz:{}:s3", self.access.region))
            .arg("--user")
            .arg(format!("{access_key_id}:{secret_access_key}"))
            .arg("--cacert")
            .arg(ca)
            .arg("--connect-to")
            .arg(format!("::{}", self.link.address()));
        if !body.is_empty() {
            command = command.arg("--upload-file").arg(input);
        }
        let url = format!("{}/{}/{path}", self.access.endpoint, self.access.bucket);
        let output = command
            .arg(url)
            .run()
            .map_err(|error| format!("{error:#}"))?;
        let (body, code) = output.rsplit_once('\n').unwrap_or(("", &output));
        Ok(S3Answer {
            code: code.parse().map_err(|error| format!("{error}: {output}"))?,
            body: body.to_owned(),
        })
    }

    /// Starts the server with these credentials, and restarts it if it has others.
    fn apply(&self, credentials: &S3Credentials) {
        let applied = s3::start(
            self.story.lab(),
            &S3Options {
                namespace: self.story.namespace(),
                size: &self.size,
                credentials: Some(credentials.clone()),
                proxy: Some(self.link.address()),
            },
        );
        applied.unwrap_or_else(|error| panic!("{error:#}"));
    }

    fn scale(&self, replicas: u8) {
        let set = format!("statefulset/{}", s3::STATEFUL_SET);
        self.story
            .kubectl(&["scale", &set, &format!("--replicas={replicas}")]);
    }

    fn fault<E: Display>(&self, action: impl FnOnce(&PodFaults<'_>) -> Result<(), E>) {
        action(&self.pod()).unwrap_or_else(|error| panic!("{error:#}"));
    }

    fn pod(&self) -> PodFaults<'_> {
        let pod = self.story.lab().pod(self.story.namespace(), s3::POD);
        pod.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Returns the directory of the bucket, as a path of this machine. The server must run.
    fn bucket_dir(&self) -> PathBuf {
        let volume = self.pod().volume(None);
        volume
            .unwrap_or_else(|error| panic!("{error:#}"))
            .join(&self.access.bucket)
    }

    fn file(&self, key: &str) -> PathBuf {
        self.bucket_dir().join(key)
    }

    /// Overwrites the bytes of an object in place, so that its file keeps the attributes with the metadata.
    fn overwrite(&self, key: &str, bytes: &[u8]) {
        std::fs::write(self.file(key), bytes).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}

/// Adds the keys of all files below a directory. A file that vanishes meanwhile is left out.
fn add_files(dir: &Path, bucket: &Path, keys: &mut Vec<String>) {
    for path in entries(dir) {
        if path.is_dir() {
            if path != bucket.join(UNFINISHED_DIR) {
                add_files(&path, bucket, keys);
            }
        } else if let Ok(key) = path.strip_prefix(bucket) {
            keys.push(key.to_string_lossy().into_owned());
        }
    }
}

/// Returns the paths in a directory; none if it does not exist.
fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().map(|entry| entry.path()).collect(),
    )
}

/// Builds the image of the agent and loads it into every node, once per run; returns its name for the operator's flag
/// `--agent-image`.
pub fn agent_image(story: &Story) -> &'static str {
    let program = binary("evenkeel-agent");
    assert!(
        program.exists(),
        "{} does not exist: build it first, as hack/test does",
        program.display()
    );
    load_image(story, AGENT_IMAGE, &program);
    AGENT_IMAGE
}
