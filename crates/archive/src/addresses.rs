//! The addresses that a store may have. A user who may create a BackupStore must not reach the node, a metadata service of a
//! cloud, or other services of the cluster by an endpoint of their choice.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::StoreError;
use crate::tasks::FailureReason;

/// Metadata services of clouds that are not on link-local addresses.
const METADATA_V4: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The addresses that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressPolicy {
    /// Whether private addresses are allowed.
    pub(crate) allow_private: bool,
    /// Whether loopback addresses are allowed: in tests only.
    pub(crate) allow_loopback: bool,
}

/// The kind of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressKind {
    Public,
    Private,
    Loopback,
    /// Unspecified, link-local, multicast, reserved, or of a metadata service.
    Never,
}

impl AddressPolicy {
    pub(crate) fn allows(self, address: IpAddr) -> bool {
        match kind(address) {
            AddressKind::Public => true,
            AddressKind::Private => self.allow_private,
            AddressKind::Loopback => self.allow_loopback,
            AddressKind::Never => false,
        }
    }

    /// Returns the allowed ones of the addresses of a host.
    pub(crate) fn filter(
        self,
        host: &str,
        addresses: Vec<IpAddr>,
    ) -> Result<Vec<IpAddr>, StoreError> {
        let rejected = addresses
            .iter()
            .copied()
            .find(|address| !self.allows(*address));
        let allowed: Vec<IpAddr> = addresses
            .into_iter()
            .filter(|address| self.allows(*address))
            .collect();
        match rejected {
            Some(rejected) if allowed.is_empty() => Err(not_allowed(host, rejected)),
            Some(_) | None => Ok(allowed),
        }
    }

    /// Verifies a host that is an address itself and is not resolved.
    pub(crate) fn require_literal(self, host: &str, address: IpAddr) -> Result<(), StoreError> {
        if self.allows(address) {
            return Ok(());
        }
        Err(not_allowed(host, address))
    }
}

fn not_allowed(host: &str, address: IpAddr) -> StoreError {
    let (what, remedy) = match kind(address) {
        AddressKind::Public | AddressKind::Private => (
            "a private address",
            "If the server is in the private network, set spec.s3.allowPrivateAddresses: true.",
        ),
        AddressKind::Loopback => (
            "a loopback address",
            "Such addresses are never allowed: use an address of the server.",
        ),
        AddressKind::Never => (
            "a link-local or reserved address",
            "Such addresses are never allowed: use an address of the server.",
        ),
    };
    StoreError::new(
        FailureReason::AddressNotAllowed,
        format!("the host {host} has the address {address}, which is {what}. {remedy}"),
    )
}

pub(crate) fn kind(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> AddressKind {
    let [a, b, c, _] = address.octets();
    if address == METADATA_V4 {
        return AddressKind::Never;
    }
    match (a, b, c) {
        (127, ..) => AddressKind::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) | (198, 18..=19, _) => {
            AddressKind::Private
        }
        (0 | 224.., ..) | (169, 254, _) | (192, 0, 0) => AddressKind::Never,
        _ => AddressKind::Public,
    }
}

fn kind_v6(address: Ipv6Addr) -> AddressKind {
    if let Some(inner) = embedded_v4(address) {
        return kind_v4(inner);
    }
    let segments = address.segments();
    let is_link_local = segments[0] & 0xffc0 == 0xfe80;
    let is_never = address.is_unspecified()
        || address.is_multicast()
        || address == METADATA_V6
        || is_link_local;
    if address.is_loopback() {
        AddressKind::Loopback
    } else if is_never {
        AddressKind::Never
    } else if segments[0] & 0xfe00 == 0xfc00 || segments[0] & 0xffc0 == 0xfec0 {
        AddressKind::Private
    } else {
        AddressKind::Public
    }
}

/// Returns the IPv4 address that packets to an IPv6 address reach: IPv4-mapped, IPv4-compatible, NAT64 and 6to4 addresses.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "addresses_tests.rs"]
mod tests;
