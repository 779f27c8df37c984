//! What certificates a cluster has. Two authorities, one for members and one for clients: with one, every application's
//! certificate would open the members' port.

use crate::facts::Object;
use crate::wanted::Wanted;

/// A certificate that an authority signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Which authority signs it.
    pub signed_by: Object,
    /// Whom it is for. etcd takes it for a user's name once authentication is switched on.
    pub common_name: &'static str,
    /// The host names and addresses it is good for.
    pub names: Vec<String>,
}

/// The certificate in a secret; none for the authorities and for what is no secret.
pub fn leaf(wanted: &Wanted, object: Object) -> Option<Leaf> {
    let (common_name, names) = match object {
        Object::PeerTls => ("peer", peer_names(wanted)),
        Object::ServerTls => ("server", server_names(wanted)),
        // etcd's own name for the administrator, so that a user who switches authentication on does not lock it out.
        Object::OperatorTls => ("root", Vec::new()),
        // Never root: applications share it.
        Object::ClientTls => ("client", Vec::new()),
        Object::Identity
        | Object::PeerService
        | Object::ClientService
        | Object::PeerCa
        | Object::ClientCa
        | Object::Budget => {
            return None;
        }
    };
    Some(Leaf { signed_by: object.signed_by()?, common_name, names })
}

/// The secret of an object; none for what is no secret.
pub fn secret_name(wanted: &Wanted, object: Object) -> Option<String> {
    let names = wanted.names();
    match object {
        Object::PeerCa => Some(names.peer_ca()),
        Object::ClientCa => Some(names.client_ca()),
        Object::PeerTls => Some(names.peer_tls()),
        Object::ServerTls => Some(names.server_tls()),
        Object::OperatorTls => Some(names.operator_tls()),
        Object::ClientTls => Some(names.client_tls()),
        Object::Identity | Object::PeerService | Object::ClientService | Object::Budget => None,
    }
}

/// Every secret, authorities first: the others are signed by them.
pub const SECRETS: [Object; 6] = [
    Object::PeerCa,
    Object::ClientCa,
    Object::PeerTls,
    Object::ServerTls,
    Object::OperatorTls,
    Object::ClientTls,
];

/// All members by one wildcard: no certificate has to be made when a member joins.
fn members(wanted: &Wanted) -> Vec<String> {
    let domain = format!("*.{}.{}.svc", wanted.names().peer_service(), wanted.namespace);
    vec![format!("{domain}.cluster.local"), domain]
}

fn peer_names(wanted: &Wanted) -> Vec<String> {
    members(wanted)
}

/// What clients may call the servers: the service by all its names, each member, and this machine for port-forwarding.
fn server_names(wanted: &Wanted) -> Vec<String> {
    let (service, namespace) = (wanted.names().client_service(), &wanted.namespace);
    let mut names = vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        service,
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    names.extend(members(wanted));
    names.extend(wanted.extra_names.iter().cloned());
    names
}
