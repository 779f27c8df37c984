//! The TLS Secrets of a cluster. There are two CAs, one for members and one for clients: with one, every application's
//! certificate would open the peer port.

use evenkeel_kit::tls_secrets::{SecretSpec, TlsSpec};

use crate::desired::DesiredCluster;
use crate::facts::OwnedObject;

/// A certificate of a cluster.
pub type Leaf = evenkeel_kit::certificates::Leaf<OwnedObject>;

/// Every TLS Secret, CAs first: the certificates are signed by them.
pub const SECRETS: [OwnedObject; 6] = [
    OwnedObject::PeerCa,
    OwnedObject::ClientCa,
    OwnedObject::PeerTls,
    OwnedObject::ServerTls,
    OwnedObject::OperatorTls,
    OwnedObject::ClientTls,
];

/// Returns all TLS Secrets of a cluster.
pub fn spec(desired: &DesiredCluster) -> TlsSpec<'_, OwnedObject> {
    let secret = |key: &OwnedObject| {
        Some(SecretSpec {
            key: *key,
            name: secret_name(desired, *key)?,
            leaf: leaf(desired, *key),
        })
    };
    TlsSpec {
        cluster: desired.cluster_ref(),
        secrets: SECRETS.iter().filter_map(secret).collect(),
        operator_secret: OwnedObject::OperatorTls,
    }
}

/// Returns the certificate in a Secret; `None` for a CA and for an object that is not a Secret.
pub fn leaf(desired: &DesiredCluster, object: OwnedObject) -> Option<Leaf> {
    let (common_name, names) = match object {
        OwnedObject::PeerTls => ("peer", member_names(desired)),
        OwnedObject::ServerTls => ("server", server_names(desired)),
        // The name of etcd's administrator, so that a user who enables authentication does not lock the operator out.
        OwnedObject::OperatorTls => ("root", Vec::new()),
        // Never root: applications share it.
        OwnedObject::ClientTls => ("client", Vec::new()),
        OwnedObject::Identity
        | OwnedObject::PeerService
        | OwnedObject::ClientService
        | OwnedObject::PeerCa
        | OwnedObject::ClientCa
        | OwnedObject::PodDisruptionBudget
        | OwnedObject::BackupSchedule => {
            return None;
        }
    };
    Some(Leaf {
        signed_by: object.signed_by()?,
        common_name,
        names,
    })
}

/// Returns the name of a Secret; `None` for an object that is not a Secret.
pub fn secret_name(desired: &DesiredCluster, object: OwnedObject) -> Option<String> {
    let names = desired.names();
    match object {
        OwnedObject::PeerCa => Some(names.peer_ca()),
        OwnedObject::ClientCa => Some(names.client_ca()),
        OwnedObject::PeerTls => Some(names.peer_tls()),
        OwnedObject::ServerTls => Some(names.server_tls()),
        OwnedObject::OperatorTls => Some(names.operator_tls()),
        OwnedObject::ClientTls => Some(names.client_tls()),
        OwnedObject::Identity
        | OwnedObject::PeerService
        | OwnedObject::ClientService
        | OwnedObject::PodDisruptionBudget
        | OwnedObject::BackupSchedule => None,
    }
}

/// Returns wildcard names for all members, so that no certificate has to be renewed when a member joins.
fn member_names(desired: &DesiredCluster) -> Vec<String> {
    let service = desired.names().peer_service();
    let domain = format!("*.{service}.{}.svc", desired.namespace);
    vec![format!("{domain}.cluster.local"), domain]
}

/// Returns the names under which clients reach servers: the Service by all its names, each member, the local host for
/// port forwarding, and the names in the spec.
fn server_names(desired: &DesiredCluster) -> Vec<String> {
    let service = desired.names().client_service();
    let namespace = &desired.namespace;
    let mut names = vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        service,
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    names.extend(member_names(desired));
    names.extend(desired.extra_names.iter().cloned());
    names
}
