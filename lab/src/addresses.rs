//! The address plan of a lab. The number of the lab determines all addresses, so no two labs share an address.
//!
//! Lab `n` owns `10.(200+n).0.0/16`: machines are in `.0.0/24`, pods in `.64.0/18` (a `/24` per node), and services in
//! `.128.0/20`.

use std::fmt;
use std::net::Ipv4Addr;

/// The maximum number of labs on one host.
pub const MAX_LABS: u8 = 40;
/// The highest node number; numbers are not reused.
pub const MAX_NODES: u8 = 60;

/// A range of IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: Ipv4Addr,
    bits: u8,
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// The addresses of one lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    number: u8,
}

impl Addresses {
    /// Returns the addresses of the lab with this number, or `None` when it is not below [`MAX_LABS`].
    pub fn of(number: u8) -> Option<Self> {
        (number < MAX_LABS).then_some(Self { number })
    }

    fn ip(self, c: u8, d: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 200 + self.number, c, d)
    }

    /// Returns the range of all addresses of the lab.
    pub fn all(self) -> AddressRange {
        AddressRange {
            first: self.ip(0, 0),
            bits: 16,
        }
    }

    /// Returns the address of the host in the lab.
    pub fn host(self) -> Ipv4Addr {
        self.ip(0, 1)
    }

    /// Returns the address of the control plane.
    pub fn control(self) -> Ipv4Addr {
        self.ip(0, 2)
    }

    /// Returns the address of a node.
    pub fn node(self, node: u8) -> Ipv4Addr {
        self.ip(0, 10 + node)
    }

    /// Returns the range of all pod addresses.
    pub fn pods(self) -> AddressRange {
        AddressRange {
            first: self.ip(64, 0),
            bits: 18,
        }
    }

    /// Returns the range of the pod addresses of a node.
    pub fn node_pods(self, node: u8) -> AddressRange {
        AddressRange {
            first: self.ip(64 + node, 0),
            bits: 24,
        }
    }

    /// Returns the range of the service addresses.
    pub fn services(self) -> AddressRange {
        AddressRange {
            first: self.ip(128, 0),
            bits: 20,
        }
    }

    /// Returns the address of the service `kubernetes.default.svc`.
    pub fn kubernetes(self) -> Ipv4Addr {
        self.ip(128, 1)
    }

    /// Returns the address of the DNS service.
    pub fn dns(self) -> Ipv4Addr {
        self.ip(128, 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_share_no_address() {
        let ranges: Vec<_> = (0..MAX_LABS)
            .map(|n| Addresses::of(n).unwrap().all().to_string())
            .collect();
        let mut unique = ranges.clone();
        unique.dedup();
        assert_eq!(ranges, unique);
        assert_eq!(ranges[39], "10.239.0.0/16");
        assert!(Addresses::of(MAX_LABS).is_none());
    }

    #[test]
    fn the_last_node_is_inside_its_ranges() {
        let lab = Addresses::of(3).unwrap();
        assert_eq!(lab.node(MAX_NODES).to_string(), "10.203.0.70");
        assert_eq!(
            lab.node_pods(MAX_NODES).to_string(),
            "10.203.124.0/24",
            "must be below the service range 10.203.128.0/20"
        );
    }
}
