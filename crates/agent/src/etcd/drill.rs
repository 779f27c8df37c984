//! A drill: a restored etcd on loopback is compared with the manifest of the backup that it was restored from.

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, Client, GetOptions};
use evenkeel_archive::ArchiveStore;
use evenkeel_archive::reader::read_manifest;
use evenkeel_archive::tasks::{EtcdDrillTask, FailureReason, TaskResult};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::ENGINE;
use super::connect::{call, connect_on_loopback};
use super::contents::{KeySample, hex};
use super::verify::{EtcdVerification, KvHashResult};
use crate::AgentFailure;

/// The time limit of a request, and of one attempt to connect.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval between attempts to read from an etcd that starts.
const START_INTERVAL: Duration = Duration::from_millis(200);
/// The bytes of data that etcd loads for one page of keys, on average: etcd reads the values even if only keys are
/// requested.
const PAGE_BYTES: u64 = 8 << 20;
/// The largest number of keys in a page.
const MAX_PAGE_KEYS: u64 = 10_000;
/// The first key of all keys, and the end of a range without an end.
const ALL: &[u8] = &[0];

/// Compares a restored etcd with a manifest. The caller limits the time that etcd has to start.
pub async fn drill(store: &ArchiveStore, task: &EtcdDrillTask) -> Result<TaskResult, AgentFailure> {
    let started_at: Timestamp = task.started_at.parse().map_err(|error| {
        AgentFailure::new(
            FailureReason::InvalidRequest,
            format!("The time {:?} is invalid: {error}.", task.started_at),
        )
    })?;
    let manifest = read_manifest(store, &task.location).await?;
    if manifest.engine != ENGINE {
        return Err(AgentFailure::new(
            FailureReason::NotSupported,
            format!("The backup is of engine {}, not of etcd.", manifest.engine),
        ));
    }
    let expected = EtcdVerification::of(&manifest)?;
    if expected.contents.has_auth && task.tls.is_none() {
        return Err(AgentFailure::new(
            FailureReason::NotSupported,
            "The cluster requires authentication, and the drill has no certificate. The backup was downloaded, verified and \
             restored, and its keys were not compared. Use the agent of the operator's version.",
        ));
    }
    let client = wait_until_serving(task).await?;
    let seconds = Timestamp::now().duration_since(started_at).as_secs();
    tracing::info!(seconds, "restored etcd serves");
    let average = manifest.plain.size / expected.contents.keys.unwrap_or(1).max(1);
    let mut comparison = Comparison {
        client,
        expected,
        page_keys: (PAGE_BYTES / average.max(1)).clamp(1, MAX_PAGE_KEYS),
        differences: Vec::new(),
    };
    let keys = comparison.run().await?;
    if comparison.differences.is_empty() {
        return Ok(TaskResult::Proven {
            seconds: seconds.max(0).unsigned_abs(),
            keys,
        });
    }
    Err(AgentFailure::new(
        FailureReason::DataDiffers,
        format!(
            "The restored etcd differs from the manifest of the backup: {}. Do not rely on this backup: take another one.",
            comparison.differences.join("; ")
        ),
    ))
}

/// Connects and reads until etcd answers a linearizable read.
async fn wait_until_serving(task: &EtcdDrillTask) -> Result<Client, AgentFailure> {
    let (url, tls) = (&task.endpoint, task.tls.as_deref());
    loop {
        let failure = match connect_on_loopback(url, tls, REQUEST_TIMEOUT).await {
            Ok(mut client) => match call("read", REQUEST_TIMEOUT, client.get(ALL, None)).await {
                Ok(_) => return Ok(client),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        if failure.reason == FailureReason::InvalidRequest {
            return Err(failure);
        }
        tracing::debug!(%failure, "restored etcd does not serve yet");
        tokio::time::sleep(START_INTERVAL).await;
    }
}

struct Comparison {
    client: Client,
    expected: EtcdVerification,
    page_keys: u64,
    differences: Vec<String>,
}

impl Comparison {
    /// Compares all facts. Returns the number of keys at the manifest's revision.
    async fn run(&mut self) -> Result<u64, AgentFailure> {
        let contents = &self.expected.contents;
        let (revision, has_leases) = (contents.revision, contents.leases > 0);
        let current = self.current_revision().await?;
        // A lease that ends deletes its keys at a new revision, so that a running etcd may be ahead.
        let is_expected = current == revision || (has_leases && current > revision);
        if !is_expected {
            self.differs(format!("its revision is {current} instead of {revision}"));
            if current < revision {
                return Ok(0);
            }
        }
        self.compare_hash(revision).await?;
        self.compare_alarms().await?;
        let keys = self.compare_count(revision).await?;
        self.compare_samples(revision).await?;
        Ok(keys)
    }

    fn differs(&mut self, difference: String) {
        self.differences.push(difference);
    }

    async fn current_revision(&mut self) -> Result<i64, AgentFailure> {
        let status = call("read the status", REQUEST_TIMEOUT, self.client.status()).await?;
        Ok(status.header().map_or(0, |header| header.revision()))
    }

    async fn compare_hash(&mut self, revision: i64) -> Result<(), AgentFailure> {
        let KvHashResult::Known(expected) = self.expected.hash_kv.clone() else {
            return Ok(());
        };
        let answer = self.client.hash_kv(revision);
        let answer = call("read the hash of all keys", REQUEST_TIMEOUT, answer).await?;
        let compact_revision = answer.compact_version().max(0);
        if compact_revision != expected.compact_revision {
            self.differs(format!(
                "its history begins after revision {compact_revision} instead of {}",
                expected.compact_revision
            ));
        } else if answer.hash() != expected.hash {
            self.differs("the hash over all keys is another one".to_owned());
        }
        Ok(())
    }

    async fn compare_alarms(&mut self) -> Result<(), AgentFailure> {
        let list = self.client.alarm(AlarmAction::Get, AlarmType::None, None);
        let list = call("list the alarms", REQUEST_TIMEOUT, list).await?;
        let alarms: Vec<String> = list
            .alarms()
            .iter()
            .map(|alarm| format!("{:?}", alarm.alarm()))
            .collect();
        if !alarms.is_empty() {
            self.differs(format!("it has the alarms {}", alarms.join(", ")));
        }
        Ok(())
    }

    async fn compare_count(&mut self, revision: i64) -> Result<u64, AgentFailure> {
        let options = GetOptions::new()
            .with_range(ALL)
            .with_count_only()
            .with_revision(revision);
        let answer = self.client.get(ALL, Some(options));
        let answer = call("count the keys", REQUEST_TIMEOUT, answer).await?;
        let found = answer.count().max(0).unsigned_abs();
        match self.expected.contents.keys {
            Some(expected) if expected != found => {
                self.differs(format!("it has {found} keys instead of {expected}"));
            }
            Some(_) | None => {}
        }
        Ok(found)
    }

    /// Finds the sampled keys by their hashes and compares revisions and values.
    async fn compare_samples(&mut self, revision: i64) -> Result<(), AgentFailure> {
        let samples = self.expected.contents.samples.iter().cloned();
        let mut missing: HashMap<String, KeySample> = samples
            .map(|sample| (sample.key_sha256.clone(), sample))
            .collect();
        let (mut start, mut differing) = (ALL.to_vec(), 0);
        while !missing.is_empty() {
            let options = GetOptions::new()
                .with_range(ALL)
                .with_keys_only()
                .with_limit(self.page_keys.cast_signed())
                .with_revision(revision);
            let page = self.client.get(start.clone(), Some(options));
            let page = call("list keys", REQUEST_TIMEOUT, page).await?;
            let Some(last) = page.kvs().last() else {
                break;
            };
            start = last.key().to_vec();
            start.push(0);
            for entry in page.kvs() {
                if let Some(sample) = missing.remove(&hex(&Sha256::digest(entry.key())))
                    && !self.is_sample(&sample, entry.key(), revision).await?
                {
                    differing += 1;
                }
            }
            if !page.more() {
                break;
            }
        }
        if !missing.is_empty() {
            self.differs(format!("{} sampled keys are missing", missing.len()));
        }
        if differing > 0 {
            self.differs(format!(
                "{differing} sampled keys have another value or revision"
            ));
        }
        Ok(())
    }

    async fn is_sample(
        &self,
        sample: &KeySample,
        key: &[u8],
        revision: i64,
    ) -> Result<bool, AgentFailure> {
        // A value can be larger than the default limit of a message; etcd limits requests, and the agent's memory limits this.
        let mut client = self
            .client
            .kv_client()
            .max_decoding_message_size(MAX_VALUE_BYTES);
        let options = GetOptions::new().with_revision(revision);
        let answer = call(
            "read a sampled key",
            REQUEST_TIMEOUT,
            client.get(key, Some(options)),
        )
        .await?;
        Ok(answer.kvs().first().is_some_and(|found| {
            found.mod_revision() == sample.mod_revision
                && hex(&Sha256::digest(found.value())) == sample.value_sha256
        }))
    }
}

/// The largest answer with one value, in bytes. etcd accepts requests of 1.5 MiB by default.
const MAX_VALUE_BYTES: usize = 24 << 20;
