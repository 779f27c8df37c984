//! Writes to Kubernetes for one resource, with the uid and resourceVersion of the observed object as preconditions. A
//! conflict leads to another observation. Every write is recorded as an expectation, so that no stale cache is used.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{Error, is_kind_missing};
use crate::expectations::{Expectations, Expected, ObjectKey};
use crate::reconciler::{Outcome, ResourceKey};

/// Writes the objects of one resource.
#[derive(Clone, Copy)]
pub struct ObjectWriter<'a> {
    /// The client.
    pub client: &'a Client,
    /// The expectations to record writes in.
    pub expectations: &'a Expectations<ResourceKey>,
    /// The key of the resource.
    pub key: &'a ResourceKey,
    /// The field manager of server-side apply.
    pub field_manager: &'a str,
    /// The kinds without a watch: no cache can lag behind.
    pub unwatched_kinds: &'a [&'a str],
}

/// The bounds of an object that can be written.
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

    /// Reads an object by name.
    pub async fn read<K: KubeObject>(&self, name: &str) -> Result<Option<K>, Error> {
        crate::cache::read(self.client, self.key, name).await
    }

    /// Reads an object by name with a list request, for which an operator that watches the kind has permission.
    pub async fn find_by_name<K: KubeObject>(&self, name: &str) -> Result<Option<K>, Error> {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let listed = self.api::<K>().list(&params).await;
        let listed = listed.map_err(Error::kubernetes(format!("find {} {name}", K::kind(&()))))?;
        Ok(listed.items.into_iter().next())
    }

    /// Creates an object. Returns a conflict if it exists.
    pub async fn create<K: KubeObject>(&self, object: &K) -> Result<Outcome, Error> {
        let written = self.api().create(&PostParams::default(), object).await;
        self.record_write("create", object, written)
    }

    /// Creates an object from JSON. Returns a conflict if it exists.
    pub async fn create_json<K: KubeObject>(&self, object: Value) -> Result<Outcome, Error> {
        self.create::<K>(&from_json(object)?).await
    }

    /// Replaces an object; `object` contains the observed resourceVersion.
    pub async fn replace<K: KubeObject>(&self, object: &K) -> Result<Outcome, Error> {
        let written = self
            .api()
            .replace(&object.name_any(), &PostParams::default(), object)
            .await;
        self.record_write("replace", object, written)
    }

    /// Merges a change into an observed object.
    pub async fn patch<K: KubeObject>(&self, object: &K, change: Value) -> Result<Outcome, Error> {
        let patch = Patch::Merge(with_preconditions(object, change));
        let written = self
            .api::<K>()
            .patch(&object.name_any(), &PatchParams::default(), &patch)
            .await;
        self.record_write("patch", object, written)
    }

    /// Merges a change into an object, if it was observed.
    pub async fn patch_if_observed<K: KubeObject>(
        &self,
        observed: Option<&K>,
        change: Value,
    ) -> Result<Outcome, Error> {
        match observed {
            Some(object) => self.patch(object, change).await,
            None => Ok(Outcome::Conflict),
        }
    }

    /// Merges a change into the status of an observed object. Lists are merged by their keys.
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
        self.record_write("patch the status of", object, written)
    }

    /// Applies an object to the observed one, or creates it if none was observed.
    pub async fn apply<K: KubeObject>(
        &self,
        object: &K,
        observed: Option<&K>,
    ) -> Result<Outcome, Error> {
        let Some(observed) = observed else {
            return self.create(object).await;
        };
        let mut desired =
            with_preconditions(observed, serde_json::to_value(object).unwrap_or_default());
        desired["apiVersion"] = json!(K::api_version(&()));
        desired["kind"] = json!(K::kind(&()));
        let forced = PatchParams::apply(self.field_manager).force();
        let written = self
            .api::<K>()
            .patch(&observed.name_any(), &forced, &Patch::Apply(desired))
            .await;
        self.record_write("apply", object, written)
    }

    /// Applies an object from JSON to the observed one, or creates it if none was observed.
    pub async fn apply_json<K: KubeObject>(
        &self,
        object: Value,
        observed: Option<&K>,
    ) -> Result<Outcome, Error> {
        self.apply(&from_json(object)?, observed).await
    }

    /// Deletes an observed object.
    pub async fn delete<K: KubeObject>(&self, object: &K) -> Result<Outcome, Error> {
        let (name, uid, version) = (object.name_any(), object.uid(), object.resource_version());
        let preconditions = Preconditions {
            uid: uid.clone(),
            resource_version: version.clone(),
        };
        let deleted = self
            .api::<K>()
            .delete(&name, &DeleteParams::default().preconditions(preconditions))
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

    /// Evicts an observed pod through the Eviction API, which respects PodDisruptionBudgets.
    pub async fn evict(&self, pod: &Pod) -> Result<Outcome, Error> {
        let (name, uid, version) = (pod.name_any(), pod.uid(), pod.resource_version());
        // Not with kube's `evict`: it names the field `delete_options`, which the API server ignores, and the preconditions
        // with it.
        let preconditions = json!({ "uid": uid, "resourceVersion": version });
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": self.key.namespace },
            "deleteOptions": { "preconditions": preconditions },
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
            Err(kube::Error::Api(status)) if status.code == 429 => {
                Ok(Outcome::RetryLater(format!(
                    "the API server declined to evict Pod {name}: {}",
                    status.message
                )))
            }
            Err(error) => write_error("evict", pod, error),
        }
    }

    /// Deletes an object, if it was observed.
    pub async fn delete_if_observed<K: KubeObject>(
        &self,
        observed: Option<&K>,
    ) -> Result<Outcome, Error> {
        match observed {
            Some(object) => self.delete(object).await,
            None => Ok(Outcome::Conflict),
        }
    }

    fn record_write<K: KubeObject>(
        &self,
        verb: &str,
        object: &K,
        written: kube::Result<K>,
    ) -> Result<Outcome, Error> {
        match written {
            Ok(written) => {
                let version = written.resource_version().unwrap_or_default();
                self.expect::<K>(written.name_any(), Expected::Stored { version });
                Ok(Outcome::Done)
            }
            Err(error) => write_error(verb, object, error),
        }
    }

    fn expect<K: KubeObject>(&self, name: String, expected: Expected) {
        let kind = K::kind(&()).into_owned();
        if !self.unwatched_kinds.contains(&kind.as_str()) {
            self.expectations
                .expect(self.key, ObjectKey { kind, name }, expected);
        }
    }
}

fn from_json<K: KubeObject>(object: Value) -> Result<K, Error> {
    serde_json::from_value(object)
        .map_err(|error| Error::other(format!("build a {}", K::kind(&())), error))
}

/// Adds the uid and the resourceVersion of the observed object to a change: the API server rejects it otherwise.
fn with_preconditions<K: KubeObject>(object: &K, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(object.uid());
    change["metadata"]["resourceVersion"] = json!(object.resource_version());
    change
}

fn write_error<K: KubeObject>(
    verb: &str,
    object: &K,
    error: kube::Error,
) -> Result<Outcome, Error> {
    match &error {
        // 409: changed, or exists already. 404: deleted meanwhile, unless the kind itself does not exist.
        kube::Error::Api(status)
            if matches!(status.code, 404 | 409) && !is_kind_missing(&error) =>
        {
            Ok(Outcome::Conflict)
        }
        _ => {
            let action = format!("{verb} {} {}", K::kind(&()), object.name_any());
            Err(Error::kubernetes(action)(error))
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
