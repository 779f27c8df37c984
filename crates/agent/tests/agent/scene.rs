//! The scene of a test: etcd with TLS, a client, a store, and the agent's program.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use evenkeel_archive::manifest::ClusterInfo;
use evenkeel_archive::tasks::{
    BackupSummary, EtcdSnapshotTask, FailureReason, Outcome, Request, StoreConfig, Task, TaskResult,
};
use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::etcd::{EtcdVersion, get};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use serde_json::json;
use tokio::runtime::Runtime;

const CLIENT_PORT: u16 = 12379;
const PEER_PORT: u16 = 12380;
const PATIENCE: Duration = Duration::from_secs(60);

/// An address that no other test uses.
pub(crate) fn fresh_address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, high | 0x80, low, NEXT.fetch_add(1, Ordering::Relaxed)])
}

/// A process that is killed at the end of the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    pub(crate) fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        Cmd::new("kill").args([name, &id]).run().unwrap();
    }
}

pub(crate) struct Scene {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) programs: PathBuf,
    pub(crate) version: String,
    pub(crate) etcd: Process,
    pub(crate) address: SocketAddr,
    /// The address that the certificate is valid for, too.
    pub(crate) proxy: SocketAddr,
    pub(crate) client: Client,
    pub(crate) runtime: Runtime,
    pub(crate) cluster_id: u64,
}

impl Scene {
    /// Starts one etcd with TLS.
    pub(crate) fn start(version: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["store", "work", "tls"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let version: EtcdVersion = version.parse().unwrap();
        let programs = get(version).unwrap();
        let address = SocketAddr::from((fresh_address(), CLIENT_PORT));
        let proxy = SocketAddr::from((fresh_address(), CLIENT_PORT));
        write_certificates(&dir.path().join("tls"), &[address.ip(), proxy.ip()]);
        let tls = |name: &str| dir.path().join("tls").join(name).display().to_string();
        let url = format!("https://{address}");
        let options = [
            format!("--cert-file={}", tls("server.crt")),
            format!("--key-file={}", tls("server.key")),
            format!("--trusted-ca-file={}", tls("ca.crt")),
            "--client-cert-auth".to_owned(),
        ];
        let data = dir.path().join("source");
        let etcd = start_etcd(&programs, &data, &url, address.ip(), &options);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (client, cluster_id) = runtime.block_on(connect(&url, &dir.path().join("tls")));
        Self {
            programs,
            version: version.to_string(),
            etcd,
            address,
            proxy,
            client,
            runtime,
            cluster_id,
            dir,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn request(&self, task: Task) -> Request {
        Request {
            store: StoreConfig::Directory(self.path("store")),
            task,
            deadline_seconds: 60,
        }
    }

    pub(crate) fn snapshot_task(&self, address: SocketAddr, name: &str) -> EtcdSnapshotTask {
        EtcdSnapshotTask {
            endpoint: format!("https://{address}"),
            tls: self.path("tls"),
            cluster: ClusterInfo {
                namespace: "shop".to_owned(),
                name: "orders".to_owned(),
                lineage: "k7f2x".to_owned(),
                cluster_id: format!("{:x}", self.cluster_id),
                member: "orders-a".to_owned(),
            },
            epoch: 1,
            version: self.version.clone(),
            quota: 2 << 30,
            resource: json!({"kind": "EtcdCluster"}),
            name: name.to_owned(),
        }
    }

    pub(crate) fn snapshot(&self, name: &str) -> (String, BackupSummary) {
        let task = Task::SnapshotEtcd(self.snapshot_task(self.address, name));
        match self.run(task) {
            TaskResult::Backup { location, summary } => (location, summary),
            other => panic!("{other:?}"),
        }
    }

    /// Runs a task, which must succeed.
    pub(crate) fn run(&self, task: Task) -> TaskResult {
        match self.run_agent(&self.request(task)) {
            (Outcome::Succeeded(result), _) => result,
            (Outcome::Failed(failure), log) => panic!("{failure:?}\n{log}"),
        }
    }

    /// Runs a task, which must fail. Returns the reason and the message.
    pub(crate) fn fail(&self, task: Task) -> (FailureReason, String) {
        self.fail_request(&self.request(task))
    }

    pub(crate) fn fail_request(&self, request: &Request) -> (FailureReason, String) {
        match self.run_agent(request) {
            (Outcome::Succeeded(result), log) => panic!("{result:?}\n{log}"),
            (Outcome::Failed(failure), _) => (failure.reason, failure.message),
        }
    }

    /// Runs the agent. Returns its outcome and its output, at the most detailed log level.
    pub(crate) fn run_agent(&self, request: &Request) -> (Outcome, String) {
        let (is_done, output) = self.agent(request).attempt().unwrap();
        let outcome = self.outcome();
        assert_eq!(
            is_done,
            matches!(outcome, Outcome::Succeeded(_)),
            "{output}"
        );
        (outcome, output)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let text = std::fs::read_to_string(self.path("result.json")).unwrap();
        assert!(text.len() <= 4096, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn agent(&self, request: &Request) -> Cmd {
        self.agent_with_log(request, "trace")
    }

    pub(crate) fn agent_with_log(&self, request: &Request, level: &str) -> Cmd {
        let path = self.path("request.json");
        std::fs::write(&path, serde_json::to_string(request).unwrap()).unwrap();
        let _ = std::fs::remove_file(self.path("result.json"));
        Cmd::new(env!("CARGO_BIN_EXE_evenkeel-agent"))
            .arg("--request")
            .arg(path)
            .arg("--result")
            .arg(self.path("result.json"))
            .arg("--work")
            .arg(self.path("work"))
            .args(["--log", level])
    }

    /// Writes this many keys with values of this size.
    pub(crate) fn fill(&self, keys: u32, value_bytes: usize) {
        let mut client = self.client.clone();
        self.runtime.block_on(async {
            for key in 0..keys {
                let value = random(u64::from(key), value_bytes);
                client
                    .put(format!("filled/{key:06}"), value, None)
                    .await
                    .unwrap();
            }
        });
    }

    /// Returns all files in the store.
    pub(crate) fn stored_files(&self) -> Vec<PathBuf> {
        fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    collect(&path, files);
                } else {
                    files.push(path);
                }
            }
        }
        let mut files = Vec::new();
        collect(&self.path("store"), &mut files);
        files
    }

    /// Restores a snapshot file into a directory with `etcdutl`.
    pub(crate) fn restore(&self, file: &Path, to: &Path) {
        Cmd::new(self.programs.join("etcdutl"))
            .args(["snapshot", "restore"])
            .arg(file)
            .arg("--data-dir")
            .arg(to)
            .run()
            .unwrap();
    }

    /// Starts etcd on restored data, without TLS. Returns its URL.
    pub(crate) fn start_restored(&self, data: &Path) -> (Process, String) {
        let address = fresh_address();
        let url = format!("http://{address}:{CLIENT_PORT}");
        let etcd = start_etcd(&self.programs, data, &url, address, &[]);
        (etcd, url)
    }

    /// Starts etcd on restored data as a drill does: on 127.0.0.1, with certificates that the agent has written. Returns its URL.
    pub(crate) fn start_drilled(&self, data: &Path, certificates: &Path) -> (Process, String) {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", free.local_addr().unwrap());
        drop(free);
        let tls = |name: &str| certificates.join(name).display().to_string();
        let options = [
            format!("--cert-file={}", tls("tls.crt")),
            format!("--key-file={}", tls("tls.key")),
            format!("--trusted-ca-file={}", tls("ca.crt")),
            "--client-cert-auth".to_owned(),
        ];
        let etcd = start_etcd(&self.programs, data, &url, fresh_address(), &options);
        (etcd, url)
    }
}

/// Starts etcd. Its log has the name of the data directory.
fn start_etcd(
    programs: &Path,
    data: &Path,
    url: &str,
    address: IpAddr,
    options: &[String],
) -> Process {
    let peers = format!("http://{address}:{PEER_PORT}");
    let log = std::fs::File::create(data.with_extension("log")).unwrap();
    let child = Cmd::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(programs.join("etcd"))
        .arg("--data-dir")
        .arg(data)
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", &peers, "--log-level", "error"])
        .arg("--unsafe-no-fsync")
        .args(options)
        .spawn(|command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
        });
    Process(child.unwrap())
}

/// Connects once etcd serves. Returns the client and the ID of the cluster.
async fn connect(url: &str, tls: &Path) -> (Client, u64) {
    let read = |name: &str| std::fs::read(tls.join(name)).unwrap();
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(read("ca.crt")))
        .identity(Identity::from_pem(read("tls.crt"), read("tls.key")));
    let options = ConnectOptions::new().with_tls(tls);
    let mut client = Client::connect([url], Some(options)).await.unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        let status = tokio::time::timeout(Duration::from_secs(1), client.get("ready", None)).await;
        if let Ok(Ok(status)) = status {
            return (client, status.header().unwrap().cluster_id());
        }
        assert!(Instant::now() < until, "etcd does not serve: {status:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes a CA, the certificate of the server and that of the client.
fn write_certificates(dir: &Path, addresses: &[IpAddr]) {
    let write = |name: &str, text: String| std::fs::write(dir.join(name), text).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "test");
    write("ca.crt", params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    for (name, file) in [("server", "server"), ("root", "tls")] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = addresses.iter().copied().map(SanType::IpAddress).collect();
        // etcd's gateway connects to its own listener with the certificate of the server.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &issuer).unwrap();
        write(&format!("{file}.crt"), certificate.pem());
        write(&format!("{file}.key"), key.serialize_pem());
    }
}

/// Returns bytes that cannot be compressed.
pub(crate) fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Waits for a process and returns whether it succeeded.
pub(crate) fn wait(process: &mut Process) -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = process.0.try_wait().unwrap() {
            return status.success();
        }
        assert!(Instant::now() < until, "the process does not end");
        sleep(Duration::from_millis(20));
    }
}
