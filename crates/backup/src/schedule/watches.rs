//! The watches of BackupSchedules: Backups, BackupStores and the pods of agents. Clusters are not watched; they are read.

use evenkeel_api::backup::labels;
use evenkeel_api::{Backup, BackupSchedule, BackupStore};
use evenkeel_runtime::{CacheSync, ResourceKey, Triggers, Watches};
use futures::StreamExt;
use futures::stream::{self, select_all};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::Store;
use kube::{Resource, ResourceExt};

/// The caches that the watches fill.
pub struct ScheduleCaches {
    pub(super) schedules: Store<BackupSchedule>,
    pub(super) backups: Store<Backup>,
    pub(super) stores: Store<BackupStore>,
    pub(super) pods: Store<Pod>,
    pub(super) sync: CacheSync,
}

/// Returns the caches and the triggers of reconciles. The caches are filled only while the triggers are polled.
pub fn watch(watches: &Watches) -> (ScheduleCaches, Triggers<BackupSchedule>) {
    let schedules = watches.watch::<BackupSchedule>(None);
    let (backups, backup_changes) = watches.watch::<Backup>(None);
    let (stores, store_changes) = watches.watch::<BackupStore>(None);
    let (pods, pod_changes) = watches.watch::<Pod>(Some(labels::TASK));
    let known = schedules.0.clone();
    let of_backups = backup_changes.flat_map(move |backup| {
        let keys = backup.map_or_else(|_| Vec::new(), |backup| schedules_of(&known, &backup));
        stream::iter(keys)
    });
    let known = schedules.0.clone();
    let of_stores = store_changes.flat_map(move |store| {
        let keys = store.map_or_else(|_| Vec::new(), |store| schedules_with(&known, &store));
        stream::iter(keys)
    });
    let of_pods = pod_changes.filter_map(|pod| {
        let key = pod.ok().and_then(|pod| {
            Some(ResourceKey {
                namespace: pod.namespace()?,
                name: pod.labels().get(labels::SCHEDULE)?.clone(),
            })
        });
        std::future::ready(key)
    });
    let caches = ScheduleCaches {
        schedules: schedules.0.clone(),
        backups,
        stores,
        pods,
        sync: watches.cache_sync(),
    };
    let triggers = Triggers {
        resources: schedules,
        related: select_all([of_backups.boxed(), of_stores.boxed(), of_pods.boxed()]).boxed(),
        all: stream::pending().boxed(),
    };
    (caches, triggers)
}

/// Returns the schedules that a change of a Backup concerns: its own, and all others of the same cluster.
fn schedules_of(schedules: &Store<BackupSchedule>, backup: &Backup) -> Vec<ResourceKey> {
    find(schedules, backup, |schedule| {
        schedule.spec.cluster == backup.spec.cluster
    })
}

fn schedules_with(schedules: &Store<BackupSchedule>, store: &BackupStore) -> Vec<ResourceKey> {
    let name = store.name_any();
    find(schedules, store, |schedule| {
        schedule.spec.policy.store == name
    })
}

fn find<K: Resource<DynamicType = ()>>(
    schedules: &Store<BackupSchedule>,
    object: &K,
    is_concerned: impl Fn(&BackupSchedule) -> bool,
) -> Vec<ResourceKey> {
    let namespace = object.meta().namespace.clone().unwrap_or_default();
    schedules
        .state()
        .iter()
        .filter(|schedule| schedule.namespace().as_deref() == Some(&*namespace))
        .filter(|schedule| is_concerned(schedule))
        .map(|schedule| ResourceKey {
            namespace: namespace.clone(),
            name: schedule.name_any(),
        })
        .collect()
}
