//! The inputs of a pod that have changed since it was built: the true reason for its restart.
//!
//! A pod carries only the hash of its inputs. The inputs themselves are compared in the pod as it
//! is and the pod as it would be built now, field by field. Other differences between the two come
//! from another build of the operator or from Kubernetes, and do not restart a member.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_api::{duration, options, quantity};
use evenkeel_kit::pods::normalize_quantities;
use serde_json::{Value, json};

use crate::actions::format_duration;
use crate::build::pod::{PodParams, pod as build_pod};
use crate::desired::DesiredCluster;
use crate::facts::{EtcdFacts, PodFacts, StartMode};
use crate::observe::{ObservedCluster, member_ref};

/// The flags of etcd that the operator derives from fields with other names.
const QUOTA_FLAG: &str = "quota-backend-bytes";
const COMPACTION_FLAG: &str = "auto-compaction-retention";

/// Returns the inputs of a pod that have changed, each with its old and new value.
pub(super) fn template_changes(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    pod: &PodFacts,
) -> Vec<String> {
    let desired = &facts.cluster;
    let mut changes = Vec::new();
    let old_version = pod.version.filter(|version| *version != desired.version);
    if let Some(version) = old_version {
        changes.push(format!("version {version} → {}", desired.version));
    }
    // A forced snapshot makes the next version the desired one; the other inputs stay.
    let desired_cluster = DesiredCluster {
        version: desired.version,
        ..observed.desired.clone()
    };
    let live = observed.pods.get(&pod.uid);
    let built = live.and_then(|live| {
        let params = PodParams {
            member: member_ref(&live.metadata)?,
            start: StartMode::ExistingData,
            seed: false,
        };
        build_pod(&desired_cluster, &params).ok()
    });
    if let (Some(live), Some(built)) = (live, built) {
        let comparison = Comparison {
            live: PodInputs::of(&json!(live)),
            built: PodInputs::of(&json!(built)),
            desired: &desired_cluster,
            has_same_minor: old_version
                .is_none_or(|version| version.minor == desired.version.minor),
            has_same_version: old_version.is_none(),
        };
        changes.extend(comparison.changes(observed.resource.spec.etcd.quota.is_some()));
    }
    let is_restart = desired.restart_request.is_some();
    if is_restart && pod.restart_request != desired.restart_request {
        changes.push("a restart was requested".to_owned());
    }
    if changes.is_empty() {
        changes.push("the spec has changed since its pod was created".to_owned());
    }
    changes
}

/// The parts of a pod that depend on the user's inputs.
struct PodInputs {
    image: String,
    flags: BTreeMap<String, String>,
    resources: Value,
    spec: Value,
}

impl PodInputs {
    fn of(pod: &Value) -> Self {
        let spec = pod["spec"].clone();
        let container = &spec["containers"][0];
        let args = container["args"].as_array().into_iter().flatten();
        let flags = args.filter_map(|arg| {
            let (name, value) = arg.as_str()?.strip_prefix("--")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Self {
            image: container["image"].as_str().unwrap_or_default().to_owned(),
            flags: flags.collect(),
            resources: container["resources"].clone(),
            spec: spec.clone(),
        }
    }

    fn flag(&self, name: &str) -> Option<&str> {
        self.flags.get(name).map(String::as_str)
    }

    /// Returns the size limit of the ephemeral volume.
    fn ephemeral_size(&self) -> &Value {
        let volumes = self.spec["volumes"].as_array().into_iter().flatten();
        let mut limits = volumes.map(|volume| &volume["emptyDir"]["sizeLimit"]);
        limits
            .find(|limit| !limit.is_null())
            .unwrap_or(&Value::Null)
    }
}

/// A pod as it is and as it would be built now.
struct Comparison<'d> {
    live: PodInputs,
    built: PodInputs,
    desired: &'d DesiredCluster,
    has_same_version: bool,
    has_same_minor: bool,
}

impl Comparison<'_> {
    fn changes(&self, has_explicit_quota: bool) -> Vec<String> {
        let mut changes = Vec::new();
        changes.extend(self.image());
        changes.extend(self.quota(has_explicit_quota));
        changes.extend(self.compaction());
        changes.extend(self.options());
        changes.extend(self.resources());
        changes.extend(self.scheduling());
        changes
    }

    /// A new version changes the tag of the image. Only another repository or digest is a change
    /// of its own.
    fn image(&self) -> Option<String> {
        let (old, new) = (&self.live.image, &self.built.image);
        if old == new {
            return None;
        }
        let (old_repository, new_repository) = (repository(old), repository(new));
        if old_repository != new_repository {
            return Some(format!(
                "spec.image.repository {old_repository} → {new_repository}"
            ));
        }
        self.has_same_version
            .then(|| "spec.image.digest".to_owned())
    }

    fn quota(&self, is_explicit: bool) -> Option<String> {
        let [old, new] = [&self.live, &self.built].map(|pod| pod.flag(QUOTA_FLAG));
        if old == new {
            return None;
        }
        let size = |flag: Option<&str>| {
            let bytes = flag.and_then(|flag| flag.parse().ok());
            bytes.map_or_else(|| "(default)".to_owned(), format_size)
        };
        let change = format!("{} → {}", size(old), size(new));
        Some(if is_explicit {
            format!("spec.etcd.quota {change}")
        } else {
            format!("quota {change}, derived from spec.storage.size")
        })
    }

    fn compaction(&self) -> Option<String> {
        let [old, new] = [&self.live, &self.built].map(|pod| pod.flag(COMPACTION_FLAG));
        let text = |flag: Option<&str>| {
            let retention = flag.and_then(|flag| duration::parse(flag).ok().flatten());
            retention.map_or_else(|| "off".to_owned(), format_duration)
        };
        (old != new).then(|| format!("spec.etcd.autoCompaction {} → {}", text(old), text(new)))
    }

    /// Returns the changed options. Another minor version has other names for some of them.
    fn options(&self) -> Vec<String> {
        if !self.has_same_minor {
            return Vec::new();
        }
        let allowed = options::allowed_flags(self.desired.version);
        let changed = allowed.into_iter().filter_map(|name| {
            let [old, new] = [&self.live, &self.built].map(|pod| pod.flag(name));
            let text = |flag: Option<&str>| flag.unwrap_or("(default)").to_owned();
            (old != new).then(|| format!("spec.etcd.options.{name} {} → {}", text(old), text(new)))
        });
        changed.collect()
    }

    fn resources(&self) -> Vec<String> {
        let mut changes = Vec::new();
        for list in ["requests", "limits"] {
            let (old, new) = (&self.live.resources[list], &self.built.resources[list]);
            let names = [old, new].map(|list| list.as_object().into_iter().flatten());
            let names: BTreeSet<_> = names.into_iter().flatten().map(|(name, _)| name).collect();
            for name in names {
                let (old, new) = (&old[name], &new[name]);
                if normalize_quantities(old.clone()) != normalize_quantities(new.clone()) {
                    let change = format!("{} → {}", value_text(old), value_text(new));
                    changes.push(format!("spec.resources.{list}.{name} {change}"));
                }
            }
        }
        let [old, new] = [&self.live, &self.built].map(PodInputs::ephemeral_size);
        if normalize_quantities(old.clone()) != normalize_quantities(new.clone()) {
            let change = format!("{} → {}", value_text(old), value_text(new));
            changes.push(format!("spec.storage.size {change}"));
        }
        changes
    }

    /// Returns the changed fields without their values, which may be long.
    fn scheduling(&self) -> Vec<String> {
        let (live, built) = (&self.live.spec, &self.built.spec);
        let mut changes = Vec::new();
        let mut compare = |field: &str, is_same: bool| {
            if !is_same {
                changes.push(field.to_owned());
            }
        };
        compare("spec.image.pullSecrets", {
            live["imagePullSecrets"] == built["imagePullSecrets"]
        });
        compare("spec.scheduling.nodeSelector", {
            live["nodeSelector"] == built["nodeSelector"]
        });
        compare("spec.scheduling.priorityClass", {
            live["priorityClassName"] == built["priorityClassName"]
        });
        compare("spec.scheduling.tolerations", {
            user_tolerations(live) == user_tolerations(built)
        });
        compare("spec.scheduling.spread", spread(live) == spread(built));
        changes
    }
}

/// Returns the tolerations without those that Kubernetes adds to every pod.
fn user_tolerations(spec: &Value) -> Vec<&Value> {
    let tolerations = spec["tolerations"].as_array().into_iter().flatten();
    let is_default = |toleration: &Value| {
        let key = toleration["key"].as_str().unwrap_or_default();
        let is_node_state = ["not-ready", "unreachable", "memory-pressure"]
            .iter()
            .any(|state| key == format!("node.kubernetes.io/{state}"));
        is_node_state && toleration["operator"] == "Exists"
    };
    tolerations.filter(|it| !is_default(it)).collect()
}

/// Returns the inputs of the spread. `minDomains` follows the number of members, which restarts
/// nothing.
fn spread(spec: &Value) -> (&Value, &Value) {
    let constraint = &spec["topologySpreadConstraints"][0];
    (&constraint["topologyKey"], &constraint["whenUnsatisfiable"])
}

/// Returns an image without its tag and digest.
fn repository(image: &str) -> &str {
    let untagged = image.split('@').next().unwrap_or(image);
    match untagged.rsplit_once(':') {
        // A colon before a slash belongs to a port.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => untagged,
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "(not set)".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats a number of bytes as a quantity, with one decimal where that is exact.
pub(super) fn format_size(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    let tenths = bytes % GIB * 10;
    if bytes > GIB && tenths > 0 && tenths.is_multiple_of(GIB) {
        return format!("{}.{}Gi", bytes / GIB, tenths / GIB);
    }
    quantity::binary(bytes)
}

#[cfg(test)]
mod tests {
    use evenkeel_api::labels;

    use super::*;
    use crate::testing::{Scene, change};

    /// Returns the changes of the first member after an edit.
    fn changes(spec: Value) -> Vec<String> {
        let mut scene = Scene::converged(3);
        scene.edit_spec(spec);
        changes_of(&scene)
    }

    fn changes_of(scene: &Scene) -> Vec<String> {
        let facts = scene.facts();
        let pod = facts.pods.present().unwrap()[0].clone();
        template_changes(&scene.observed, &facts, &pod)
    }

    #[test]
    fn a_larger_volume_restarts_members_because_of_the_quota() {
        assert_eq!(
            changes(json!({ "storage": { "size": "6Gi" } })),
            ["quota 3Gi → 4.5Gi, derived from spec.storage.size"]
        );
        assert_eq!(
            changes(json!({ "etcd": { "quota": "2Gi" } })),
            ["spec.etcd.quota 3Gi → 2Gi"]
        );
    }

    #[test]
    fn each_changed_input_is_named_with_both_values() {
        assert_eq!(
            changes(json!({ "version": "3.6.17" })),
            ["version 3.6.16 → 3.6.17"],
            "the tag of the image is no change of its own"
        );
        let edit = json!({
            "version": "3.6.17",
            "image": { "repository": "mirror.example:5000/etcd" },
            "etcd": { "autoCompaction": "8h", "options": { "snapshot-count": "5000" } },
            "resources": { "requests": { "cpu": "2" } },
            "scheduling": { "nodeSelector": { "disk": "ssd" }, "spread": { "require": true } },
        });
        let named = changes(edit);
        for expected in [
            "→ mirror.example:5000/etcd",
            "spec.etcd.autoCompaction 1h → 8h",
            "spec.etcd.options.snapshot-count (default) → 5000",
            "spec.resources.requests.cpu 100m → 2",
            "spec.scheduling.nodeSelector",
            "spec.scheduling.spread",
        ] {
            assert!(
                named.iter().any(|change| change.contains(expected)),
                "{expected}: {named:#?}"
            );
        }
        assert_eq!(named.len(), 7, "{named:#?}");
    }

    #[test]
    fn fields_that_kubernetes_adds_are_not_named() {
        let mut scene = Scene::converged(3);
        let not_ready = json!({ "key": "node.kubernetes.io/not-ready", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300 });
        change(
            scene.pod(0),
            json!({ "spec": { "tolerations": [not_ready], "priority": 0 } }),
        );
        scene.edit_spec(json!({ "resources": { "requests": { "cpu": "0.1", "memory": "1Gi" } } }));
        assert_eq!(
            changes_of(&scene),
            ["spec.resources.requests.memory 256Mi → 1Gi"],
            "100m and 0.1 are the same"
        );
    }

    #[test]
    fn a_requested_restart_is_named() {
        let mut scene = Scene::converged(3);
        let annotations = json!({ labels::RESTARTED_AT: "2026-11-18T00:00:00Z" });
        change(
            &mut scene.observed.resource,
            json!({ "metadata": { "annotations": annotations } }),
        );
        scene.edit_spec(json!({}));
        assert_eq!(changes_of(&scene), ["a restart was requested"]);
    }

    #[test]
    fn the_repository_has_neither_tag_nor_digest() {
        for (image, expected) in [
            ("registry.example/etcd:v3.6.16", "registry.example/etcd"),
            ("mirror:5000/etcd:v3.6.16@sha256:ab", "mirror:5000/etcd"),
            ("mirror:5000/etcd", "mirror:5000/etcd"),
        ] {
            assert_eq!(repository(image), expected);
        }
    }
}
