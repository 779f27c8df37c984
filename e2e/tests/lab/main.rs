//! The lab itself: that it is a real Kubernetes, and that each of its faults is real. Observers never use the code
//! that injects.
#![expect(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "stories fail by panicking")]

mod stateless;
