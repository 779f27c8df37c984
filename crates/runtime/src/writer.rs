//! Writes to Kubernetes for one resource, each pinned to what it was decided on: a 409 says that the world has moved on, and
//! everything is looked at again. Whatever is written is noted, so that nothing older is remembered.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::expectations::{Expectations, Expected, ObjectKey};
use crate::reconciler::{Error, Outcome, ResourceKey};

/// What writes for one resource.
#[derive(Clone, Copy)]
pub struct ObjectWriter<'a> {
    /// The client that writes.
    pub client: &'a Client,
    /// Where writes are noted.
    pub expectations: &'a Expectations<ResourceKey>,
    /// The resource.
    pub key: &'a ResourceKey,
    /// In whose name fields are applied.
    pub field_manager: &'a str,
    /// Kinds that nobody watches: there is no store that could lag behind.
    pub unwatched_kinds: &'a [&'a str],
}

/// What an object must be to be written.
pub trait KubeObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> KubeObject for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

impl ObjectWriter<'_> {
    fn api<K: KubeObject>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.key.namespace)
    }

    /// One object, by name.
    pub async fn read<K: KubeObject>(&self, name: &str) -> Result<Option<K>, Error> {
        crate::cache::read(self.client, self.key, name).await
    }

    /// One object, by name, whatever labels it has. Asked as a list: whoever watches such objects may do that anyway.
    pub async fn find_by_name<K: KubeObject>(&self, name: &str) -> Result<Option<K>, Error> {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let listed = self.api::<K>().list(&named).await;
        let listed = listed.map_err(Error::kubernetes(format!(
            "find the {} {name}",
            K::kind(&())
        )))?;
        Ok(listed.items.into_iter().next())
    }

    /// Creates what must never exist twice.
    pub async fn create<K: KubeObject>(&self, object: &K) -> Result<Outcome, Error> {
        let written = self.api().create(&PostParams::default(), object).await;
        self.record_write("create", object, written)
    }

    /// Creates what this describes.
    pub async fn create_json<K: KubeObject>(&self, description: Value) -> Result<Outcome, Error> {
        self.create::<K>(&from_json(description)?).await
    }

    /// Replaces an object by one that has the resourceVersion it was found with.
    pub async fn replace<K: KubeObject>(&self, object: &K) -> Result<Outcome, Error> {
        let written = self
            .api()
            .replace(&object.name_any(), &PostParams::default(), object)
            .await;
        self.record_write("replace", object, written)
    }

    /// Changes some of an object, as it was found.
    pub async fn patch<K: KubeObject>(&self, object: &K, change: Value) -> Result<Outcome, Error> {
        let patch = Patch::Merge(with_preconditions(object, change));
        let written = self
            .api::<K>()
            .patch(&object.name_any(), &PatchParams::default(), &patch)
            .await;
        self.record_write("change", object, written)
    }

    /// Changes some of an object, if it was found.
    pub async fn patch_if_observed<K: KubeObject>(
        &self,
        found: Option<&K>,
        change: Value,
    ) -> Result<Outcome, Error> {
        match found {
            Some(object) => self.patch(object, change).await,
            None => Ok(Outcome::Conflict),
        }
    }

    /// Changes some of an object's status, as it was found. Lists are merged by their keys.
    pub async fn patch_status<K: KubeObject>(
        &self,
        object: &K,
        change: Value,
    ) -> Result<Outcome, Error> {
        let patch = Patch::Strategic(with_preconditions(object, change));
        let written = self
            .api::<K>()
            .patch_status(&object.name_any(), &PatchParams::default(), &patch)
            .await;
        self.record_write("change the status of", object, written)
    }

    /// Has an object be as described; pinned to `there`, or created if there was none.
    pub async fn apply<K: KubeObject>(
        &self,
        object: &K,
        there: Option<&K>,
    ) -> Result<Outcome, Error> {
        let Some(there) = there else {
            return self.create(object).await;
        };
        let mut wanted =
            with_preconditions(there, serde_json::to_value(object).unwrap_or_default());
        wanted["apiVersion"] = json!(K::api_version(&()));
        wanted["kind"] = json!(K::kind(&()));
        let forced = PatchParams::apply(self.field_manager).force();
        let written = self
            .api::<K>()
            .patch(&there.name_any(), &forced, &Patch::Apply(wanted))
            .await;
        self.record_write("apply", object, written)
    }

    /// Has an object be as this describes; pinned to `there`, or created if there was none.
    pub async fn apply_json<K: KubeObject>(
        &self,
        description: Value,
        there: Option<&K>,
    ) -> Result<Outcome, Error> {
        self.apply(&from_json(description)?, there).await
    }

    /// Deletes exactly this object, as it was found.
    pub async fn delete<K: KubeObject>(&self, object: &K) -> Result<Outcome, Error> {
        let (name, uid, version) = (object.name_any(), object.uid(), object.resource_version());
        let exactly = Preconditions {
            uid: uid.clone(),
            resource_version: version.clone(),
        };
        let deleted = self
            .api::<K>()
            .delete(&name, &DeleteParams::default().preconditions(exactly))
            .await;
        match deleted {
            Ok(_) => {
                let (uid, version) = (uid.unwrap_or_default(), version.unwrap_or_default());
                self.expect::<K>(name, Expected::Deleted { uid, version });
                Ok(Outcome::Done)
            }
            Err(error) => write_error("delete", object, error),
        }
    }

    /// Has exactly this pod leave, as it was found, if disruption budgets allow that now.
    pub async fn evict(&self, pod: &Pod) -> Result<Outcome, Error> {
        let (name, uid, version) = (pod.name_any(), pod.uid(), pod.resource_version());
        // Not by kube's own `evict`: it calls the field `delete_options`, which the API server does not know and leaves unheeded,
        // and with it the pin.
        let exactly = json!({ "uid": uid, "resourceVersion": version });
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": self.key.namespace },
            "deleteOptions": { "preconditions": exactly },
        });
        let evicted: kube::Result<Value> = self
            .api::<Pod>()
            .create_subresource("eviction", &name, &PostParams::default(), &eviction)
            .await;
        match evicted {
            Ok(_) => {
                let (uid, version) = (uid.unwrap_or_default(), version.unwrap_or_default());
                self.expect::<Pod>(name, Expected::Deleted { uid, version });
                Ok(Outcome::Done)
            }
            Err(kube::Error::Api(said)) if said.code == 429 => Ok(Outcome::RetryLater(format!(
                "Kubernetes, asked to evict {name}: {}",
                said.message
            ))),
            Err(error) => write_error("evict", pod, error),
        }
    }

    /// Deletes exactly this object, if it was found.
    pub async fn delete_if_observed<K: KubeObject>(
        &self,
        found: Option<&K>,
    ) -> Result<Outcome, Error> {
        match found {
            Some(object) => self.delete(object).await,
            None => Ok(Outcome::Conflict),
        }
    }

    fn record_write<K: KubeObject>(
        &self,
        doing: &str,
        object: &K,
        written: kube::Result<K>,
    ) -> Result<Outcome, Error> {
        match written {
            Ok(written) => {
                let version = written.resource_version().unwrap_or_default();
                self.expect::<K>(written.name_any(), Expected::Stored { version });
                Ok(Outcome::Done)
            }
            Err(error) => write_error(doing, object, error),
        }
    }

    fn expect<K: KubeObject>(&self, name: String, change: Expected) {
        let kind = K::kind(&()).into_owned();
        if !self.unwatched_kinds.contains(&kind.as_str()) {
            self.expectations
                .expect(self.key, ObjectKey { kind, name }, change);
        }
    }
}

fn from_json<K: KubeObject>(description: Value) -> Result<K, Error> {
    serde_json::from_value(description)
        .map_err(|why| Error::other(format!("build a {}", K::kind(&())), why))
}

/// A change that is refused unless the object is still the one that was found.
fn with_preconditions<K: KubeObject>(object: &K, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(object.uid());
    change["metadata"]["resourceVersion"] = json!(object.resource_version());
    change
}

fn write_error<K: KubeObject>(
    doing: &str,
    object: &K,
    error: kube::Error,
) -> Result<Outcome, Error> {
    match &error {
        // Conflict, or already there; gone meanwhile.
        kube::Error::Api(said) if said.code == 409 || said.code == 404 => Ok(Outcome::Conflict),
        _ => {
            let doing = format!("{doing} the {} {}", K::kind(&()), object.name_any());
            Err(Error::kubernetes(doing)(error))
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
