//! A real Kubernetes on one machine, for tests and for people: genuine control plane, kubelets, containerd, volumes
//! of true size, and every fault on demand. No container registry, no Docker engine, no virtual machine.
//!
//! A [`Lab`] is found by its name; the program `lab` brings it [up](up::up) and takes it [down](down::down). The
//! faults are methods of [`Lab`] (see [`faults`]).
//!
//! Sub-directories `kube` and `etcd` hold the Go modules that Kubernetes and etcd are built from.

pub mod addresses;
pub mod cache;
pub mod cgroup;
pub mod command;
pub mod control;
pub mod down;
pub mod faults;
pub mod files;
pub mod machine;
pub mod net;
pub mod node;
pub mod parts;
pub mod patience;
pub mod pki;
pub mod preflight;
pub mod progress;
pub mod state;
pub mod status;
pub mod up;
mod watches;

pub use state::{Lab, LabName};
