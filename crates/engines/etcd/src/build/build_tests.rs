//! Properties of the built objects that the cluster's safety depends on.

use std::collections::BTreeSet;

use evenkeel_kit::claims::{joined_on, read_joined_on};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::claim::claim;
use super::pod::{CONTAINER, PodParams, pod};
use super::*;
use crate::facts::StartMode;
use crate::identity::Uid;
use crate::names::{Epoch, Serial, cluster_token};
use crate::testing::{LINEAGE, RESOURCE, Scene, change, claim_uid, desired, member, name};

fn persistent() -> DesiredCluster {
    desired(json!({}))
}

fn ephemeral() -> DesiredCluster {
    desired(json!({ "storage": { "ephemeral": true, "size": "2Gi" } }))
}

fn built_pod(
    desired: &DesiredCluster,
    start: StartMode,
    seed: bool,
) -> (ObjectMeta, PodSpec, Container) {
    let pod = pod(
        desired,
        &PodParams {
            member: member(1),
            start,
            seed,
        },
    )
    .unwrap();
    let spec = pod.spec.unwrap();
    let container = spec.containers[0].clone();
    (pod.metadata, spec, container)
}

fn arguments(container: &Container, flag: &str) -> Vec<String> {
    let flag = format!("--{flag}=");
    let args = container.args.iter().flatten();
    args.filter_map(|arg| arg.strip_prefix(&flag))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_pod_passes_the_restricted_profile_and_has_no_token() {
    for desired in [persistent(), ephemeral()] {
        let (_, spec, container) = built_pod(&desired, StartMode::Held, true);
        assert_eq!(spec.automount_service_account_token, Some(false));
        assert_eq!(
            (spec.host_network, spec.host_pid, spec.host_ipc),
            (None, None, None)
        );
        let pod = spec.security_context.unwrap();
        assert_eq!(pod.run_as_non_root, Some(true));
        assert!(
            pod.run_as_user > Some(0) && pod.fs_group == pod.run_as_user,
            "the volume is writable for etcd"
        );
        assert_eq!(pod.seccomp_profile.unwrap().type_, "RuntimeDefault");
        assert_eq!(spec.containers.len(), 1);
        let own = container.security_context.unwrap();
        assert_eq!(own.allow_privilege_escalation, Some(false));
        assert_eq!(own.read_only_root_filesystem, Some(true));
        let capabilities = own.capabilities.unwrap();
        assert_eq!(
            (capabilities.drop, capabilities.add),
            (Some(vec!["ALL".to_owned()]), None)
        );
        assert!(
            container
                .ports
                .iter()
                .flatten()
                .all(|port| port.host_port.is_none())
        );
        let volumes = spec.volumes.unwrap();
        let allowed = |volume: &k8s_openapi::api::core::v1::Volume| {
            volume.secret.is_some()
                || volume.empty_dir.is_some()
                || volume.persistent_volume_claim.is_some()
        };
        assert!(volumes.iter().all(allowed), "no hostPath");
    }
}

#[test]
fn a_new_pod_has_label_and_owner_and_gets_no_clients() {
    let (metadata, spec, _) = built_pod(&persistent(), StartMode::Held, false);
    let labels = metadata.labels.unwrap();
    assert_eq!(labels[labels::CLUSTER], "orders");
    assert_eq!(labels[labels::APP_VERSION], "3.6.16");
    assert!(
        !labels.contains_key(labels::ROLE),
        "clients are routed by this label"
    );
    let owners = metadata.owner_references.unwrap();
    assert_eq!(
        (owners[0].uid.as_str(), owners[0].controller),
        (&*RESOURCE.to_string(), Some(true))
    );
    assert_eq!(
        owners[0].block_owner_deletion, None,
        "needs permission on the resource's finalizers"
    );
    assert_eq!(metadata.finalizers, None);
    assert_eq!(metadata.name, Some(name(1)));
    assert_eq!(
        spec.hostname,
        Some(name(1)),
        "the host name in its peer URL"
    );
    assert_eq!(spec.subdomain.as_deref(), Some("orders-etcd-peer"));
    assert_eq!(
        MemberRef::read(&metadata.annotations.unwrap()),
        Some(member(1))
    );
}

#[test]
fn a_pod_is_not_ready_before_it_has_joined() {
    let (_, spec, container) = built_pod(&persistent(), StartMode::Held, false);
    let gates: Vec<_> = spec
        .readiness_gates
        .unwrap()
        .into_iter()
        .map(|gate| gate.condition_type)
        .collect();
    assert_eq!(gates, [labels::GATE_JOINED]);
    let path = |probe: Option<k8s_openapi::api::core::v1::Probe>| {
        probe.unwrap().http_get.unwrap().path.unwrap()
    };
    assert!(path(container.readiness_probe).starts_with("/readyz"));
    // A liveness probe that needs a quorum kills a cluster that is recovering.
    assert_eq!(path(container.liveness_probe), "/livez");
}

#[test]
fn only_a_seed_can_start_a_new_cluster() {
    let (_, _, seed) = built_pod(&persistent(), StartMode::Held, true);
    assert_eq!(
        arguments(&seed, "initial-cluster-state"),
        ["$(INITIAL_CLUSTER_STATE)"]
    );
    for start in [
        StartMode::Held,
        StartMode::Bootstrap,
        StartMode::ExistingData,
        StartMode::Join([Serial(0), Serial(1)].into()),
    ] {
        let (_, _, other) = built_pod(&persistent(), start, false);
        assert_eq!(
            arguments(&other, "initial-cluster-state"),
            ["existing"],
            "a literal, not a variable"
        );
        let variables: Vec<_> = other
            .env
            .into_iter()
            .flatten()
            .map(|one| one.name)
            .collect();
        assert_eq!(variables, ["DATA", "INITIAL_CLUSTER"]);
    }
}

#[test]
fn the_container_has_no_variable_that_configures_etcd() {
    let (_, spec, container) = built_pod(&persistent(), StartMode::Held, true);
    let env = container.env.clone().unwrap();
    assert!(
        env.iter().all(|one| !one.name.starts_with("ETCD_")),
        "an empty variable makes etcd start a new cluster"
    );
    assert_eq!(
        spec.enable_service_links,
        Some(false),
        "a Service named etcd would add ETCD_* variables"
    );
    assert!(container.env_from.is_none());
    for variable in env {
        let path = variable.value_from.unwrap().field_ref.unwrap().field_path;
        assert!(
            path.starts_with("metadata.annotations['evenkeel.dev/"),
            "{path}"
        );
    }
}

#[test]
fn a_member_has_its_own_name_and_urls_and_the_token_of_its_epoch() {
    let (_, _, etcd) = built_pod(&persistent(), StartMode::Held, false);
    assert_eq!(etcd.name, CONTAINER);
    let host = format!("{}.orders-etcd-peer.shop.svc", name(1));
    assert_eq!(arguments(&etcd, "name"), [name(1)]);
    assert_eq!(
        arguments(&etcd, "initial-advertise-peer-urls"),
        [format!("https://{host}:2380")]
    );
    assert_eq!(
        arguments(&etcd, "advertise-client-urls"),
        [format!("https://{host}:2379")]
    );
    assert_eq!(
        arguments(&etcd, "initial-cluster-token"),
        [cluster_token("orders", LINEAGE, Epoch::FIRST)]
    );
    for flag in ["client-cert-auth", "peer-client-cert-auth"] {
        assert_eq!(arguments(&etcd, flag), ["true"], "{flag}");
    }
    let (peers, clients) = (
        arguments(&etcd, "peer-trusted-ca-file"),
        arguments(&etcd, "trusted-ca-file"),
    );
    assert!(
        peers != clients,
        "with one CA every client could act as a member"
    );
    assert!(
        etcd.args
            .iter()
            .flatten()
            .all(|arg| !arg.contains("force-new-cluster"))
    );
}

#[test]
fn options_have_the_flag_names_of_the_version() {
    let options =
        json!({ "etcd": { "options": { "compaction-batch-limit": "500" } }, "version": "3.5.35" });
    let (_, _, etcd) = built_pod(&desired(options), StartMode::Held, false);
    assert_eq!(
        arguments(&etcd, "experimental-compaction-batch-limit"),
        ["500"]
    );
    assert_eq!(arguments(&etcd, "compaction-batch-limit"), [""; 0]);
}

#[test]
fn no_option_repeats_a_flag_of_the_operator() {
    for version in ["3.5.11", "3.5.35", "3.6.0", "3.6.16", "3.7.0", "3.7.3"] {
        let (_, _, etcd) = built_pod(
            &desired(json!({ "version": version })),
            StartMode::Held,
            true,
        );
        let flag = |arg: &str| {
            arg.trim_start_matches("--")
                .split('=')
                .next()
                .map(str::to_owned)
        };
        let own_flags: BTreeSet<_> = etcd
            .args
            .iter()
            .flatten()
            .filter_map(|arg| flag(arg))
            .collect();
        assert!(own_flags.len() > 15, "{version}: {own_flags:?}");
        let option_flags = evenkeel_api::options::allowed_flags(version.parse().unwrap());
        assert!(option_flags.len() > 20, "{version}: {option_flags:?}");
        let repeated: Vec<_> = option_flags
            .iter()
            .filter(|flag| own_flags.contains(**flag))
            .collect();
        assert!(repeated.is_empty(), "{version}: {repeated:?}");
    }
}

#[test]
fn every_start_mode_is_read_as_it_was_written() {
    let desired = persistent();
    let index = Scene::converged(3).observed.member_index().unwrap();
    let start_modes = [
        StartMode::Held,
        StartMode::Bootstrap,
        StartMode::ExistingData,
        StartMode::Join([0, 1].map(Serial).into()),
        StartMode::Join([0, 1, 2].map(Serial).into()),
    ];
    for start_mode in start_modes {
        let built = pod(
            &desired,
            &PodParams {
                member: member(1),
                start: start_mode.clone(),
                seed: true,
            },
        )
        .unwrap();
        assert_eq!(
            start_mode::read(&built, Serial(1), |name| index.by_name(name)),
            start_mode
        );
    }
}

#[test]
fn an_edited_pod_is_never_read_as_seed_or_joining() {
    let mut built = pod(
        &persistent(),
        &PodParams {
            member: member(1),
            start: StartMode::ExistingData,
            seed: false,
        },
    )
    .unwrap();
    let read = |pod: &k8s_openapi::api::core::v1::Pod| start_mode::read(pod, Serial(1), |_| None);
    change(
        &mut built,
        json!({ "metadata": { "annotations": { labels::INITIAL_CLUSTER: "other=url" } } }),
    );
    assert_eq!(
        read(&built),
        StartMode::ExistingData,
        "etcd rejects a list without itself on an empty directory"
    );
    change(
        &mut built,
        json!({ "metadata": { "annotations": { labels::DATA_SUB_PATH: "elsewhere" } } }),
    );
    assert_eq!(read(&built), StartMode::Held);
    built.metadata.annotations = None;
    assert_eq!(read(&built), StartMode::Held);
}

#[test]
fn a_held_pod_cannot_mount_its_data() {
    let (held, _, container) = built_pod(&persistent(), StartMode::Held, false);
    let data = |metadata: ObjectMeta| metadata.annotations.unwrap()[labels::DATA_SUB_PATH].clone();
    let mounts = container.volume_mounts.unwrap();
    let mount = mounts.iter().find(|mount| mount.name == "data").unwrap();
    assert_eq!(mount.sub_path_expr.as_deref(), Some("$(DATA)"));
    let sub_path = data(held);
    assert!(
        sub_path.starts_with('/'),
        "the kubelet rejects an absolute path: {sub_path}"
    );
    assert!(evenkeel_kit::pods::is_held_message(&format!(
        "subPath: {sub_path} must be a relative path"
    )));
    assert!(!data(built_pod(&persistent(), StartMode::Bootstrap, true).0).starts_with('/'));
}

#[test]
fn data_is_on_a_claim_of_the_members_name_or_in_the_pod() {
    let data = |desired: &DesiredCluster| {
        let (_, spec, _) = built_pod(desired, StartMode::Held, false);
        spec.volumes
            .unwrap()
            .into_iter()
            .find(|volume| volume.name == "data")
            .unwrap()
    };
    assert_eq!(
        data(&persistent())
            .persistent_volume_claim
            .unwrap()
            .claim_name,
        name(1)
    );
    let limit = data(&ephemeral()).empty_dir.unwrap().size_limit.unwrap();
    assert_eq!(limit.0, "2Gi");
    assert!(claim(&ephemeral(), member(1), true).unwrap().is_none());
}

#[test]
fn required_spread_needs_one_node_per_member() {
    let spread = |spec| {
        let (_, spec, _) = built_pod(&desired(spec), StartMode::Held, false);
        let spread = spec.topology_spread_constraints.unwrap().remove(0);
        (
            spread.topology_key,
            spread.when_unsatisfiable,
            spread.min_domains,
        )
    };
    let (key, when, least) =
        spread(json!({ "scheduling": { "spread": { "require": true } }, "members": 5 }));
    assert_eq!(
        (&*key, &*when, least),
        ("kubernetes.io/hostname", "DoNotSchedule", Some(5))
    );
    let across = json!({ "scheduling": { "spread": { "require": false, "across": "Zone" } } });
    let (key, when, least) = spread(across);
    assert_eq!(
        (&*key, &*when, least),
        ("topology.kubernetes.io/zone", "ScheduleAnyway", None)
    );
}

#[test]
fn claim_and_identity_are_owned_only_if_the_spec_says_delete() {
    let identity = Scene::converged(1).observed.identity.unwrap().1;
    for (on_delete, owners) in [("Keep", 0), ("Delete", 1)] {
        let desired = desired(
            json!({ "storage": { "onDelete": on_delete, "class": "fast", "size": "20Gi" } }),
        );
        let claim = claim(&desired, member(1), desired.owns_data())
            .unwrap()
            .unwrap();
        assert_eq!(
            claim.metadata.owner_references.unwrap_or_default().len(),
            owners,
            "{on_delete}"
        );
        assert_eq!(
            MemberRef::read(&claim.metadata.annotations.unwrap()),
            Some(member(1))
        );
        let spec = claim.spec.unwrap();
        assert_eq!(spec.storage_class_name.as_deref(), Some("fast"));
        assert_eq!(spec.access_modes, Some(vec!["ReadWriteOnce".to_owned()]));
        assert_eq!(
            spec.resources.unwrap().requests.unwrap()["storage"].0,
            "20Gi"
        );
        let identity_object = super::identity(&desired, &identity).unwrap();
        assert_eq!(
            identity_object
                .metadata
                .owner_references
                .unwrap_or_default()
                .len(),
            owners,
            "{on_delete}"
        );
    }
    let claim = claim(&persistent(), member(1), false).unwrap().unwrap();
    assert_eq!(
        claim.spec.unwrap().storage_class_name,
        None,
        "the default class: an empty name would mean no class"
    );
}

#[test]
fn the_joined_volume_is_read_as_it_was_written() {
    let mut built = claim(&persistent(), member(1), false).unwrap().unwrap();
    assert_eq!(read_joined_on(&built), None);
    let value = joined_on(claim_uid(1), "pv-1");
    change(
        &mut built,
        json!({ "metadata": { "annotations": { labels::JOINED_VOLUME: value } } }),
    );
    assert_eq!(
        read_joined_on(&built),
        Some((claim_uid(1), Uid::of_name("pv-1")))
    );
}

#[test]
fn an_identity_is_read_as_it_was_written() {
    let identity = Scene::converged(1).observed.identity.unwrap().1;
    let object = super::identity(&persistent(), &identity).unwrap();
    assert_eq!(
        object.metadata.name.as_deref(),
        Some("orders-etcd-identity")
    );
    assert_eq!(
        crate::observe::objects::parse_identity(object).unwrap().1,
        identity
    );
}

#[test]
fn the_peer_service_publishes_all_members_the_client_service_voters() {
    let desired =
        desired(json!({ "service": { "type": "LoadBalancer", "annotations": { "a": "b" } } }));
    let peer = service::peer(&desired).unwrap().spec.unwrap();
    assert_eq!(peer.cluster_ip.as_deref(), Some("None"));
    assert_eq!(peer.publish_not_ready_addresses, Some(true));
    assert_eq!(
        peer.selector.unwrap().keys().collect::<Vec<_>>(),
        [labels::CLUSTER]
    );

    let client = service::client(&desired).unwrap();
    assert_eq!(client.metadata.annotations.unwrap()["a"], "b");
    let client = client.spec.unwrap();
    assert_eq!(client.type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(client.publish_not_ready_addresses, None);
    let selector = client.selector.unwrap();
    assert_eq!(selector[labels::ROLE], labels::ROLE_VOTER);
    assert_eq!(selector[labels::CLUSTER], "orders");
    let ports: Vec<_> = client
        .ports
        .unwrap()
        .into_iter()
        .map(|port| port.port)
        .collect();
    assert_eq!(ports, [2379], "clients do not use the peer port");
}

#[test]
fn the_pod_disruption_budget_counts_ready_voters_by_number() {
    let spec = pod_disruption_budget(&persistent(), 2)
        .unwrap()
        .spec
        .unwrap();
    let min = spec.min_available.unwrap();
    // A percentage or maxUnavailable would be computed from the desired members.
    assert_eq!(serde_json::to_value(min).unwrap(), json!(2));
    assert_eq!(spec.max_unavailable, None);
    assert_eq!(
        spec.unhealthy_pod_eviction_policy.as_deref(),
        Some("AlwaysAllow")
    );
    let selector = spec.selector.unwrap().match_labels.unwrap();
    assert_eq!(selector[labels::ROLE], labels::ROLE_VOTER);
    assert_eq!(selector[labels::CLUSTER], "orders");
}

#[test]
fn there_are_two_cas_and_only_the_operator_is_root() {
    let desired = desired(json!({ "tls": { "client": { "extraNames": ["etcd.corp.example"] } } }));
    let leaves = tls::SECRETS
        .iter()
        .filter_map(|object| Some((*object, tls::leaf(&desired, *object)?)));
    let names: BTreeSet<_> = tls::SECRETS
        .iter()
        .filter_map(|it| tls::secret_name(&desired, *it))
        .collect();
    assert_eq!(names.len(), tls::SECRETS.len(), "each in its own Secret");
    for (object, leaf) in leaves {
        use crate::facts::OwnedObject::{ClientCa, OperatorTls, PeerCa, PeerTls, ServerTls};
        assert_eq!(
            leaf.signed_by,
            if object == PeerTls { PeerCa } else { ClientCa },
            "{object:?}"
        );
        assert_eq!(
            leaf.common_name == "root",
            object == OperatorTls,
            "{object:?}"
        );
        let is_server = object == ServerTls;
        assert_eq!(
            leaf.names.contains(&"etcd.corp.example".to_owned()),
            is_server,
            "{object:?}"
        );
        assert_eq!(
            leaf.names
                .contains(&"orders-etcd-client.shop.svc".to_owned()),
            is_server,
            "{object:?}"
        );
        let of_members = leaf
            .names
            .contains(&"*.orders-etcd-peer.shop.svc".to_owned());
        assert_eq!(of_members, is_server || object == PeerTls, "{object:?}");
    }
}
