//! Conversions from the kit's types to the equal types in [`crate::facts`].

use evenkeel_kit::tls_secrets;

use crate::facts::{Drift, OwnedBy, VolumeTopology};

impl From<evenkeel_kit::OwnedBy> for OwnedBy {
    fn from(owner: evenkeel_kit::OwnedBy) -> Self {
        match owner {
            evenkeel_kit::OwnedBy::Resource => Self::Resource,
            evenkeel_kit::OwnedBy::PreviousResource => Self::PreviousResource,
            evenkeel_kit::OwnedBy::Unowned => Self::Nobody,
        }
    }
}

impl From<evenkeel_kit::volumes::VolumeTopology> for VolumeTopology {
    fn from(topology: evenkeel_kit::volumes::VolumeTopology) -> Self {
        match topology {
            evenkeel_kit::volumes::VolumeTopology::Node(node) => Self::Node(node),
            evenkeel_kit::volumes::VolumeTopology::Anywhere => Self::Anywhere,
            evenkeel_kit::volumes::VolumeTopology::Unknown => Self::Unknown,
        }
    }
}

impl From<tls_secrets::Drift> for Drift {
    fn from(drift: tls_secrets::Drift) -> Self {
        match drift {
            tls_secrets::Drift::Missing => Self::Missing,
            tls_secrets::Drift::Differs => Self::Differs,
            tls_secrets::Drift::NotOwned => Self::NotOwned,
        }
    }
}
