//! The explorer: the real `decide` in an abstract world where everything that can go wrong does, in every order, within
//! bounds. For tests only.

pub mod budgets;
pub mod bugs;
pub mod canonical;
pub mod collapse;
pub mod doomed;
pub mod effect;
pub mod event;
pub mod explore;
mod invariants;
pub mod kinds;
pub mod layer;
pub mod meddled;
pub mod observe;
pub mod rest;
pub mod starting;
pub mod visited;
mod words;
pub mod world;

use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::EtcdFacts;
use evenkeel_runtime::{Engine, Plan};

/// Who decides: the real thing, or the real thing tampered with.
pub trait Decider: Sync {
    /// What is to be done.
    fn decide(&self, facts: &EtcdFacts) -> Plan<Etcd>;

    /// Whether calls to etcd still go out when the lease has run out. They must not.
    fn sends_late(&self) -> bool {
        false
    }
}

/// The real thing.
#[derive(Clone, Copy, Debug)]
pub struct Real;

impl Decider for Real {
    fn decide(&self, facts: &EtcdFacts) -> Plan<Etcd> {
        Etcd::decide(facts)
    }
}
