//! Compact encoding of model states. Each distinct pod, claim, cluster, identity and write is stored once and
//! numbered; a state is the list of the numbers of its parts (the model checker SPIN calls this "collapse
//! compression"). The encoding is lossless, so tens of millions of states fit into a few gigabytes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use evenkeel_etcd::identity::Identity;
use evenkeel_etcd::names::Serial;

use crate::effect::Effect;
use crate::model::{
    ClusterModel, FaultBudget, ModelClaim, ModelCluster, ModelPod, ModelRestore, ModelRestorePod,
    TemplateVariant,
};

/// The 128-bit hash of an encoded state. The probability that any two of 10⁹ states collide, so that one of them
/// would not be explored, is 10⁻²⁰.
pub type Fingerprint = u128;

/// All parts of all states so far.
#[derive(Debug)]
pub struct PartTables {
    /// The fields that all states share.
    common: ClusterModel,
    identities: Interner<Identity>,
    claims: Interner<(Serial, ModelClaim)>,
    pods: Interner<(Serial, ModelPod)>,
    restore_pods: Interner<(Serial, ModelRestorePod)>,
    requests: Interner<Option<ModelRestore>>,
    clusters: Interner<ModelCluster>,
    effects: Interner<Effect>,
}

impl PartTables {
    /// Creates the tables for all states that are reachable from `start`.
    pub fn new(start: &ClusterModel) -> Self {
        Self {
            common: ClusterModel {
                allows_tampering: start.allows_tampering,
                edits_change_template: start.edits_change_template,
                edits_change_volumes: start.edits_change_volumes,
                restores: start.restores,
                restores_in_place: start.restores_in_place,
                owns_data: start.owns_data,
                ..ClusterModel::new(
                    start.desired_members,
                    start.storage,
                    start.max_learners,
                    FaultBudget::NONE,
                )
            },
            identities: Interner::default(),
            claims: Interner::default(),
            pods: Interner::default(),
            restore_pods: Interner::default(),
            requests: Interner::default(),
            clusters: Interner::default(),
            effects: Interner::default(),
        }
    }

    /// Encodes a state without its fault budget into `words`, which is cleared first.
    pub fn compress(&self, model: &ClusterModel, words: &mut Vec<u32>) {
        let ClusterModel {
            desired_members,
            incarnation,
            storage: _,
            max_learners: _,
            template,
            identity,
            pdb_min_available: pdb_min,
            claims,
            pods,
            source,
            restore,
            restore_pods,
            clusters,
            pending_writes,
            late_writes,
            next_uid,
            allows_tampering: _,
            edits_change_template: _,
            edits_change_volumes: _,
            restores: _,
            restores_in_place: _,
            owns_data: _,
            identity_owned,
            identity_terminating,
            budget: _,
        } = model;
        words.clear();
        let desired_members = desired_members
            | if *identity_terminating {
                IDENTITY_TERMINATING
            } else {
                0
            }
            | if *identity_owned { IDENTITY_OWNED } else { 0 }
            | (*template as u8) << TEMPLATE_SHIFT;
        words.push(u32::from_le_bytes([
            desired_members,
            *incarnation,
            *next_uid,
            pdb_min.unwrap_or(NO_PDB),
        ]));
        words.push(u32::from_le_bytes(
            [
                claims.len(),
                pods.len(),
                clusters.len(),
                pending_writes.len(),
            ]
            .map(count),
        ));
        words.push(
            identity
                .as_ref()
                .map_or(u32::MAX, |identity| self.identities.number(identity)),
        );
        if self.common.restores {
            words.push(u32::from_le_bytes([
                *source,
                count(restore_pods.len()),
                0,
                0,
            ]));
            words.push(self.requests.number(restore));
            words.extend(
                restore_pods
                    .iter()
                    .map(|(serial, pod)| self.restore_pods.number(&(*serial, *pod))),
            );
        }
        words.extend(
            claims
                .iter()
                .map(|(serial, claim)| self.claims.number(&(*serial, claim.clone()))),
        );
        words.extend(
            pods.iter()
                .map(|(serial, pod)| self.pods.number(&(*serial, pod.clone()))),
        );
        words.extend(clusters.iter().map(|cluster| self.clusters.number(cluster)));
        words.extend(
            pending_writes
                .iter()
                .chain(late_writes)
                .map(|effect| self.effects.number(effect)),
        );
    }

    /// Decodes a state, with an empty fault budget.
    pub fn expand(&self, words: &[u32]) -> ClusterModel {
        let mut model = self.common.clone();
        let [first, second, identity, parts @ ..] = words else {
            return model;
        };
        let [desired_members, incarnation, next_uid, pdb_min] = first.to_le_bytes();
        let [claims, pods, clusters, pending_writes] = second.to_le_bytes().map(usize::from);
        (model.desired_members, model.identity_terminating) = (
            desired_members & MEMBERS_MASK,
            desired_members & IDENTITY_TERMINATING != 0,
        );
        model.identity_owned = desired_members & IDENTITY_OWNED != 0;
        model.template = TEMPLATES[usize::from(desired_members >> TEMPLATE_SHIFT & 3)];
        (model.incarnation, model.next_uid) = (incarnation, next_uid);
        model.pdb_min_available = (pdb_min != NO_PDB).then_some(pdb_min);
        model.identity = self.identities.value(*identity);
        let mut parts = parts;
        if let [word, rest @ ..] = parts
            && self.common.restores
        {
            let [source, restore_pods, ..] = word.to_le_bytes();
            let [request, rest @ ..] = rest else {
                return model;
            };
            let (restore_pods, rest) = rest.split_at(usize::from(restore_pods));
            model.source = source;
            model.restore = self.requests.value(*request).flatten();
            model.restore_pods = self.restore_pods.values(restore_pods).collect();
            parts = rest;
        }
        let (claims, parts) = parts.split_at(claims);
        let (pods, parts) = parts.split_at(pods);
        let (clusters, parts) = parts.split_at(clusters);
        let (pending_writes, late_writes) = parts.split_at(pending_writes);
        model.claims = self.claims.values(claims).collect();
        model.pods = self.pods.values(pods).collect();
        model.clusters = self.clusters.values(clusters).collect();
        model.pending_writes = self.effects.values(pending_writes).collect();
        model.late_writes = self.effects.values(late_writes).collect();
        model
    }
}

/// Member counts need four bits; the other bits hold the template and two flags.
const IDENTITY_TERMINATING: u8 = 0x80;
const IDENTITY_OWNED: u8 = 0x40;
const TEMPLATE_SHIFT: u8 = 4;
const MEMBERS_MASK: u8 = 0x0f;
const TEMPLATES: [TemplateVariant; 4] = [
    TemplateVariant::Original,
    TemplateVariant::Changed,
    TemplateVariant::Broken,
    TemplateVariant::Broken,
];

/// The code for a missing PodDisruptionBudget.
const NO_PDB: u8 = u8::MAX;

fn count(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Returns the fingerprint of an encoded state.
pub fn fingerprint(words: &[u32]) -> Fingerprint {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        words.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Numbers distinct values in the order of their first use.
#[derive(Debug)]
struct Interner<T>(RwLock<Interned<T>>);

#[derive(Debug)]
struct Interned<T> {
    numbers: HashMap<Arc<T>, u32>,
    values: Vec<Arc<T>>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self(RwLock::new(Interned {
            numbers: HashMap::new(),
            values: Vec::new(),
        }))
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    fn number(&self, value: &T) -> u32 {
        let known = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .numbers
            .get(value)
            .copied();
        known.unwrap_or_else(|| {
            let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let Interned { numbers, values } = &mut *table;
            let value = Arc::new(value.clone());
            // Another thread may have inserted the value first.
            *numbers.entry(Arc::clone(&value)).or_insert_with(|| {
                values.push(value);
                u32::try_from(values.len() - 1).unwrap_or(u32::MAX)
            })
        })
    }

    fn value(&self, number: u32) -> Option<T> {
        self.values(&[number]).next()
    }

    fn values(&self, numbers: &[u32]) -> impl Iterator<Item = T> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let values = numbers
            .iter()
            .filter_map(|number| table.values.get(usize::try_from(*number).ok()?));
        let values: Vec<Arc<T>> = values.map(Arc::clone).collect();
        values.into_iter().map(|value| T::clone(&value))
    }
}
