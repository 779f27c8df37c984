//! Writes to Kubernetes, each pinned: a 409 says that the world has moved on, and everything is looked at again.

use std::fmt::Debug;

use evenkeel::{Error, Key, Outcome};
use evenkeel_api::labels::MANAGER;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::operator::Operator;

/// What writes for one resource.
pub(super) struct Hand<'a> {
    pub(super) operator: &'a Operator,
    pub(super) key: &'a Key,
}

/// What an object must be to be written.
pub(super) trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

impl Hand<'_> {
    fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.operator.client.clone(), &self.key.namespace)
    }

    /// One object, by name.
    pub(super) async fn read<K: Object>(&self, name: &str) -> Result<Option<K>, Error> {
        self.api().get_opt(name).await.map_err(Error::kubernetes(format!("read the {} {name}", K::kind(&()))))
    }

    /// Creates what must never exist twice.
    pub(super) async fn create<K: Object>(&self, object: &K) -> Result<Outcome, Error> {
        let written = self.api().create(&PostParams::default(), object).await;
        self.written("create", object, written)
    }

    /// Replaces an object by one that has the resourceVersion it was found with.
    pub(super) async fn replace<K: Object>(&self, object: &K) -> Result<Outcome, Error> {
        let written = self.api().replace(&object.name_any(), &PostParams::default(), object).await;
        self.written("replace", object, written)
    }

    /// Changes some of an object, as it was found.
    pub(super) async fn patch<K: Object>(&self, object: &K, change: Value) -> Result<Outcome, Error> {
        let patch = Patch::Merge(pinned(object, change));
        let written = self.api::<K>().patch(&object.name_any(), &PatchParams::default(), &patch).await;
        self.written("change", object, written)
    }

    /// Changes some of an object's status, as it was found. Lists are merged by their keys.
    pub(super) async fn patch_status<K: Object>(&self, object: &K, change: Value) -> Result<Outcome, Error> {
        let patch = Patch::Strategic(pinned(object, change));
        let written = self.api::<K>().patch_status(&object.name_any(), &PatchParams::default(), &patch).await;
        self.written("change the status of", object, written)
    }

    /// Has an object be as described; pinned to `there`, or created if there was none.
    pub(super) async fn apply<K: Object>(&self, object: &K, there: Option<&K>) -> Result<Outcome, Error> {
        let Some(there) = there else { return self.create(object).await };
        let mut wanted = pinned(there, serde_json::to_value(object).unwrap_or_default());
        wanted["apiVersion"] = json!(K::api_version(&()));
        wanted["kind"] = json!(K::kind(&()));
        let forced = PatchParams::apply(MANAGER).force();
        let written = self.api::<K>().patch(&there.name_any(), &forced, &Patch::Apply(wanted)).await;
        self.written("apply", object, written)
    }

    /// Deletes exactly this object, as it was found.
    pub(super) async fn delete<K: Object>(&self, object: &K) -> Result<Outcome, Error> {
        let (name, uid, version) = (object.name_any(), object.uid(), object.resource_version());
        let exactly = Preconditions { uid: uid.clone(), resource_version: version.clone() };
        let deleted = self.api::<K>().delete(&name, &DeleteParams::default().preconditions(exactly)).await;
        match deleted {
            Ok(_) => {
                let what = evenkeel::Ref { kind: K::kind(&()).into_owned(), name };
                let (uid, version) = (uid.unwrap_or_default(), version.unwrap_or_default());
                self.operator.written.note(self.key, what, evenkeel::Change::Deleted { uid, version });
                Ok(Outcome::Done)
            }
            Err(error) => refused("delete", object, error),
        }
    }

    fn written<K: Object>(
        &self,
        doing: &str,
        object: &K,
        written: kube::Result<K>,
    ) -> Result<Outcome, Error> {
        match written {
            Ok(written) => {
                self.operator.wrote(self.key, &written);
                Ok(Outcome::Done)
            }
            Err(error) => refused(doing, object, error),
        }
    }
}

/// A change that is refused unless the object is still the one that was found.
fn pinned<K: Object>(object: &K, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(object.uid());
    change["metadata"]["resourceVersion"] = json!(object.resource_version());
    change
}

fn refused<K: Object>(doing: &str, object: &K, error: kube::Error) -> Result<Outcome, Error> {
    match &error {
        // Conflict, or already there; gone meanwhile.
        kube::Error::Api(said) if said.code == 409 || said.code == 404 => Ok(Outcome::Overtaken),
        _ => {
            let doing = format!("{doing} the {} {}", K::kind(&()), object.name_any());
            Err(Error::kubernetes(doing)(error))
        }
    }
}
