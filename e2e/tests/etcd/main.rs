//! Stories of etcd clusters: a real operator, real Kubernetes, real etcd, and clients whose history is checked throughout.

mod begin;
mod bootstrap;
mod killed;
mod missing;
mod truth;
