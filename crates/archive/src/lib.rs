//! Backups at rest: the stores that they are written to, the layout of objects, manifests and checksums, and retention.
//! The crate knows neither Kubernetes nor any engine: the position of a backup is an opaque text.

pub mod manifest;
pub mod retention;
pub mod tasks;
