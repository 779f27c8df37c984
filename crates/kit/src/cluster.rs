//! The description of an engine and of one of its clusters, as every function of the kit takes it.

use kube::Resource;

use crate::Uid;

/// The constants of an engine that its objects carry in labels and owner references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// The name of the application, such as `etcd`. The value of `app.kubernetes.io/name`.
    pub engine: &'static str,
    /// The kind of the resource, such as `EtcdCluster`.
    pub kind: &'static str,
    /// The API version of the resource, such as `evenkeel.dev/v1alpha1`.
    pub api_version: &'static str,
    /// The label key whose value is the name of the cluster. Each engine has its own key, so that clusters of different
    /// engines can have the same name in one namespace.
    pub cluster_label: &'static str,
}

/// One cluster: the resource that describes it, and its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterRef<'a> {
    /// The engine.
    pub engine: &'static EngineInfo,
    /// The name of the resource.
    pub name: &'a str,
    /// The namespace of the resource.
    pub namespace: &'a str,
    /// The uid of the resource.
    pub uid: Uid,
}

impl<'a> ClusterRef<'a> {
    /// Returns the cluster that a resource describes.
    pub fn of<K: Resource>(engine: &'static EngineInfo, resource: &'a K) -> Self {
        let metadata = resource.meta();
        // Kubernetes uids are UUIDs. Another text is hashed, which still distinguishes resources.
        let uid = metadata.uid.as_deref().unwrap_or_default();
        Self {
            engine,
            name: metadata.name.as_deref().unwrap_or_default(),
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            uid: uid.parse().unwrap_or_else(|_| Uid::of_name(uid)),
        }
    }
}
