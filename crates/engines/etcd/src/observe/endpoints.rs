//! The addresses of members and of the client Service.

use k8s_openapi::api::core::v1::{Pod, Service};

use super::etcd::MemberTarget;
use super::{ObservedCluster, member_ref};
use crate::build::start_mode;
use crate::client::Endpoint;
use crate::desired::DesiredCluster;
use crate::facts::StartMode;
use crate::names::{Serial, member_name, peer_host};

/// Returns the members of the current epoch whose pods have an address.
pub(crate) fn member_targets(observed: &ObservedCluster) -> Vec<MemberTarget> {
    let pods = observed.pods.values();
    pods.filter_map(|pod| member_target(observed, pod))
        .collect()
}

/// Returns the address of a member of the current epoch.
pub(crate) fn member_endpoint(observed: &ObservedCluster, serial: Serial) -> Option<Endpoint> {
    let mut targets = member_targets(observed).into_iter();
    targets
        .find(|target| target.serial == serial)
        .map(|target| target.endpoint)
}

fn member_target(observed: &ObservedCluster, pod: &Pod) -> Option<MemberTarget> {
    let (_, identity) = observed.identity.as_ref()?;
    let member = member_ref(&pod.metadata)?;
    if member.lineage != identity.lineage || member.epoch != identity.epoch {
        return None;
    }
    let desired = &observed.desired;
    let name = member_name(&desired.name, member.lineage, member.serial);
    let address = pod.status.as_ref()?.pod_ip.clone();
    let endpoint = Endpoint {
        address: address.filter(|address| !address.is_empty())?,
        name: peer_host(&desired.name, &desired.namespace, &name),
    };
    let start_mode = start_mode::read(pod, member.serial, |_| None);
    Some(MemberTarget {
        serial: member.serial,
        endpoint,
        is_seed: start_mode == StartMode::Bootstrap,
    })
}

/// Returns the address of the client Service; `None` if it has no cluster IP.
pub(crate) fn service_endpoint(desired: &DesiredCluster, service: &Service) -> Option<Endpoint> {
    let address = service.spec.as_ref()?.cluster_ip.clone();
    let service_name = desired.names().client_service();
    Some(Endpoint {
        address: address.filter(|address| address != "None")?,
        name: format!("{service_name}.{}.svc", desired.namespace),
    })
}
