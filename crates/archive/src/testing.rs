//! Helpers of the tests: a store in memory that fails at a chosen operation, and backups of small data.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use serde_json::json;

use crate::error::StoreError;
use crate::layout::{BackupLocation, BackupPlace, LineagePath};
use crate::manifest::Manifest;
use crate::store::ArchiveStore;
use crate::writer::{BackupWriter, ManifestDraft};

/// Where the failure of an operation happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailAt {
    /// The operation has no effect.
    Before,
    /// The operation has its effect, and the answer is lost.
    After,
}

/// A store in memory that fails from its n-th operation on, or once.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<InMemory>,
    state: Arc<State>,
    /// Whether conditional writes work.
    pub(crate) has_conditional_writes: bool,
}

#[derive(Debug)]
struct State {
    countdown: AtomicI64,
    fails_after: AtomicBool,
    fails_once: AtomicBool,
    denied_deletes: Mutex<Vec<String>>,
    conflicts: AtomicI64,
}

impl Faulty {
    pub(crate) fn new() -> Arc<Self> {
        Self::with(true)
    }

    pub(crate) fn without_conditional_writes() -> Arc<Self> {
        Self::with(false)
    }

    fn with(has_conditional_writes: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(InMemory::new()),
            state: Arc::new(State {
                countdown: AtomicI64::new(i64::MAX),
                fails_after: AtomicBool::new(false),
                fails_once: AtomicBool::new(false),
                denied_deletes: Mutex::new(Vec::new()),
                conflicts: AtomicI64::new(0),
            }),
            has_conditional_writes,
        })
    }

    /// Lets the n-th operation from now on fail, and, unless `once`, all later ones: the process or the network is gone.
    pub(crate) fn fail(&self, n: i64, at: FailAt, once: bool) {
        self.state
            .fails_after
            .store(at == FailAt::After, Ordering::SeqCst);
        self.state.fails_once.store(once, Ordering::SeqCst);
        self.state.countdown.store(n, Ordering::SeqCst);
    }

    pub(crate) fn recover(&self) {
        self.state.countdown.store(i64::MAX, Ordering::SeqCst);
    }

    /// Returns whether the chosen operation was reached.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.countdown.load(Ordering::SeqCst) < 0
    }

    /// Denies deletions of the objects whose keys end with this text.
    pub(crate) fn deny_deletes_of(&self, key: &str) {
        self.state
            .denied_deletes
            .lock()
            .unwrap()
            .push(key.to_owned());
    }

    pub(crate) fn allow_deletes(&self) {
        self.state.denied_deletes.lock().unwrap().clear();
    }

    /// Lets the next conditional writes conflict with concurrent ones.
    pub(crate) fn conflict(&self, times: i64) {
        self.state.conflicts.store(times, Ordering::SeqCst);
    }

    /// Returns all keys.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self
            .inner
            .list(None)
            .map(|meta| meta.unwrap().location.to_string())
            .collect()
            .await;
        keys.sort();
        keys
    }
}

impl State {
    /// Returns when the next operation fails.
    fn next(&self) -> Option<FailAt> {
        let left = self.countdown.fetch_sub(1, Ordering::SeqCst);
        let fails = left == 0 || (left < 0 && !self.fails_once.load(Ordering::SeqCst));
        fails.then(|| {
            if self.fails_after.load(Ordering::SeqCst) && left == 0 {
                FailAt::After
            } else {
                FailAt::Before
            }
        })
    }

    async fn run<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        match self.next() {
            Some(FailAt::Before) => Err(broken()),
            Some(FailAt::After) => {
                let _ = operation.await;
                Err(broken())
            }
            None => operation.await,
        }
    }
}

fn denial(path: &Path) -> object_store::Error {
    object_store::Error::PermissionDenied {
        path: path.to_string(),
        source:
            "Server returned non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code>\
                 <Message>Object is WORM protected</Message></Error>"
                .into(),
    }
}

fn broken() -> object_store::Error {
    object_store::Error::Generic {
        store: "faulty",
        source: "the store is broken".into(),
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        to: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if !self.has_conditional_writes && options.mode == PutMode::Create {
            return Err(object_store::Error::NotImplemented {
                operation: "conditional put".to_owned(),
                implementer: "faulty".to_owned(),
            });
        }
        if options.mode == PutMode::Create
            && self.state.conflicts.fetch_sub(1, Ordering::SeqCst) > 0
        {
            return Err(object_store::Error::AlreadyExists {
                path: to.to_string(),
                source: "Server returned non-2xx status code: 409 Conflict: <Error><Code>ConditionalRequestConflict</Code>\
                         <Message>A conflicting operation occurred.</Message></Error>"
                    .into(),
            });
        }
        self.state
            .run(self.inner.put_opts(to, payload, options))
            .await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self
            .state
            .run(self.inner.put_multipart_opts(to, options))
            .await?;
        Ok(Box::new(FaultyUpload {
            inner,
            state: Arc::clone(&self.state),
        }))
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        self.state.run(self.inner.get_opts(from, options)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let denied = self.state.denied_deletes.lock().unwrap().clone();
        if !denied.is_empty() {
            let inner = self.inner.clone();
            return paths
                .then(move |path| {
                    let (denied, inner) = (denied.clone(), inner.clone());
                    async move {
                        let path = path?;
                        if !denied.iter().any(|it| path.as_ref().ends_with(it.as_str())) {
                            inner.delete(&path).await?;
                            return Ok(path);
                        }
                        Err(denial(&path))
                    }
                })
                .boxed();
        }
        match self.state.next() {
            None => self.inner.delete_stream(paths),
            Some(FailAt::Before) => paths.map(|_| Err(broken())).boxed(),
            Some(FailAt::After) => self
                .inner
                .delete_stream(paths)
                .map(|_| Err(broken()))
                .boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.state.next() {
            None => self.inner.list(prefix),
            Some(_) => futures::stream::once(async { Err(broken()) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.state.run(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.state
            .run(self.inner.copy_opts(from, to, options))
            .await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    state: Arc<State>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        let state = Arc::clone(&self.state);
        Box::pin(async move { state.run(part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let state = Arc::clone(&self.state);
        state.run(self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        let state = Arc::clone(&self.state);
        state.run(self.inner.abort()).await
    }
}

pub(crate) fn lineage() -> LineagePath {
    LineagePath::new("etcd", "shop", "orders", "7f3a9c01").unwrap()
}

pub(crate) fn place(attempt: &str) -> BackupPlace {
    BackupPlace {
        lineage: lineage(),
        epoch: 1,
        label: "000000000000126f".to_owned(),
        attempt: attempt.to_owned(),
    }
}

pub(crate) fn draft() -> ManifestDraft {
    ManifestDraft {
        engine_version: "3.6.16".to_owned(),
        cluster_id: "9c1f00aa12345678".to_owned(),
        member: "orders-0".to_owned(),
        position: json!({"revision": 4711}),
        position_text: "revision 4711".to_owned(),
        started_at: Timestamp::from_second(1_790_000_000).unwrap(),
        verification: json!({"keys": 12}),
        resource: json!({"kind": "EtcdCluster"}),
        written_by: "evenkeel-agent 0.1.0".to_owned(),
    }
}

/// Returns bytes that compress to about half of their size. Equal seeds give equal bytes.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(2) + 1);
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(16) {
        let value = random.next().to_le_bytes();
        let end = chunk.len().min(8);
        chunk[..end].copy_from_slice(&value[..end]);
    }
    bytes
}

/// A small deterministic source of numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

pub(crate) fn archive(objects: &Arc<Faulty>) -> ArchiveStore {
    ArchiveStore::on(Arc::clone(objects) as Arc<dyn ObjectStore>, "prod/eu1").unwrap()
}

/// Writes a backup.
pub(crate) async fn back_up(
    store: &ArchiveStore,
    attempt: &str,
    data: &[u8],
) -> std::result::Result<(BackupLocation, Manifest), StoreError> {
    back_up_at(store, place(attempt), data).await
}

pub(crate) async fn back_up_at(
    store: &ArchiveStore,
    place: BackupPlace,
    data: &[u8],
) -> std::result::Result<(BackupLocation, Manifest), StoreError> {
    let mut writer = BackupWriter::begin(store, place).await?;
    for chunk in data.chunks(32 << 10) {
        writer.write(chunk).await?;
    }
    writer.commit(draft()).await
}
