//! What the other stories stand on: the proxy, the operator's process and the cluster's clients, tried on the lab with
//! `kubectl` and a script in the operator's place.
#![expect(clippy::unwrap_used, reason = "stories fail by panicking")]

mod etcd;
mod faults;
mod full {
    mod scene;
}
mod operator;
mod proxy;
mod report;
mod through;
