//! The StorageClasses that decide whether the operator accepts an edit, read as the operator reads them.

use std::time::Duration;

use evenkeel_api::{Rejection, quantity};
use evenkeel_etcd::effective_spec::ClusterHistory;
use evenkeel_etcd::observe::objects::ClusterObjects;
use evenkeel_kit::volumes::StorageClasses;
use kube::Client;

/// What is known about StorageClasses.
#[derive(Debug, Default)]
pub(super) struct ClassFacts {
    /// A class of existing volumes that does not allow expansion, if volumes have to grow.
    pub(super) fixed_size: Option<String>,
    /// The desired class, if it does not exist.
    pub(super) missing: Option<String>,
    /// The classes that the user may not read.
    pub(super) forbidden: Vec<String>,
}

impl ClassFacts {
    /// Reads the desired class, and the classes of volumes that have to grow.
    pub(super) async fn read(
        client: &Client,
        objects: &ClusterObjects,
    ) -> Result<Self, evenkeel_runtime::Error> {
        let storage = &objects.resource.spec.storage;
        let size = quantity::bytes(&storage.size).unwrap_or_default();
        let (classes, uptime) = (StorageClasses::default(), Duration::ZERO);
        let claims = &objects.claims;
        let desired = storage.class.as_deref().filter(|_| !storage.ephemeral);
        Ok(Self {
            fixed_size: classes
                .fixed_size_class(client, uptime, size, claims)
                .await?,
            missing: classes
                .missing_class(client, uptime, desired, claims)
                .await?,
            forbidden: classes.forbidden().into_iter().collect(),
        })
    }

    /// Adds the facts to the history of a cluster.
    pub(super) fn add_to(&self, history: ClusterHistory) -> ClusterHistory {
        history.with_classes(self.fixed_size.clone(), self.missing.clone())
    }

    /// Returns what the plan does not show by itself: a missing class that the operator accepts, because no volume of another
    /// class exists, or classes that were not checked.
    pub(super) fn note(&self, rejection: Option<&Rejection>) -> Option<String> {
        let is_rejected =
            rejection.is_some_and(|rejection| rejection.field == "spec.storage.class");
        match (&self.missing, self.forbidden.as_slice()) {
            (Some(class), _) if !is_rejected => Some(format!(
                "StorageClass {class} does not exist: pods of new members stay Pending until it is created"
            )),
            (_, []) => None,
            (_, forbidden) => Some(format!(
                "your user cannot read StorageClass {}: the plan does not check that it exists and that its volumes can grow",
                forbidden.join(" and StorageClass ")
            )),
        }
    }
}
