//! PersistentVolumes and StorageClasses: where volumes are, whether they can grow, and whether the nodes that the spec
//! allows reach them. A PVC alone does not show this.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use evenkeel_runtime::Error;
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Uid, claims, pods};

/// The label that identifies a node. A volume whose node affinity names one value of it is on that node's own disk.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// The time after which a StorageClass is read again.
const CLASS_CACHE_TTL: Duration = Duration::from_secs(60);

/// The labels of a node.
pub type NodeLabels = BTreeMap<String, String>;

/// The nodes from which a volume can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VolumeTopology {
    /// One node: the volume is on that node's own disk.
    Node(Uid),
    /// Every node.
    Anywhere,
    /// Some nodes, or unknown: the PVC is not bound yet, or its volume cannot be read.
    Unknown,
}

/// The location of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeLocation {
    /// The disk of the node with this hostname label.
    Node(String),
    /// The disk of a node that no longer exists.
    Gone,
    /// A storage that every node reaches.
    Anywhere,
}

impl VolumeLocation {
    /// Returns the nodes from which the volume can be reached.
    pub fn topology(&self) -> VolumeTopology {
        match self {
            Self::Node(hostname) => VolumeTopology::Node(Uid::of_name(hostname)),
            Self::Anywhere => VolumeTopology::Anywhere,
            Self::Gone => VolumeTopology::Unknown,
        }
    }
}

/// Returns the hostname labels of the cached nodes.
pub fn hostnames(nodes: &Store<Node>) -> BTreeSet<String> {
    nodes
        .state()
        .iter()
        .filter_map(|node| node.labels().get(HOSTNAME).cloned())
        .collect()
}

/// Returns the labels of the cached nodes.
pub fn node_labels(nodes: &Store<Node>) -> Vec<NodeLabels> {
    nodes
        .state()
        .iter()
        .map(|node| node.labels().clone())
        .collect()
}

/// Returns the hostname labels of the nodes of these pods, by the names of the nodes.
pub fn hostnames_of_pods(nodes: &Store<Node>, pods: &[Pod]) -> BTreeMap<String, String> {
    pods.iter()
        .filter_map(pods::node)
        .filter_map(|name| {
            let node = nodes.get(&ObjectRef::new(name))?;
            Some((name.to_owned(), node.labels().get(HOSTNAME)?.clone()))
        })
        .collect()
}

/// The volumes of one cluster. The node affinity of a volume never changes, so each volume is read once. Volumes that no
/// PVC of the cluster names any longer are dropped.
#[derive(Debug, Default)]
pub struct VolumeCache {
    volumes: Mutex<HashMap<String, Volume>>,
}

#[derive(Clone, Debug, Default)]
struct Volume {
    /// `None` if only some nodes reach the volume, or if the operator may not read it.
    location: Option<VolumeLocation>,
    /// `None` if every node reaches the volume, or if the operator may not read it.
    node_affinity: Option<NodeSelector>,
}

impl VolumeCache {
    /// Returns the locations of the PVCs' volumes, by the names of the PVCs, as far as they are known. A node is gone if
    /// its hostname is neither in `hostnames`, which come from a cache, nor in a live list.
    pub async fn locations(
        &self,
        client: &Client,
        hostnames: &BTreeSet<String>,
        claims: &[PersistentVolumeClaim],
    ) -> Result<BTreeMap<String, VolumeLocation>, Error> {
        let names: BTreeSet<_> = claims.iter().filter_map(claims::volume_name).collect();
        self.volumes
            .lock()
            .retain(|name, _| names.contains(name.as_str()));
        let mut locations = BTreeMap::new();
        for claim in claims {
            let Some(volume) = claims::volume_name(claim) else {
                continue;
            };
            let location = match self.location(client, volume).await? {
                Some(VolumeLocation::Node(hostname))
                    if !hostnames.contains(&hostname)
                        && is_node_gone(client, &hostname).await? =>
                {
                    Some(VolumeLocation::Gone)
                }
                location => location,
            };
            locations.extend(location.map(|location| (claim.name_any(), location)));
        }
        Ok(locations)
    }

    async fn location(&self, client: &Client, name: &str) -> Result<Option<VolumeLocation>, Error> {
        if let Some(volume) = self.volumes.lock().get(name) {
            return Ok(volume.location.clone());
        }
        let api: Api<PersistentVolume> = Api::all(client.clone());
        let volume = match api.get_opt(name).await {
            Ok(Some(object)) => Volume {
                location: location(&object),
                node_affinity: node_affinity(&object).cloned(),
            },
            Ok(None) => return Ok(None),
            // Without permission the location is unknown, which never counts as lost.
            Err(kube::Error::Api(status)) if status.code == 403 => Volume::default(),
            Err(error) => {
                return Err(Error::kubernetes(format!("read PersistentVolume {name}"))(
                    error,
                ));
            }
        };
        let location = volume.location.clone();
        self.volumes.lock().insert(name.to_owned(), volume);
        Ok(location)
    }

    /// Returns the names of the PVCs whose volumes are reached from existing nodes, but from none that `node_selector`
    /// allows. [`VolumeCache::locations`] must have read the volumes before. A volume that no existing node reaches is not
    /// misplaced: its node may come back.
    pub fn misplaced(
        &self,
        nodes: &[NodeLabels],
        node_selector: &NodeLabels,
        claims: &[PersistentVolumeClaim],
    ) -> BTreeSet<String> {
        if node_selector.is_empty() {
            return BTreeSet::new();
        }
        let volumes = self.volumes.lock();
        let is_misplaced = |claim: &&PersistentVolumeClaim| {
            claims::volume_name(claim)
                .and_then(|name| volumes.get(name)?.node_affinity.as_ref())
                .is_some_and(|affinity| excludes(node_selector, affinity, nodes))
        };
        claims
            .iter()
            .filter(is_misplaced)
            .map(ResourceExt::name_any)
            .collect()
    }
}

/// The StorageClasses that clusters use. Each is read at most once per minute, and dropped from the cache afterwards.
#[derive(Debug, Default)]
pub struct StorageClasses {
    classes: Mutex<HashMap<String, CachedClass>>,
}

#[derive(Clone, Copy, Debug)]
struct CachedClass {
    state: ClassState,
    /// The uptime at which the class was read.
    read_at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClassState {
    /// Volumes of the class can grow.
    Expandable,
    /// Volumes of the class cannot grow.
    FixedSize,
    /// There is no class of that name.
    Missing,
    /// The operator may not read StorageClasses.
    Unknown,
}

impl StorageClasses {
    /// Returns the name of a class whose volumes cannot grow and of which there is a PVC that requests less than `size`
    /// bytes; `None` if there is none or the classes cannot be read. `uptime` is the current time of the monotonic clock.
    pub async fn fixed_size_class(
        &self,
        client: &Client,
        uptime: Duration,
        size: u64,
        claims: &[PersistentVolumeClaim],
    ) -> Result<Option<String>, Error> {
        let smaller = claims.iter().filter(|claim| {
            claims::requested_size(claim) < size && claims::read_removed_at(claim).is_none()
        });
        let names: BTreeSet<_> = smaller
            .filter_map(|claim| claim.spec.as_ref()?.storage_class_name.clone())
            .collect();
        for name in names {
            if self.read(client, uptime, &name).await? == ClassState::FixedSize {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the desired class if Kubernetes has no class of that name and no PVC is bound to a volume of it.
    pub async fn missing_class(
        &self,
        client: &Client,
        uptime: Duration,
        desired: Option<&str>,
        claims: &[PersistentVolumeClaim],
    ) -> Result<Option<String>, Error> {
        let is_bound_to = |claim: &PersistentVolumeClaim, class: &str| {
            let spec = claim.spec.as_ref();
            spec.and_then(|spec| spec.storage_class_name.as_deref()) == Some(class)
                && claims::volume_name(claim).is_some()
        };
        let Some(class) =
            desired.filter(|class| !claims.iter().any(|claim| is_bound_to(claim, class)))
        else {
            return Ok(None);
        };
        let state = self.read(client, uptime, class).await?;
        Ok((state == ClassState::Missing).then(|| class.to_owned()))
    }

    /// Returns the names of the classes that were to be read, and that the client may not read.
    pub fn forbidden(&self) -> BTreeSet<String> {
        let classes = self.classes.lock();
        let unknown = classes
            .iter()
            .filter(|(_, class)| class.state == ClassState::Unknown);
        unknown.map(|(name, _)| name.clone()).collect()
    }

    async fn read(
        &self,
        client: &Client,
        uptime: Duration,
        name: &str,
    ) -> Result<ClassState, Error> {
        {
            let mut classes = self.classes.lock();
            classes.retain(|_, class| uptime.saturating_sub(class.read_at) < CLASS_CACHE_TTL);
            if let Some(class) = classes.get(name) {
                return Ok(class.state);
            }
        }
        let api: Api<StorageClass> = Api::all(client.clone());
        let state = match api.get_opt(name).await {
            Ok(Some(class)) if class.allow_volume_expansion == Some(true) => ClassState::Expandable,
            Ok(Some(_)) => ClassState::FixedSize,
            Ok(None) => ClassState::Missing,
            Err(kube::Error::Api(status)) if status.code == 403 => ClassState::Unknown,
            Err(error) => {
                return Err(Error::kubernetes(format!("read StorageClass {name}"))(
                    error,
                ));
            }
        };
        // A missing class may be created at any moment.
        if state != ClassState::Missing {
            let cached = CachedClass {
                state,
                read_at: uptime,
            };
            self.classes.lock().insert(name.to_owned(), cached);
        }
        Ok(state)
    }
}

/// Returns the location of a volume; `None` if some nodes reach it and others do not, such as the nodes of a zone.
fn location(volume: &PersistentVolume) -> Option<VolumeLocation> {
    volume.spec.as_ref()?;
    let Some(affinity) = node_affinity(volume) else {
        return Some(VolumeLocation::Anywhere);
    };
    // Terms are alternatives: a volume that two nodes reach survives the loss of either.
    let mut hostnames = affinity.node_selector_terms.iter().map(only_hostname);
    let first = hostnames.next()??;
    hostnames
        .all(|other| other == Some(first))
        .then(|| VolumeLocation::Node(first.to_owned()))
}

fn node_affinity(volume: &PersistentVolume) -> Option<&NodeSelector> {
    let spec = volume.spec.as_ref()?;
    spec.node_affinity.as_ref()?.required.as_ref()
}

/// Returns true if at least one node reaches the volume, `selector` allows at least one node, and no node has both
/// properties. A selector that allows no node at all is a mistake, for which no member has to move.
fn excludes(selector: &NodeLabels, affinity: &NodeSelector, nodes: &[NodeLabels]) -> bool {
    let is_reaching = |node: &&NodeLabels| {
        affinity
            .node_selector_terms
            .iter()
            .any(|term| matches_term(term, node))
    };
    let is_allowed = |node: &NodeLabels| {
        selector
            .iter()
            .all(|(key, value)| node.get(key) == Some(value))
    };
    let mut reaching = nodes.iter().filter(is_reaching).peekable();
    nodes.iter().any(is_allowed) && reaching.peek().is_some() && !reaching.any(is_allowed)
}

/// Returns true if a node matches a term. Only expressions with the operator `In` are evaluated; others count as matching.
fn matches_term(term: &NodeSelectorTerm, node: &NodeLabels) -> bool {
    let mut expressions = term
        .match_expressions
        .iter()
        .flatten()
        .filter(|expression| expression.operator == "In");
    expressions.all(|expression| {
        node.get(&expression.key).is_some_and(|label| {
            let mut values = expression.values.iter().flatten();
            values.any(|value| value == label)
        })
    })
}

/// Returns the hostname of a term that allows exactly one.
fn only_hostname(term: &NodeSelectorTerm) -> Option<&str> {
    let mut expressions = term.match_expressions.iter().flatten();
    let expression =
        expressions.find(|expression| expression.key == HOSTNAME && expression.operator == "In")?;
    match expression.values.as_deref() {
        Some([hostname]) => Some(hostname),
        _ => None,
    }
}

async fn is_node_gone(client: &Client, hostname: &str) -> Result<bool, Error> {
    let api: Api<Node> = Api::all(client.clone());
    let by_hostname = ListParams::default().labels(&format!("{HOSTNAME}={hostname}"));
    match api.list_metadata(&by_hostname).await {
        Ok(list) => Ok(list.items.is_empty()),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(error) => Err(Error::kubernetes("list nodes")(error)),
    }
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
