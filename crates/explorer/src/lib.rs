//! A bounded model checker: runs the real `decide` against an abstract model of Kubernetes, kubelets, disks and etcd,
//! and applies every fault in every order within a fault budget. For tests only.

pub mod action_kinds;
pub mod apply;
pub mod canonical;
pub mod compress;
pub mod effect;
pub mod etcd_start;
pub mod event;
pub mod fault_budget;
mod invariants;
pub mod layer;
pub mod model;
pub mod mutants;
pub mod observe;
pub mod prune;
pub mod quiescence;
mod restore_model;
pub mod search;
pub mod tampered_facts;
mod trace_fmt;
pub mod visited;

use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::EtcdFacts;
use evenkeel_runtime::{Engine, Plan};

/// The decision function under test: the real one, or a deliberately broken one.
pub trait Decider: Sync {
    /// Returns the plan for these facts.
    fn decide(&self, facts: &EtcdFacts) -> Plan<Etcd>;

    /// Returns true if membership changes are still sent after the lease has expired. The real operator never sends
    /// them.
    fn sends_after_lease(&self) -> bool {
        false
    }
}

/// The decision function of the etcd engine.
#[derive(Clone, Copy, Debug)]
pub struct RealDecider;

impl Decider for RealDecider {
    fn decide(&self, facts: &EtcdFacts) -> Plan<Etcd> {
        Etcd::decide(facts)
    }
}
