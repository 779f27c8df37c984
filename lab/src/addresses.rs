//! The address plan of a lab: everything follows from the lab's number, so that no two labs share an address.
//!
//! Lab `n` owns `10.(200+n).0.0/16`: the fabric that joins its machines in `.0.0/24`, pods in `.64.0/18` (a `/24`
//! per node), services in `.128.0/20`.

use std::fmt;
use std::net::Ipv4Addr;

/// How many labs fit on one machine.
pub const LABS: u8 = 40;
/// How many nodes a lab may ever have had; numbers are not used again.
pub const NODES: u8 = 60;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    first: Ipv4Addr,
    bits: u8,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// All addresses of one lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    number: u8,
}

impl Addresses {
    /// The plan of the lab with this number, which is below [`LABS`].
    pub fn of(number: u8) -> Option<Self> {
        (number < LABS).then_some(Self { number })
    }

    fn ip(self, c: u8, d: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 200 + self.number, c, d)
    }

    /// Everything that belongs to the lab.
    pub fn all(self) -> Range {
        Range {
            first: self.ip(0, 0),
            bits: 16,
        }
    }

    /// The machine's own address on the fabric.
    pub fn host(self) -> Ipv4Addr {
        self.ip(0, 1)
    }

    /// The control plane's address.
    pub fn control(self) -> Ipv4Addr {
        self.ip(0, 2)
    }

    /// A node's address.
    pub fn node(self, node: u8) -> Ipv4Addr {
        self.ip(0, 10 + node)
    }

    /// The range all pods' addresses come from.
    pub fn pods(self) -> Range {
        Range {
            first: self.ip(64, 0),
            bits: 18,
        }
    }

    /// The range a node's pods' addresses come from.
    pub fn node_pods(self, node: u8) -> Range {
        Range {
            first: self.ip(64 + node, 0),
            bits: 24,
        }
    }

    /// The range of the services' cluster addresses.
    pub fn services(self) -> Range {
        Range {
            first: self.ip(128, 0),
            bits: 20,
        }
    }

    /// `kubernetes.default.svc`.
    pub fn kubernetes(self) -> Ipv4Addr {
        self.ip(128, 1)
    }

    /// The cluster's DNS service.
    pub fn dns(self) -> Ipv4Addr {
        self.ip(128, 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_share_no_address() {
        let ranges: Vec<_> = (0..LABS)
            .map(|n| Addresses::of(n).unwrap().all().to_string())
            .collect();
        let mut unique = ranges.clone();
        unique.dedup();
        assert_eq!(ranges, unique);
        assert_eq!(ranges[39], "10.239.0.0/16");
        assert!(Addresses::of(LABS).is_none());
    }

    #[test]
    fn the_last_node_still_fits_its_ranges() {
        let lab = Addresses::of(3).unwrap();
        assert_eq!(lab.node(NODES).to_string(), "10.203.0.70");
        assert_eq!(
            lab.node_pods(NODES).to_string(),
            "10.203.124.0/24",
            "below the services' 10.203.128.0"
        );
    }
}
