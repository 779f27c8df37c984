//! Tests of the agent's program on real etcd processes on loopback, with a directory as the store.

mod crc;
mod faults;
mod full;
mod proxy;
mod round_trip;
mod scene;
mod secrets;
