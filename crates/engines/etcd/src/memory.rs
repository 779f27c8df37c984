//! The state of a cluster that the operator keeps in memory between reconciles. A restart loses it,
//! and no safety property depends on it.

use evenkeel_kit::tls_secrets::TlsCache;
use evenkeel_kit::volume_events::VolumeEvents;
use evenkeel_kit::volumes::VolumeCache;
use evenkeel_runtime::{Observed, UnixTime};
use parking_lot::Mutex;

use crate::client::Connections;
use crate::facts::{OwnedObject, StuckMember};
use crate::identity::ClusterId;
use crate::observe::unreachable::MemberTimes;

/// The memory of one cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterMemory {
    /// The connections to the members.
    pub(crate) connections: Connections,
    /// The last evaluation of the TLS Secrets.
    pub(crate) tls: TlsCache<OwnedObject>,
    /// The locations of the volumes.
    pub(crate) volumes: VolumeCache,
    /// The events of PVCs that are not bound.
    pub(crate) volume_events: VolumeEvents,
    /// Since when members have been unreachable or unknown.
    pub(crate) member_times: Mutex<MemberTimes>,
    /// Results that only a probe obtains.
    pub(crate) last_probe: Mutex<ProbeMemory>,
    /// The progress of a forced snapshot.
    pub(crate) snapshot: Mutex<Option<SnapshotProgress>>,
    /// When a stuck member was last nudged, successfully or not.
    pub(crate) last_nudge: Mutex<Option<UnixTime>>,
}

/// Results that only a probe obtains, because they take seconds if something is broken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProbeMemory {
    /// Whether a read through the client Service was answered.
    pub(crate) client_read: Observed<()>,
    /// The stuck member.
    pub(crate) stuck: Option<StuckMember>,
}

/// The beginning of a forced snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotProgress {
    /// The cluster that the snapshot was begun in.
    pub(crate) cluster_id: Option<ClusterId>,
    /// The index of the last raft log entry when it was begun.
    pub(crate) first_index: u64,
}
