//! Where volumes are, and which of them can grow: what a claim alone does not tell.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_runtime::Error;
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::objects::{Caches, HOSTNAME};
use crate::build::claim;
use crate::facts::VolumeTopology;
use crate::identity::Uid;

/// After how long a class is read again.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// Where a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeLocation {
    /// On the disk of this node, as the volume calls it.
    Node(String),
    /// On the disk of a node that is no more.
    Gone,
    /// It can be reached from everywhere.
    Anywhere,
}

impl VolumeLocation {
    /// From where it can be reached.
    pub fn topology(&self) -> VolumeTopology {
        match self {
            Self::Node(hostname) => VolumeTopology::Node(Uid::of_name(hostname)),
            Self::Anywhere => VolumeTopology::Anywhere,
            Self::Gone => VolumeTopology::Unknown,
        }
    }
}

/// On which nodes volumes are, which never changes.
#[derive(Debug, Default)]
pub struct Volumes {
    known: Mutex<HashMap<String, Volume>>,
    /// What is known of classes, and since when.
    classes: Mutex<HashMap<String, (Class, Instant)>>,
}

/// What is known of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Its volumes can grow.
    Grows,
    /// They cannot.
    Fixed,
    /// There is none of that name.
    Missing,
    /// Nobody may know.
    Unknown,
}

/// What is known of a volume.
#[derive(Clone, Debug, Default)]
struct Volume {
    /// Nothing for one that some nodes reach, or of which nothing may be known.
    place: Option<VolumeLocation>,
    /// Which nodes reach it; nothing if all do, or nobody knows.
    reached_from: Option<NodeSelector>,
}

impl Volumes {
    /// Where the volumes of claims are, by the claims' names, as far as that is known. A node is no more if it is not in the
    /// store, and not in Kubernetes either.
    pub async fn locations(
        &self,
        client: &Client,
        nodes: &BTreeSet<String>,
        claims: &[PersistentVolumeClaim],
    ) -> Result<BTreeMap<String, VolumeLocation>, Error> {
        let mut places = BTreeMap::new();
        for claim in claims {
            let Some(volume) = claim
                .spec
                .as_ref()
                .and_then(|spec| spec.volume_name.clone())
            else {
                continue;
            };
            let place = match self.place(client, &volume).await? {
                Some(VolumeLocation::Node(hostname))
                    if !nodes.contains(&hostname) && is_gone(client, &hostname).await? =>
                {
                    Some(VolumeLocation::Gone)
                }
                place => place,
            };
            places.extend(place.map(|place| (claim.name_any(), place)));
        }
        Ok(places)
    }

    async fn place(&self, client: &Client, volume: &str) -> Result<Option<VolumeLocation>, Error> {
        if let Some(known) = self.lock().get(volume) {
            return Ok(known.place.clone());
        }
        let api: Api<PersistentVolume> = Api::all(client.clone());
        let place = match api.get_opt(volume).await {
            Ok(Some(there)) => Volume {
                place: place(&there),
                reached_from: reached_from(&there).cloned(),
            },
            Ok(None) => return Ok(None),
            // Without the permission to look nobody knows, and what is unknown is not lost.
            Err(kube::Error::Api(refused)) if refused.code == 403 => Volume::default(),
            Err(error) => {
                return Err(Error::kubernetes(format!("read the volume {volume}"))(
                    error,
                ));
            }
        };
        let known = place.place.clone();
        self.lock().insert(volume.to_owned(), place);
        Ok(known)
    }

    /// The claims whose volumes some nodes reach, and none of those that a selector allows. Where no node is known that reaches a
    /// volume nothing is said: it may come back.
    pub fn misplaced(
        &self,
        stores: &Caches,
        selector: &BTreeMap<String, String>,
        claims: &[PersistentVolumeClaim],
    ) -> BTreeSet<String> {
        if selector.is_empty() {
            return BTreeSet::new();
        }
        let nodes: Vec<_> = stores
            .nodes
            .state()
            .iter()
            .map(|node| node.labels().clone())
            .collect();
        let known = self.lock();
        let is_misplaced = |claim: &&PersistentVolumeClaim| {
            let volume = claim
                .spec
                .as_ref()
                .and_then(|spec| known.get(spec.volume_name.as_ref()?));
            volume
                .and_then(|volume| volume.reached_from.as_ref())
                .is_some_and(|from| excludes(selector, from, &nodes))
        };
        claims
            .iter()
            .filter(is_misplaced)
            .map(ResourceExt::name_any)
            .collect()
    }

    /// A class that does not let volumes grow, of claims that ask for less than `size`; nothing if there is none, or nobody may know.
    pub async fn fixed_size_class(
        &self,
        client: &Client,
        size: u64,
        claims: &[PersistentVolumeClaim],
    ) -> Result<Option<String>, Error> {
        let smaller = claims.iter().filter(|one| {
            claim::requested_size(one) < size && claim::read_removed_at(one).is_none()
        });
        let classes: BTreeSet<_> = smaller
            .filter_map(|claim| claim.spec.as_ref()?.storage_class_name.clone())
            .collect();
        for class in classes {
            if self.read(client, &class).await? == Class::Fixed {
                return Ok(Some(class));
            }
        }
        Ok(None)
    }

    /// A class that is wanted, and that no volume has, if Kubernetes has none of that name.
    pub async fn missing_class(
        &self,
        client: &Client,
        class: Option<&str>,
        claims: &[PersistentVolumeClaim],
    ) -> Result<Option<String>, Error> {
        let has_volume_of = |claim: &PersistentVolumeClaim, class: &str| {
            let spec = claim
                .spec
                .as_ref()
                .filter(|spec| spec.storage_class_name.as_deref() == Some(class));
            spec.and_then(|spec| spec.volume_name.as_ref())
                .is_some_and(|volume| !volume.is_empty())
        };
        let Some(class) =
            class.filter(|class| !claims.iter().any(|claim| has_volume_of(claim, class)))
        else {
            return Ok(None);
        };
        Ok((self.read(client, class).await? == Class::Missing).then(|| class.to_owned()))
    }

    async fn read(&self, client: &Client, class: &str) -> Result<Class, Error> {
        let known = self.classes().get(class).copied();
        if let Some((known, _)) = known.filter(|(_, read)| read.elapsed() < READ_AGAIN) {
            return Ok(known);
        }
        let api: Api<StorageClass> = Api::all(client.clone());
        let read = match api.get_opt(class).await {
            Ok(Some(there)) if there.allow_volume_expansion == Some(true) => Class::Grows,
            Ok(Some(_)) => Class::Fixed,
            Ok(None) => Class::Missing,
            Err(kube::Error::Api(refused)) if refused.code == 403 => Class::Unknown,
            Err(error) => {
                return Err(Error::kubernetes(format!("read the StorageClass {class}"))(
                    error,
                ));
            }
        };
        // One that is missing may be created in a moment.
        if read != Class::Missing {
            self.classes()
                .insert(class.to_owned(), (read, Instant::now()));
        }
        Ok(read)
    }

    fn classes(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Class, Instant)>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Volume>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a volume is; nothing if some nodes reach it and others do not, such as those of a zone.
fn place(volume: &PersistentVolume) -> Option<VolumeLocation> {
    let affinity = reached_from(volume);
    volume.spec.as_ref()?;
    let Some(affinity) = affinity else {
        return Some(VolumeLocation::Anywhere);
    };
    // Terms are alternatives: a volume that can be reached from two nodes outlives either.
    let mut hostnames = affinity.node_selector_terms.iter().map(only_hostname);
    let first = hostnames.next()??;
    hostnames
        .all(|other| other == Some(first))
        .then(|| VolumeLocation::Node(first.to_owned()))
}

fn reached_from(volume: &PersistentVolume) -> Option<&NodeSelector> {
    volume
        .spec
        .as_ref()?
        .node_affinity
        .as_ref()?
        .required
        .as_ref()
}

/// Whether a selector leaves some nodes, and none from which a volume is reached, of which there are some: one that leaves none at all
/// is a mistake, for which nobody has to move.
fn excludes(
    selector: &BTreeMap<String, String>,
    from: &NodeSelector,
    nodes: &[BTreeMap<String, String>],
) -> bool {
    let reaches = |node: &&BTreeMap<String, String>| {
        from.node_selector_terms
            .iter()
            .any(|term| suits(term, node))
    };
    let mut reaching = nodes.iter().filter(reaches).peekable();
    let allowed = |node: &BTreeMap<String, String>| {
        selector
            .iter()
            .all(|(key, value)| node.get(key) == Some(value))
    };
    let some_are = nodes.iter().any(allowed);
    some_are && reaching.peek().is_some() && !reaching.any(allowed)
}

/// Whether a node is one that a term means, as far as that is told by labels and lists of values; else it is taken for one.
fn suits(term: &NodeSelectorTerm, node: &BTreeMap<String, String>) -> bool {
    let mut lists = term
        .match_expressions
        .iter()
        .flatten()
        .filter(|one| one.operator == "In");
    lists.all(|one| {
        node.get(&one.key)
            .is_some_and(|label| one.values.iter().flatten().any(|value| value == label))
    })
}

fn only_hostname(term: &NodeSelectorTerm) -> Option<&str> {
    let mut expressions = term.match_expressions.iter().flatten();
    match expressions
        .find(|one| one.key == HOSTNAME && one.operator == "In")?
        .values
        .as_deref()
    {
        Some([one]) => Some(one),
        _ => None,
    }
}

async fn is_gone(client: &Client, hostname: &str) -> Result<bool, Error> {
    let api: Api<Node> = Api::all(client.clone());
    let named = ListParams::default().labels(&format!("{HOSTNAME}={hostname}"));
    match api.list_metadata(&named).await {
        Ok(list) => Ok(list.items.is_empty()),
        Err(kube::Error::Api(refused)) if refused.code == 403 => Ok(false),
        Err(error) => Err(Error::kubernetes("list nodes")(error)),
    }
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
