//! Engine-neutral controllers for backup stores, backups and backup schedules.

pub mod schedule;
