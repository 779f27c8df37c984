//! What writes for one cluster: the loop's hand, and the operator beside it.

use std::ops::Deref;

use evenkeel_api::labels::MANAGER;
use evenkeel_runtime::ResourceKey;

use crate::reconciler::{EtcdReconciler, UNWATCHED};

/// What writes for one resource.
pub(super) struct EtcdWriter<'a> {
    pub(super) reconciler: &'a EtcdReconciler,
    pub(super) key: &'a ResourceKey,
    writer: evenkeel_runtime::ObjectWriter<'a>,
}

impl<'a> EtcdWriter<'a> {
    pub(super) fn new(operator: &'a EtcdReconciler, key: &'a ResourceKey) -> Self {
        let (client, written) = (&operator.client, &operator.expectations);
        let writes = evenkeel_runtime::ObjectWriter {
            client,
            expectations: written,
            key,
            field_manager: MANAGER,
            unwatched_kinds: UNWATCHED,
        };
        Self {
            reconciler: operator,
            key,
            writer: writes,
        }
    }
}

impl<'a> Deref for EtcdWriter<'a> {
    type Target = evenkeel_runtime::ObjectWriter<'a>;

    fn deref(&self) -> &Self::Target {
        &self.writer
    }
}
