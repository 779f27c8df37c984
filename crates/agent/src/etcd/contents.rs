//! The contents of a snapshot, read from the data itself: revision, counts, and samples that a drill compares. Memory does not
//! depend on the number of keys.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::bolt::{BoltError, BoltFile, BoltValue, BoltVisitor, ReadAt};

/// The largest number of sampled keys.
pub const MAX_SAMPLES: usize = 32;
/// The largest key that is sampled, in bytes.
const MAX_SAMPLED_KEY_BYTES: u64 = 4096;
/// The bytes of a revision: main, `_`, sub.
const REVISION_BYTES: usize = 17;
/// The bucket that has the revision of the last compaction.
const META_BUCKET: &[u8] = b"meta";
/// The mark behind the revision of a deletion.
const TOMBSTONE: u8 = b't';

/// The contents of a snapshot of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotContents {
    /// The revision.
    pub revision: i64,
    /// The revision of the last compaction, 0 if there was none.
    pub compact_revision: i64,
    /// The number of keys. It is unknown while a compaction is not finished: the data then contains an unknown part of the
    /// compacted records.
    pub keys: Option<u64>,
    /// The number of records: the keys with their history since the last compaction.
    pub records: u64,
    /// The number of leases.
    pub leases: u64,
    /// The number of users.
    pub users: u64,
    /// The number of roles.
    pub roles: u64,
    /// Whether clients must authenticate.
    pub has_auth: bool,
    /// The number of alarms.
    pub alarms: u64,
    /// The version of the storage, which etcd 3.6 and newer versions write.
    pub storage_version: Option<String>,
    /// Some keys, in the order of their revisions.
    pub samples: Vec<KeySample>,
}

/// A key whose value a drill compares. It contains hashes only: keys and values may be secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeySample {
    /// The SHA-256 of the key in hexadecimal digits.
    pub key_sha256: String,
    /// The revision of the last change.
    pub mod_revision: i64,
    /// The SHA-256 of the value in hexadecimal digits.
    pub value_sha256: String,
}

impl SnapshotContents {
    /// Reads the contents of a database of this many bytes.
    pub fn read(file: &dyn ReadAt, bytes: u64) -> Result<Self, BoltError> {
        let mut reader = ContentsReader::default();
        // The number of keys depends on the revision of the compaction, which is in bucket `meta`.
        BoltFile::open(file, bytes)?.walk(META_BUCKET, &mut reader)?;
        reader.finish()
    }
}

/// Returns bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The buckets of etcd. Others are walked and not counted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Bucket {
    Key,
    Meta,
    Lease,
    Auth,
    Users,
    Roles,
    Alarm,
    #[default]
    Other,
}

/// The state of a walk.
#[derive(Default)]
struct ContentsReader {
    bucket: Bucket,
    has_key_bucket: bool,
    has_meta_bucket: bool,
    last_record: i64,
    scheduled_compaction: i64,
    finished_compaction: i64,
    records: u64,
    /// The records that begin the life of a key, as seen from the compaction: all puts at or below its revision, because the
    /// compaction leaves one put per key that lives, and the puts of version 1 above.
    begins: u64,
    /// The deletions above the revision of the compaction.
    ends: u64,
    leases: u64,
    users: u64,
    roles: u64,
    has_auth: bool,
    alarms: u64,
    storage_version: Option<String>,
    samples: SampledKeys,
}

impl BoltVisitor for ContentsReader {
    fn begin_bucket(&mut self, name: &[u8]) -> Result<(), BoltError> {
        self.bucket = match name {
            b"key" => Bucket::Key,
            META_BUCKET => Bucket::Meta,
            b"lease" => Bucket::Lease,
            b"auth" => Bucket::Auth,
            b"authUsers" => Bucket::Users,
            b"authRoles" => Bucket::Roles,
            b"alarm" => Bucket::Alarm,
            _ => Bucket::Other,
        };
        self.has_key_bucket |= self.bucket == Bucket::Key;
        self.has_meta_bucket |= self.bucket == Bucket::Meta;
        Ok(())
    }

    fn visit_item(&mut self, key: &[u8], value: &mut BoltValue<'_>) -> Result<(), BoltError> {
        match self.bucket {
            Bucket::Key => self.visit_record(key, value)?,
            Bucket::Meta => self.visit_meta(key, value)?,
            Bucket::Auth => {
                if key == b"authEnabled" {
                    self.has_auth = value.length() == 1 && value.part(0, 1)? == [1];
                }
            }
            Bucket::Lease => self.leases += 1,
            Bucket::Users => self.users += 1,
            Bucket::Roles => self.roles += 1,
            Bucket::Alarm => self.alarms += 1,
            Bucket::Other => {}
        }
        Ok(())
    }
}

impl ContentsReader {
    fn visit_meta(&mut self, key: &[u8], value: &mut BoltValue<'_>) -> Result<(), BoltError> {
        match key {
            b"scheduledCompactRev" => self.scheduled_compaction = compaction(value)?,
            b"finishedCompactRev" => self.finished_compaction = compaction(value)?,
            b"storageVersion" => {
                let length = value.length().min(64);
                let text = String::from_utf8_lossy(value.part(0, length)?).into_owned();
                self.storage_version = Some(text);
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_record(&mut self, key: &[u8], value: &mut BoltValue<'_>) -> Result<(), BoltError> {
        let (revision, is_tombstone) = match (revision(key), key.get(REVISION_BYTES..)) {
            (Some(revision), Some([])) => (revision, false),
            (Some(revision), Some([TOMBSTONE])) => (revision, true),
            _ => return value.damaged("a key of bucket `key` is not a revision"),
        };
        self.last_record = revision;
        self.records += 1;
        // `etcdutl snapshot restore --bump-revision` writes an empty record, which is no key.
        if value.length() == 0 {
            return Ok(());
        }
        let record = Record::parse(value)?;
        if record.key.is_empty() {
            return value.damaged("a record has no key");
        }
        let is_consistent = is_tombstone || (record.mod_revision == revision && record.version > 0);
        if !is_consistent {
            return value.damaged("a record has the revision of another record");
        }
        let is_compacted = revision <= self.compaction();
        match (is_tombstone, is_compacted) {
            (false, true) => self.begins += 1,
            (false, false) if record.version == 1 => self.begins += 1,
            (false, false) | (true, true) => {}
            (true, false) => self.ends += 1,
        }
        self.samples.visit(&record, is_tombstone, value)
    }

    fn compaction(&self) -> i64 {
        self.scheduled_compaction.max(self.finished_compaction)
    }

    fn finish(self) -> Result<SnapshotContents, BoltError> {
        if !self.has_key_bucket || !self.has_meta_bucket {
            return Err(BoltError::Damaged {
                offset: 0,
                problem: "the database is not etcd's: it has no bucket `key` or no bucket `meta`",
            });
        }
        let compact_revision = self.compaction();
        let is_compacting = self.scheduled_compaction > self.finished_compaction;
        let keys = self.begins.checked_sub(self.ends);
        Ok(SnapshotContents {
            // etcd begins with revision 1, and a compaction may delete the record of the last revision.
            revision: self.last_record.max(compact_revision).max(1),
            compact_revision,
            keys: keys.filter(|_| !is_compacting),
            records: self.records,
            leases: self.leases,
            users: self.users,
            roles: self.roles,
            has_auth: self.has_auth,
            alarms: self.alarms,
            storage_version: self.storage_version,
            samples: self.samples.finish(),
        })
    }
}

/// Returns the main revision of 17 bytes or more.
fn revision(bytes: &[u8]) -> Option<i64> {
    let (main, rest) = bytes.split_first_chunk::<8>()?;
    let (separator, rest) = rest.split_first()?;
    rest.first_chunk::<8>()?;
    let main = i64::from_be_bytes(*main);
    (*separator == b'_' && main > 0).then_some(main)
}

fn compaction(value: &mut BoltValue<'_>) -> Result<i64, BoltError> {
    let bytes = value.part(0, value.length().min(REVISION_BYTES as u64))?;
    match revision(bytes) {
        Some(revision) => Ok(revision),
        None => value.damaged("the revision of the compaction is invalid"),
    }
}

/// The fields of a record that are needed.
#[derive(Default)]
struct Record {
    key: Range<u64>,
    mod_revision: i64,
    version: i64,
    value: Range<u64>,
}

impl Record {
    /// Parses a `mvccpb.KeyValue` without reading its value.
    fn parse(bytes: &mut BoltValue<'_>) -> Result<Self, BoltError> {
        let (mut record, mut at) = (Self::default(), 0);
        while at < bytes.length() {
            let tag = varint(bytes, &mut at)?;
            match tag & 7 {
                0 => {
                    // Negative numbers are written as their two's complement.
                    let number = varint(bytes, &mut at)?.cast_signed();
                    match tag >> 3 {
                        3 => record.mod_revision = number,
                        4 => record.version = number,
                        _ => {}
                    }
                }
                1 => at += 8,
                2 => {
                    let length = varint(bytes, &mut at)?;
                    let Some(end) = at.checked_add(length).filter(|end| *end <= bytes.length())
                    else {
                        return bytes.damaged("a field exceeds its value");
                    };
                    match tag >> 3 {
                        1 => record.key = at..end,
                        5 => record.value = at..end,
                        _ => {}
                    }
                    at = end;
                }
                5 => at += 4,
                _ => return bytes.damaged("a record is not a KeyValue"),
            }
        }
        if at != bytes.length() {
            return bytes.damaged("a field exceeds its value");
        }
        Ok(record)
    }
}

fn varint(bytes: &mut BoltValue<'_>, at: &mut u64) -> Result<u64, BoltError> {
    let available = bytes.length().saturating_sub(*at).min(10);
    let mut number = 0;
    for (index, byte) in bytes.part(*at, available)?.iter().enumerate() {
        // The tenth byte has one bit.
        if index == 9 && *byte > 1 {
            break;
        }
        number |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            *at += index as u64 + 1;
            return Ok(number);
        }
    }
    bytes.damaged("a number is incomplete")
}

/// The sampled keys: those with the lowest hashes, so that each key is as likely as any other, and the same file yields the
/// same sample.
#[derive(Default)]
struct SampledKeys {
    keys: HashMap<Vec<u8>, Candidate>,
    /// The highest rank in a full sample.
    highest: u64,
}

struct Candidate {
    rank: u64,
    mod_revision: i64,
    value: [u8; 32],
}

impl SampledKeys {
    fn visit(
        &mut self,
        record: &Record,
        is_tombstone: bool,
        bytes: &mut BoltValue<'_>,
    ) -> Result<(), BoltError> {
        let length = record.key.end - record.key.start;
        if length > MAX_SAMPLED_KEY_BYTES {
            return Ok(());
        }
        let key = bytes.part(record.key.start, length)?;
        let rank = rank(key);
        let is_full = self.keys.len() == MAX_SAMPLES;
        if is_full && rank > self.highest {
            return Ok(());
        }
        if is_tombstone {
            self.keys.remove(key);
            return Ok(());
        }
        let key = key.to_vec();
        let mut hash = Sha256::new();
        bytes.for_each_part(&record.value, &mut |part| hash.update(part))?;
        let candidate = Candidate {
            rank,
            mod_revision: record.mod_revision,
            value: hash.finalize().into(),
        };
        self.keys.insert(key, candidate);
        if self.keys.len() > MAX_SAMPLES {
            let last = self.keys.iter().max_by_key(|(_, one)| one.rank);
            if let Some(last) = last.map(|(key, _)| key.clone()) {
                self.keys.remove(&last);
            }
        }
        let ranks = self.keys.values().map(|one| one.rank);
        self.highest = ranks.max().unwrap_or_default();
        Ok(())
    }

    fn finish(self) -> Vec<KeySample> {
        let samples = self.keys.into_iter().map(|(key, one)| KeySample {
            key_sha256: hex(&Sha256::digest(key)),
            mod_revision: one.mod_revision,
            value_sha256: hex(&one.value),
        });
        let mut samples: Vec<_> = samples.collect();
        samples
            .sort_by(|a, b| (a.mod_revision, &a.key_sha256).cmp(&(b.mod_revision, &b.key_sha256)));
        samples
    }
}

/// Returns a hash of a key that depends on all of its bits.
fn rank(key: &[u8]) -> u64 {
    let mut hash = key.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
