//! The context of an action: the observation that it was decided on, and the means to carry it out.

use evenkeel_api::labels::MANAGER;
use evenkeel_runtime::{Expectations, ObjectWriter, ResourceKey, SharedClock};
use kube::Client;

use crate::client::{Connections, TlsCredentials};
use crate::facts::EtcdFacts;
use crate::memory::ClusterMemory;
use crate::observe::ObservedCluster;

/// The kinds that the operator writes and does not watch.
const UNWATCHED_KINDS: &[&str] = &["Secret"];

/// The means of the reconciler that actions share.
pub(crate) struct ExecuteDeps<'a> {
    pub(crate) client: &'a Client,
    pub(crate) clock: &'a SharedClock,
    pub(crate) expectations: &'a Expectations<ResourceKey>,
    pub(crate) key: &'a ResourceKey,
    pub(crate) memory: &'a ClusterMemory,
    pub(crate) agent_image: Option<&'a str>,
}

/// The context of one action.
pub(crate) struct ExecuteContext<'a> {
    /// The objects that the action was decided on.
    pub(crate) observed: &'a ObservedCluster,
    /// The facts that the action was decided on.
    pub(crate) facts: &'a EtcdFacts,
    /// Writes objects with preconditions.
    pub(crate) writer: ObjectWriter<'a>,
    pub(crate) clock: &'a SharedClock,
    pub(crate) memory: &'a ClusterMemory,
    /// The image of the agent.
    pub(crate) agent_image: Option<&'a str>,
    /// Returns true while the operator holds its lease.
    pub(crate) holds_lease: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> ExecuteContext<'a> {
    pub(crate) fn new(
        means: &ExecuteDeps<'a>,
        observed: &'a ObservedCluster,
        facts: &'a EtcdFacts,
        holds_lease: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self {
            observed,
            facts,
            writer: ObjectWriter {
                client: means.client,
                expectations: means.expectations,
                key: means.key,
                field_manager: MANAGER,
                unwatched_kinds: UNWATCHED_KINDS,
            },
            clock: means.clock,
            memory: means.memory,
            agent_image: means.agent_image,
            holds_lease,
        }
    }

    pub(super) fn key(&self) -> &'a ResourceKey {
        self.writer.key
    }

    pub(super) fn connections(&self) -> &'a Connections {
        &self.memory.connections
    }

    pub(super) fn credentials(&self) -> Option<&'a TlsCredentials> {
        self.observed.tls.credentials.as_ref()
    }
}
