//! Reads the `Backup`, `BackupSchedule` and `BackupStore` objects of a namespace, with the permissions of the user.

use evenkeel_api::{Backup, BackupSchedule};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::connection::{Connection, request};
use crate::error::{CliError, EXIT_NOT_FOUND};

/// The backups of a namespace and their schedules.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackupObjects {
    /// The schedules.
    pub(crate) schedules: Vec<BackupSchedule>,
    /// The backups.
    pub(crate) backups: Vec<Backup>,
}

/// Lists the objects of a kind in a namespace, or in all namespaces. Reports objects that this release of the plugin cannot
/// deserialize, and returns the others.
pub(crate) async fn list<K>(
    connection: &Connection,
    namespace: Option<&str>,
) -> Result<Vec<K>, CliError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let action = format!("list {}s", K::kind(&()));
    let objects = api::<K>(&connection.client, namespace);
    let objects = request(&action, objects.list(&ListParams::default())).await;
    let objects = objects.map_err(known_kind::<K>)?;
    let (objects, errors) = deserialize(objects.items);
    errors.iter().for_each(|error| eprintln!("{error}"));
    Ok(objects)
}

/// Returns the API of a kind, without its types.
pub(crate) fn api<K>(client: &Client, namespace: Option<&str>) -> Api<DynamicObject>
where
    K: Resource<DynamicType = ()>,
{
    let kind = ApiResource::erase::<K>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// Deserializes objects. Returns an error for each that this release of the plugin does not understand.
pub(crate) fn deserialize<K: Resource<DynamicType = ()> + DeserializeOwned>(
    objects: Vec<DynamicObject>,
) -> (Vec<K>, Vec<CliError>) {
    let (mut known, mut errors) = (Vec::new(), Vec::new());
    for object in objects {
        let name = object.name_any();
        match serde_json::to_value(object).and_then(serde_json::from_value) {
            Ok(object) => known.push(object),
            Err(error) => errors.push(CliError::other_release(format!(
                "cannot parse {} {name}: {error}",
                K::kind(&())
            ))),
        }
    }
    (known, errors)
}

/// Converts the error for an unknown kind: Evenkeel may be installed, but in a release without backups.
pub(crate) fn known_kind<K: Resource<DynamicType = ()>>(error: CliError) -> CliError {
    if error == CliError::not_installed() {
        missing_kind(&K::kind(&()))
    } else {
        error
    }
}

/// The error for a Kubernetes API that does not know a kind of backups.
pub(crate) fn missing_kind(kind: &str) -> CliError {
    CliError::new(format!("the Kubernetes API does not know the kind {kind}"))
        .help("Evenkeel is not installed, or in a release without backups: `kubectl evenkeel version` shows it")
        .exit_code(EXIT_NOT_FOUND)
}
