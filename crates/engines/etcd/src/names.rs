//! Who a member is. Lineage, epoch and serial give its name, and its name gives its peer URL: pure functions, so that a
//! crash between adding a member and creating its pod is resumed from what etcd itself lists.

use serde::{Deserialize, Serialize};

/// The random mark of one cluster's history, from its first bootstrap on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lineage(pub u32);

/// Each bootstrap or restore is an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u16);

impl Epoch {
    /// The epoch of a cluster's first bootstrap.
    pub const FIRST: Self = Self(1);

    /// The one that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The number of a member within its lineage: reserved before anything is created, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Serial(pub u16);

impl Serial {
    /// The one that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// As Kubernetes' own generated names: no vowels, no look-alikes.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// 27 to the fifth: how many suffixes there are.
const SUFFIXES: u64 = 14_348_907;
/// Not divisible by 3, so multiplying by it is one-to-one among the suffixes, and neighbours look unlike.
const MULTIPLIER: u64 = 8_121_349;

/// The name of a member of the cluster `cluster`, such as `orders-k7f2x`. Serials alone tell a lineage's members apart,
/// whatever their epochs, so no two of them ever share a name.
pub fn member_name(cluster: &str, lineage: Lineage, serial: Serial) -> String {
    let mut number = (u64::from(serial.0) * MULTIPLIER + u64::from(lineage.0)) % SUFFIXES;
    let mut suffix = [0; 5];
    for place in &mut suffix {
        let letter = usize::try_from(number % 27).unwrap_or_default();
        *place = ALPHABET[letter];
        number /= 27;
    }
    format!("{cluster}-{}", String::from_utf8_lossy(&suffix))
}

/// The host name of a member, which never changes. No cluster domain in it: clusters name theirs differently.
pub fn peer_host(cluster: &str, namespace: &str, member: &str) -> String {
    format!("{member}.{cluster}-etcd-peer.{namespace}.svc")
}

/// The peer URL of a member, which never changes.
pub fn peer_url(cluster: &str, namespace: &str, member: &str) -> String {
    format!("https://{}:2380", peer_host(cluster, namespace, member))
}

/// The names of a cluster's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectNames<'c>(pub &'c str);

impl ObjectNames<'_> {
    /// The PodDisruptionBudget.
    pub fn pod_disruption_budget(self) -> String {
        format!("{}-etcd", self.0)
    }

    /// The ConfigMap of the decision log.
    pub fn decision_log(self) -> String {
        format!("{}-etcd-decisions", self.0)
    }

    /// The identity.
    pub fn identity(self) -> String {
        format!("{}-etcd-identity", self.0)
    }

    /// The service that gives members their names.
    pub fn peer_service(self) -> String {
        format!("{}-etcd-peer", self.0)
    }

    /// The service for clients.
    pub fn client_service(self) -> String {
        format!("{}-etcd-client", self.0)
    }

    /// The secret of the members' authority.
    pub fn peer_ca(self) -> String {
        format!("{}-etcd-peer-ca", self.0)
    }

    /// The secret of the clients' authority.
    pub fn client_ca(self) -> String {
        format!("{}-etcd-client-ca", self.0)
    }

    /// The secret of the members' certificate among themselves.
    pub fn peer_tls(self) -> String {
        format!("{}-etcd-peer-tls", self.0)
    }

    /// The secret of the members' certificate towards clients.
    pub fn server_tls(self) -> String {
        format!("{}-etcd-server-tls", self.0)
    }

    /// The secret of the operator's certificate.
    pub fn operator_tls(self) -> String {
        format!("{}-etcd-operator-tls", self.0)
    }

    /// The secret of the certificate for the user's clients.
    pub fn client_tls(self) -> String {
        format!("{}-etcd-client-tls", self.0)
    }
}

/// The token that etcd mixes into the identities of an epoch, so that members of two epochs never take each other for
/// their own.
pub fn cluster_token(cluster: &str, lineage: Lineage, epoch: Epoch) -> String {
    format!("{cluster}-{:08x}-{}", lineage.0, epoch.0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_serials_of_a_lineage_ever_share_a_name() {
        let lineage = Lineage(0xdead_beef);
        let names: HashSet<_> = (0..=u16::MAX)
            .map(|serial| member_name("a", lineage, Serial(serial)))
            .collect();
        assert_eq!(names.len(), usize::from(u16::MAX) + 1);
    }

    #[test]
    fn names_and_urls_are_what_they_were_yesterday() {
        // They are on disks and in etcd's member lists: a change here orphans every cluster there is.
        assert_eq!(member_name("orders", Lineage(7), Serial(0)), "orders-kbbbb");
        assert_eq!(member_name("orders", Lineage(7), Serial(1)), "orders-9nvkt");
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
