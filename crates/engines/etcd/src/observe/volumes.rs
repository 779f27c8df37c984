//! Volume locations: re-exported from the kit.

pub use evenkeel_kit::volumes::VolumeLocation;
