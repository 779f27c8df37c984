//! `kubectl evenkeel restore` and `restores`, and the restore on the status screen.

pub(crate) mod create;
pub(crate) mod list;
mod plan;
pub(crate) mod report;
pub(crate) mod state;
pub(crate) mod undo;
mod wait;
