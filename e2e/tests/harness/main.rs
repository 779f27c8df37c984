//! Tests of the harness: the proxy, the operator's process and the cluster's client, on the lab with `kubectl` and a script instead
//! of the operator.
#![expect(clippy::unwrap_used, reason = "stories fail by panicking")]

mod etcd;
mod faults;
mod full {
    mod scene;
}
mod operator;
mod proxied_kubectl;
mod proxy;
mod report;
mod s3;
