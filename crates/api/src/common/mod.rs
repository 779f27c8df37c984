//! What the resources of all engines share: parts of the spec, quantities and durations, conditions, label keys, and
//! helpers for schemas and CEL rules.

pub(crate) mod cel;
pub mod conditions;
pub mod duration;
pub mod labels;
pub(crate) mod lenient;
pub mod maintenance;
pub(crate) mod names;
pub mod quantity;
pub mod rejection;
pub mod resources;
pub mod scheduling;
pub(crate) mod schema;
pub mod storage;
pub mod windows;

/// Returns whether a value is the default, so that serialization can skip it.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
