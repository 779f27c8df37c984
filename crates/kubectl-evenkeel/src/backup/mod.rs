//! `kubectl evenkeel backup` and `backups`, `restore` and `restores`, and the backups on the status screen.

pub(crate) mod create;
#[cfg(test)]
mod fake;
pub(crate) mod from_store;
pub(crate) mod list;
mod list_text;
pub(crate) mod objects;
mod progress;
pub(crate) mod report;
pub(crate) mod restore;
pub(crate) mod state;
mod store_choice;
mod stored;
mod stored_text;
