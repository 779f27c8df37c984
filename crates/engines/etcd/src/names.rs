//! Names of a cluster's objects, hosts and URLs. All are pure functions of the resource's name and of lineage, epoch and
//! serial, so that a crash between adding a member and creating its pod can be resumed from etcd's own member list.

use evenkeel_api::labels;
use evenkeel_kit::EngineInfo;

pub use evenkeel_kit::{Epoch, Lineage, Serial, member_name};

/// The engine, as its objects name it.
pub const ENGINE: EngineInfo = EngineInfo {
    engine: "etcd",
    kind: "EtcdCluster",
    api_version: "evenkeel.dev/v1alpha1",
    cluster_label: labels::CLUSTER,
};

/// Returns the host name of a member, which never changes. It has no cluster domain, because Kubernetes clusters use
/// different ones.
pub fn peer_host(cluster: &str, namespace: &str, member: &str) -> String {
    format!("{member}.{cluster}-etcd-peer.{namespace}.svc")
}

/// Returns the peer URL of a member, which never changes.
pub fn peer_url(cluster: &str, namespace: &str, member: &str) -> String {
    format!("https://{}:2380", peer_host(cluster, namespace, member))
}

/// Returns the token from which etcd derives member and cluster IDs. It differs between epochs, so that members of two
/// epochs never accept each other.
pub fn cluster_token(cluster: &str, lineage: Lineage, epoch: Epoch) -> String {
    format!("{cluster}-{:08x}-{}", lineage.0, epoch.0)
}

/// The names of the objects of the cluster with this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectNames<'c>(pub &'c str);

impl ObjectNames<'_> {
    /// The name of the PodDisruptionBudget.
    pub fn pod_disruption_budget(self) -> String {
        format!("{}-etcd", self.0)
    }

    /// The name of the BackupSchedule.
    pub fn backup_schedule(self) -> String {
        format!("{}-etcd", self.0)
    }

    /// The name of the decision log's ConfigMap.
    pub fn decision_log(self) -> String {
        format!("{}-etcd-decisions", self.0)
    }

    /// The name of the identity's ConfigMap.
    pub fn identity(self) -> String {
        format!("{}-etcd-identity", self.0)
    }

    /// The name of the headless Service that gives members their host names.
    pub fn peer_service(self) -> String {
        format!("{}-etcd-peer", self.0)
    }

    /// The name of the Service for clients.
    pub fn client_service(self) -> String {
        format!("{}-etcd-client", self.0)
    }

    /// The name of the Secret with the CA of the members.
    pub fn peer_ca(self) -> String {
        format!("{}-etcd-peer-ca", self.0)
    }

    /// The name of the Secret with the CA of clients and servers.
    pub fn client_ca(self) -> String {
        format!("{}-etcd-client-ca", self.0)
    }

    /// The name of the Secret with the certificate of the peer port.
    pub fn peer_tls(self) -> String {
        format!("{}-etcd-peer-tls", self.0)
    }

    /// The name of the Secret with the certificate of the client port.
    pub fn server_tls(self) -> String {
        format!("{}-etcd-server-tls", self.0)
    }

    /// The name of the Secret with the operator's certificate.
    pub fn operator_tls(self) -> String {
        format!("{}-etcd-operator-tls", self.0)
    }

    /// The name of the Secret with the certificate for the user's clients.
    pub fn client_tls(self) -> String {
        format!("{}-etcd-client-tls", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_tokens_never_change() {
        // Volumes and etcd's member lists contain them: a change here orphans every existing cluster.
        assert_eq!(
            peer_url("orders", "shop", "orders-kbbbb"),
            "https://orders-kbbbb.orders-etcd-peer.shop.svc:2380"
        );
        assert_eq!(
            cluster_token("orders", Lineage(7), Epoch::FIRST),
            "orders-00000007-1"
        );
    }
}
