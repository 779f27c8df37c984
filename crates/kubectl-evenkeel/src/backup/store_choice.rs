//! Chooses the store of a backup, and checks whether a backup can be taken now. Pure.

use evenkeel_api::{BackupSchedule, BackupStore};
use kube::ResourceExt;

use super::report::{find_condition, reason_text};
use crate::error::{CliError, EXIT_NOT_FOUND, EXIT_USAGE};
use crate::report::{ClusterReport, HealthState, answering_voters};

/// The schedules and stores that a store is chosen from.
pub(super) struct StoreChoices<'c> {
    /// The name of the cluster.
    pub(super) cluster: &'c str,
    /// The namespace.
    pub(super) namespace: &'c str,
    /// The schedules of the cluster.
    pub(super) schedules: Vec<&'c BackupSchedule>,
    /// The stores of the namespace.
    pub(super) stores: &'c [BackupStore],
}

impl<'c> StoreChoices<'c> {
    /// Returns the store that the user names, or else the one of the cluster's schedules, or else the only one.
    pub(super) fn choose(&self, named: Option<&str>) -> Result<&'c BackupStore, CliError> {
        if let Some(name) = named {
            return find(self.stores, name, self.namespace);
        }
        let mut scheduled: Vec<_> = self
            .schedules
            .iter()
            .map(|schedule| schedule.spec.policy.store.as_str())
            .collect();
        scheduled.sort_unstable();
        scheduled.dedup();
        match (scheduled.as_slice(), self.stores) {
            ([name], _) => find(self.stores, name, self.namespace),
            ([], [only]) => Ok(only),
            ([], []) => Err(no_store(self.namespace)),
            ([], _) => Err(CliError::new(format!(
                "several BackupStores in namespace {}: {}; choose one with --store",
                self.namespace,
                names(self.stores)
            ))
            .exit_code(EXIT_USAGE)),
            (several, _) => Err(CliError::new(format!(
                "the BackupSchedules of EtcdCluster {} have several stores: {}; choose one with --store",
                self.cluster,
                several.join(", ")
            ))
            .exit_code(EXIT_USAGE)),
        }
    }

    /// Returns the deadline of the schedule that uses a store.
    pub(super) fn deadline(&self, store: &str) -> Option<&'c str> {
        let mut schedules = self.schedules.iter();
        let schedule = schedules.find(|schedule| schedule.spec.policy.store == store)?;
        Some(&schedule.spec.policy.deadline)
    }
}

/// Returns the store of a name.
pub(super) fn find<'s>(
    stores: &'s [BackupStore],
    name: &str,
    namespace: &str,
) -> Result<&'s BackupStore, CliError> {
    if let Some(store) = stores.iter().find(|store| store.name_any() == name) {
        return Ok(store);
    }
    if stores.is_empty() {
        return Err(no_store(namespace));
    }
    Err(CliError::new(format!(
        "BackupStore {name} not found in namespace {namespace}"
    ))
    .help(format!("existing stores: {}", names(stores)))
    .exit_code(EXIT_NOT_FOUND))
}

fn names(stores: &[BackupStore]) -> String {
    let names: Vec<_> = stores.iter().map(ResourceExt::name_any).collect();
    names.join(", ")
}

fn no_store(namespace: &str) -> CliError {
    CliError::new(format!("namespace {namespace} has no BackupStore"))
        .help("create one, for a bucket or a volume: `kubectl explain backupstore.spec` describes its fields")
        .exit_code(EXIT_NOT_FOUND)
}

/// The readiness of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreReadiness {
    /// The store can be used.
    Ready,
    /// The operator has not checked the store, or not in its current form.
    NotChecked,
    /// The store cannot be used, for this reason.
    NotReady(String),
}

/// Returns the readiness of a store.
pub(super) fn readiness(store: &BackupStore) -> StoreReadiness {
    let Some(status) = &store.status else {
        return StoreReadiness::NotChecked;
    };
    let is_outdated = status.observed_generation < store.metadata.generation;
    match find_condition(&status.conditions, "Ready") {
        Some(ready) if ready.status == "True" => StoreReadiness::Ready,
        Some(ready) if ready.status == "False" && !is_outdated => {
            StoreReadiness::NotReady(reason_text(&ready.reason, &ready.message))
        }
        Some(_) | None => StoreReadiness::NotChecked,
    }
}

/// Returns an error if no backup can be taken now: no operator is running, the store cannot be used, or the cluster has no
/// quorum.
pub(super) fn require_possible(
    report: &ClusterReport,
    store: &BackupStore,
) -> Result<(), CliError> {
    require_operator(report)?;
    let name = &report.name;
    if let StoreReadiness::NotReady(reason) = readiness(store) {
        let store = store.name_any();
        return Err(CliError::new(format!(
            "BackupStore {store} is not Ready: {reason}. Nothing was created"
        ))
        .help(format!(
            "correct the store; `kubectl get backupstore {store}` shows when it is Ready"
        )));
    }
    if report.health.state == HealthState::Creating {
        return Err(CliError::new(format!(
            "the bootstrap of EtcdCluster {name} is not finished. Nothing was created"
        ))
        .help(format!(
            "`kubectl evenkeel status {name}` shows the progress"
        )));
    }
    let count = &report.member_count;
    let is_restarting = report.health.state == HealthState::Restarting;
    if let Some(serving) = count.serving
        && serving <= count.voters / 2
        && !is_restarting
    {
        return Err(CliError::new(format!(
            "EtcdCluster {name} has no quorum: {}. A backup is read from a healthy member. Nothing was created",
            answering_voters(serving, count.voters)
        ))
        .help(format!("`kubectl evenkeel why {name}` shows the cause and the required action")));
    }
    Ok(())
}

/// Returns an error if no operator would carry out a request.
pub(super) fn require_operator(report: &ClusterReport) -> Result<(), CliError> {
    let operator = &report.operator;
    if operator.running != Some(false) {
        return Ok(());
    }
    Err(missing_operator(&operator.namespace, &operator.message))
}

/// The error for a request that no operator would carry out. `namespace` is the operator's; empty if operators watch other
/// namespaces only.
pub(super) fn missing_operator(namespace: &str, lease: &str) -> CliError {
    let (fact, help) = match namespace {
        "" => (
            "no operator watches this namespace",
            "add the namespace to the operator's flag --namespaces, or install an operator for it"
                .to_owned(),
        ),
        namespace => (
            "no operator is running",
            format!("check the operator: `kubectl -n {namespace} get deployments,pods`"),
        ),
    };
    CliError::new(format!("{fact}: {lease}. Nothing was created")).help(help)
}

#[cfg(test)]
#[path = "store_choice_tests.rs"]
mod tests;
