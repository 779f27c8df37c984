//! Translates the objects around a BackupSchedule into facts, without I/O.

use std::collections::BTreeSet;

use evenkeel_api::backup::labels;
use evenkeel_api::{Backup, BackupSchedule, BackupStore, DrillResultStatus, quantity};
use evenkeel_archive::tasks::{Outcome, Request, Task, TaskResult};
use evenkeel_kit::pods;
use evenkeel_runtime::{Observed, UnixTime};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;

use super::drill_pod;
use super::facts::{
    BackedUpCluster, BackupFacts, DrillPodFacts, DrillRecord, PrunePodFacts, RecordedTimes,
    ScheduleFacts, StoreFacts, drill_pod_name, due_of, prune_pod_name,
};
use crate::agent_pod;
use crate::conditions::{find, unix};
use crate::engine::ClusterSource;
use crate::outcome::{self, AgentState};

/// The objects around a schedule.
#[derive(Clone, Debug)]
pub struct ScheduleObjects {
    /// The schedule.
    pub schedule: BackupSchedule,
    /// All Backups in the namespace.
    pub backups: Vec<Backup>,
    /// The store.
    pub store: Option<BackupStore>,
    /// All pods of agents in the namespace.
    pub pods: Vec<Pod>,
    /// The name of the engine, and the cluster.
    pub cluster: Option<(&'static str, ClusterSource)>,
}

impl ScheduleObjects {
    /// Returns the facts.
    pub fn facts(&self, now: UnixTime) -> ScheduleFacts {
        let schedule = &self.schedule;
        let (name, spec) = (schedule.name_any(), &schedule.spec);
        let created = schedule.metadata.creation_timestamp.as_ref();
        let backups = self
            .backups
            .iter()
            .map(|backup| backup_facts(&name, backup, spec));
        ScheduleFacts {
            now,
            created: created.map_or(now, unix),
            policy: spec.policy.clone(),
            recorded: self.recorded(),
            backups: backups.flatten().collect(),
            store: self.store.as_ref().map(store_facts).into(),
            cluster: self.cluster_facts(),
            prune: self
                .own_pod(&prune_pod_name(&name))
                .map(|pod| prune_facts(pod, now)),
            drill: self
                .own_pod(&drill_pod_name(&name))
                .and_then(|pod| drill_facts(pod, now)),
            reading: self.pods.iter().flat_map(locations_read).collect(),
            name,
        }
    }

    /// Returns a pod of this schedule. A pod of a deleted schedule of the same name is about to be deleted.
    pub fn own_pod(&self, name: &str) -> Option<&Pod> {
        let uid = self.schedule.uid();
        self.pods.iter().find(|pod| {
            let mut owners = pod.metadata.owner_references.iter().flatten();
            pod.name_any() == name && owners.any(|owner| Some(&owner.uid) == uid.as_ref())
        })
    }

    /// Returns a Backup by its name and uid.
    pub fn backup(&self, name: &str, uid: &str) -> Option<&Backup> {
        let mut backups = self.backups.iter();
        backups.find(|backup| backup.name_any() == name && backup.uid().as_deref() == Some(uid))
    }

    fn recorded(&self) -> RecordedTimes {
        let Some(status) = &self.schedule.status else {
            return RecordedTimes::default();
        };
        let drill = status.drill.as_ref();
        RecordedTimes {
            last_scheduled: status.last_scheduled.as_ref().map(unix),
            last_drill_scheduled: drill.and_then(|it| it.last_scheduled.as_ref()).map(unix),
            last_drill: drill.and_then(|it| it.last.as_ref()).map(drill_record),
            last_drill_success: drill
                .and_then(|it| it.last_success.as_ref())
                .map(drill_record),
        }
    }

    fn cluster_facts(&self) -> Observed<BackedUpCluster> {
        let Some((engine, source)) = &self.cluster else {
            return Observed::Absent;
        };
        Observed::Present(BackedUpCluster {
            engine: (*engine).to_owned(),
            namespace: self.schedule.namespace().unwrap_or_default(),
            name: self.schedule.spec.cluster.name.clone(),
            lineage: source.lineage.clone(),
            is_readable: !source.members.is_empty(),
        })
    }
}

fn drill_record(status: &DrillResultStatus) -> DrillRecord {
    DrillRecord {
        backup: status.backup.clone(),
        at: unix(&status.at),
        result: status.result,
        seconds: status.seconds,
        message: status.message.clone(),
    }
}

/// Returns the facts about a Backup of this schedule or of the same cluster.
fn backup_facts(
    schedule: &str,
    backup: &Backup,
    spec: &evenkeel_api::BackupScheduleSpec,
) -> Option<BackupFacts> {
    let name = backup.name_any();
    let is_of_cluster = backup.spec.cluster == spec.cluster;
    let due = due_of(schedule, &name);
    if !is_of_cluster && due.is_none() {
        return None;
    }
    let is_own = is_of_cluster && label(&backup.metadata, labels::SCHEDULE) == Some(schedule);
    let status = backup.status.clone().unwrap_or_default();
    let message = find(&status.conditions, "Complete").map(|it| it.message.clone());
    let run = backup
        .annotations()
        .get(labels::RUN)
        .and_then(|run| run.parse().ok());
    Some(BackupFacts {
        uid: backup.uid().unwrap_or_default(),
        is_own,
        due,
        run: run.unwrap_or(1),
        phase: status.phase,
        location: status.location,
        finished_at: status.finished_at.as_ref().map(unix),
        size: quantity::bytes(&Quantity(status.size)).unwrap_or_default(),
        message: message.unwrap_or_default(),
        proven: status.proven.map(|proven| unix(&proven.at)),
        damaged: status.damaged.map(|damaged| unix(&damaged.at)),
        is_terminating: backup.metadata.deletion_timestamp.is_some(),
        name,
    })
}

fn store_facts(store: &BackupStore) -> StoreFacts {
    let conditions = store.status.as_ref().map(|status| &*status.conditions);
    let ready = conditions.and_then(|conditions| find(conditions, "Ready"));
    StoreFacts {
        is_ready: store.metadata.deletion_timestamp.is_none()
            && ready.is_some_and(|ready| ready.status == "True"),
        message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
    }
}

fn prune_facts(pod: &Pod, now: UnixTime) -> PrunePodFacts {
    let outcome = match outcome::state(pod, agent_pod::CONTAINER, now) {
        AgentState::Finished { outcome, at } => {
            let at = at.unwrap_or_else(|| drill_pod::ended_at(pod, now));
            Some((outcome, at))
        }
        AgentState::Pending { .. } | AgentState::Running => None,
    };
    let delete = match request(pod, labels::REQUEST).map(|request| request.task) {
        Some(Task::Prune(task)) => task.delete,
        _ => Vec::new(),
    };
    let (locked, locked_until) = locked(&delete, outcome.as_ref().map(|(outcome, _)| outcome));
    PrunePodFacts {
        uid: pod.uid().unwrap_or_default(),
        created: pods::created_at(pod, now),
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
        has_started: drill_pod::has_started(pod),
        delete: delete.into_iter().collect(),
        locked,
        locked_until,
        outcome,
    }
}

/// Returns the places that a pod could not delete, and when the first of them can be deleted.
fn locked(delete: &[String], outcome: Option<&Outcome>) -> (BTreeSet<String>, Option<UnixTime>) {
    let Some(Outcome::Succeeded(TaskResult::Pruned {
        deleted: _,
        locked,
        locked_until,
    })) = outcome
    else {
        return (BTreeSet::new(), None);
    };
    let place = |position: &u32| delete.get(usize::try_from(*position).ok()?).cloned();
    let until = locked_until.as_ref().and_then(|until| {
        let until: jiff::Timestamp = until.parse().ok()?;
        Some(UnixTime(until.as_second()))
    });
    (locked.iter().filter_map(place).collect(), until)
}

/// Returns the facts about the pod of a drill. A pod without the annotations of one is not one.
fn drill_facts(pod: &Pod, now: UnixTime) -> Option<DrillPodFacts> {
    let annotation = |key: &str| pod.annotations().get(key).cloned();
    let backup = annotation(labels::DRILL_OF)?;
    let due = annotation(labels::DUE)?.parse().ok()?;
    Some(DrillPodFacts {
        uid: pod.uid().unwrap_or_default(),
        created: pods::created_at(pod, now),
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
        backup_uid: annotation(labels::DRILL_OF_UID).unwrap_or_default(),
        due: UnixTime(due),
        version: annotation(labels::VERSION).unwrap_or_default(),
        state: drill_pod::state(pod, &backup, now),
        backup,
    })
}

/// Returns the places of the backups that a pod reads or is about to read. The requests of agents are in annotations.
fn locations_read(pod: &Pod) -> Vec<String> {
    if pods::is_finished(pod) {
        return Vec::new();
    }
    let requests = pod
        .annotations()
        .values()
        .filter(|value| value.starts_with('{'))
        .filter_map(|value| serde_json::from_str::<Request>(value).ok());
    requests
        .filter_map(|request| match request.task {
            Task::Fetch(task) => Some(task.location),
            Task::DrillEtcd(task) => Some(task.location),
            Task::ReadManifest { location } => Some(location),
            Task::CheckStore
            | Task::SnapshotEtcd(_)
            | Task::Install(_)
            | Task::Prune(_)
            | Task::List => None,
        })
        .collect()
}

fn request(pod: &Pod, annotation: &str) -> Option<Request> {
    serde_json::from_str(pod.annotations().get(annotation)?).ok()
}

fn label<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Returns a time as objects have it.
pub fn object_time(time: UnixTime) -> Time {
    crate::conditions::time(time)
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
