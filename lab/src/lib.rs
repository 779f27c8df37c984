//! A real Kubernetes cluster on one machine, for tests and for interactive use: control plane, kubelets, containerd,
//! volumes with an enforced size, and fault injection. It needs no container registry, Docker engine or virtual machine.
//!
//! A [`Lab`] is identified by its name. The program `lab` brings it [up](up::up) and takes it [down](down::down).
//! Faults are methods of [`Lab`] (see [`faults`]).
//!
//! The directories `kube`, `etcd`, `helm` and `versitygw` hold the Go modules from which Kubernetes, etcd, Helm and an S3
//! server are built.

pub mod addresses;
pub mod cache;
pub mod cgroup;
pub mod command;
pub mod control;
pub mod down;
pub mod faults;
pub mod files;
mod inotify;
pub mod machine;
pub mod net;
pub mod node;
pub mod parts;
pub mod patience;
pub mod pki;
pub mod preflight;
pub mod progress;
pub mod s3;
pub mod state;
pub mod status;
pub mod up;

pub use state::{Lab, LabName};
