//! What certificates a cluster has. Two authorities, one for members and one for clients: with one, every application's
//! certificate would open the members' port.

use crate::desired::DesiredCluster;
use crate::facts::OwnedObject;

/// A certificate that an authority signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Which authority signs it.
    pub signed_by: OwnedObject,
    /// Whom it is for. etcd takes it for a user's name once authentication is switched on.
    pub common_name: &'static str,
    /// The host names and addresses it is good for.
    pub names: Vec<String>,
}

/// The certificate in a secret; none for the authorities and for what is no secret.
pub fn leaf(desired: &DesiredCluster, object: OwnedObject) -> Option<Leaf> {
    let (common_name, names) = match object {
        OwnedObject::PeerTls => ("peer", peer_names(desired)),
        OwnedObject::ServerTls => ("server", server_names(desired)),
        // etcd's own name for the administrator, so that a user who switches authentication on does not lock it out.
        OwnedObject::OperatorTls => ("root", Vec::new()),
        // Never root: applications share it.
        OwnedObject::ClientTls => ("client", Vec::new()),
        OwnedObject::Identity
        | OwnedObject::PeerService
        | OwnedObject::ClientService
        | OwnedObject::PeerCa
        | OwnedObject::ClientCa
        | OwnedObject::PodDisruptionBudget => {
            return None;
        }
    };
    Some(Leaf {
        signed_by: object.signed_by()?,
        common_name,
        names,
    })
}

/// The secret of an object; none for what is no secret.
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
        | OwnedObject::PodDisruptionBudget => None,
    }
}

/// Every secret, authorities first: the others are signed by them.
pub const SECRETS: [OwnedObject; 6] = [
    OwnedObject::PeerCa,
    OwnedObject::ClientCa,
    OwnedObject::PeerTls,
    OwnedObject::ServerTls,
    OwnedObject::OperatorTls,
    OwnedObject::ClientTls,
];

/// All members by one wildcard: no certificate has to be made when a member joins.
fn members(desired: &DesiredCluster) -> Vec<String> {
    let domain = format!(
        "*.{}.{}.svc",
        desired.names().peer_service(),
        desired.namespace
    );
    vec![format!("{domain}.cluster.local"), domain]
}

fn peer_names(desired: &DesiredCluster) -> Vec<String> {
    members(desired)
}

/// What clients may call the servers: the service by all its names, each member, and this machine for port-forwarding.
fn server_names(desired: &DesiredCluster) -> Vec<String> {
    let (service, namespace) = (desired.names().client_service(), &desired.namespace);
    let mut names = vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        service,
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    names.extend(members(desired));
    names.extend(desired.extra_names.iter().cloned());
    names
}
