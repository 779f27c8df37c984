//! One client of the workload: an operation, its outcome, the next one. It connects anew after whatever was no answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, Error, GetOptions, GetResponse, KeyValue, KvClient, Txn, TxnOp,
    TxnOpResponse,
};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::connections::{Connection, Connections};
use crate::history::{
    Answer, By, Call, Client, Key, Kind, Lane, Op, Outcome, Snapshot, Value, Versioned,
};
use crate::outcome;
use crate::random::Random;
use crate::target::{For, connect};
use crate::workload::Shared;

/// Works until the workload is stopped.
pub(crate) async fn run(shared: Arc<Shared>, lane: Lane, kind: Kind, nth: usize) {
    let mut random = Random::new(shared.config.seed ^ (u64::from(lane.0) << 32));
    let period = shared.period();
    sleep(period.mul_f64(random.below(100) as f64 / 100.0)).await;
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut id = shared.fresh_client();
    let mut connections = Connections::of(kind, nth);
    while !shared.stopped() {
        ticks.tick().await;
        let Some(Connection {
            endpoint,
            mut client,
        }) = connections.next(&shared).await
        else {
            continue;
        };
        let Some(op) = operate(&shared, &mut random, &mut client, id, lane).await else {
            break;
        };
        if op.answer().is_none() {
            connections.broke(&endpoint);
        }
        if matches!(op.outcome, Outcome::Unknown(_)) {
            id = shared.fresh_client();
        }
        shared.record(op);
    }
}

/// `None` when the recording is full.
async fn operate(
    shared: &Shared,
    random: &mut Random,
    client: &mut KvClient,
    id: Client,
    lane: Lane,
) -> Option<Op> {
    if !shared.reserve() {
        return None;
    }
    let (slot, key) = shared.pick_key(random);
    let call = choose(shared, random, slot, key);
    let name = shared.name(key);
    let invoked = shared.config.clock.now();
    let result = timeout(shared.config.timeout, perform(client, name, call)).await;
    let ended = shared.config.clock.now();
    let outcome = match result {
        Ok(Ok(answer)) => Outcome::Ok(answer),
        Ok(Err(error)) => outcome::of_error(&error),
        Err(_) => Outcome::Unknown("no answer in time".into()),
    };
    let op = Op {
        client: id,
        lane,
        key,
        call,
        invoked,
        ended,
        outcome,
    };
    shared.believe(slot, &op);
    Some(op)
}

fn choose(shared: &Shared, random: &mut Random, slot: usize, key: Key) -> Call {
    let value = Value(shared.next_value.fetch_add(1, Ordering::Relaxed));
    match random.below(100) {
        0..40 => Call::Put(value),
        40..65 => {
            // Mostly what was last seen of the key; now and then "create it", which is refused when it is there.
            let expect = if random.percent(10) {
                None
            } else {
                shared.belief(slot, key)
            };
            let by = if expect.is_some() && random.percent(50) {
                By::Value
            } else {
                By::Revision
            };
            Call::Cas { by, expect, value }
        }
        _ => Call::Read,
    }
}

async fn perform(client: &mut KvClient, name: String, call: Call) -> Result<Answer, Error> {
    match call {
        Call::Put(value) => {
            let response = client.put(name, value.0.to_string(), None).await?;
            Ok(Answer::Written(revision(response.header())?))
        }
        Call::Read => {
            let response = client.get(name, None).await?;
            Ok(Answer::Read(
                revision(response.header())?,
                first(response.kvs()),
            ))
        }
        Call::Cas { by, expect, value } => {
            let compare = match (by, expect) {
                (By::Value, Some((old, _))) => {
                    Compare::value(name.clone(), CompareOp::Equal, old.0.to_string())
                }
                (_, expect) => Compare::mod_revision(
                    name.clone(),
                    CompareOp::Equal,
                    expect.map_or(0, |(_, revision)| revision),
                ),
            };
            let txn = Txn::new()
                .when([compare])
                .and_then([TxnOp::put(name.clone(), value.0.to_string(), None)])
                .or_else([TxnOp::get(name, None)]);
            let response = client.txn(txn).await?;
            let revision = revision(response.header())?;
            if response.succeeded() {
                return Ok(Answer::Written(revision));
            }
            match response.op_responses().first() {
                Some(TxnOpResponse::Get(read)) => Ok(Answer::Refused(revision, first(read.kvs()))),
                _ => Err(Error::Internal(
                    "a refused transaction without its read".into(),
                )),
            }
        }
    }
}

fn revision(header: Option<&etcd_client::ResponseHeader>) -> Result<i64, Error> {
    header
        .map(etcd_client::ResponseHeader::revision)
        .ok_or_else(|| Error::Internal("an answer without header".into()))
}

fn first(kvs: &[KeyValue]) -> Option<Versioned> {
    kvs.first().map(versioned)
}

fn versioned(kv: &KeyValue) -> Versioned {
    Versioned {
        value: Value::parse(kv.value()),
        revision: kv.mod_revision(),
        version: kv.version(),
    }
}

/// Reads all keys of the workload linearizably, from one member after the other until one answers or time is up.
pub(crate) async fn snapshot(shared: &Shared, patience: Duration) -> Result<Snapshot, String> {
    const LARGE: usize = 256 << 20;
    let deadline = tokio::time::Instant::now() + patience;
    let mut last = "there is no endpoint".to_owned();
    for turn in 0.. {
        if let Some(endpoint) = shared.endpoint(Kind::Everywhere, turn) {
            let invoked = shared.config.clock.now();
            let read = async {
                let client =
                    connect(&endpoint, shared.tls(), shared.config.timeout, For::Calls).await?;
                let mut client = client.kv_client().max_decoding_message_size(LARGE);
                let options = GetOptions::new().with_prefix();
                client
                    .get(shared.config.prefix.clone(), Some(options))
                    .await
            };
            match timeout(shared.config.timeout * 5, read).await {
                Ok(Ok(response)) => {
                    return all(shared, invoked, &response).map_err(|error| error.to_string());
                }
                Ok(Err(error)) => last = format!("{endpoint}: {error}"),
                Err(_) => last = format!("{endpoint}: no answer in time"),
            }
        }
        if tokio::time::Instant::now() >= deadline {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err(last)
}

fn all(
    shared: &Shared,
    invoked: crate::history::Time,
    response: &GetResponse,
) -> Result<Snapshot, Error> {
    let ended = shared.config.clock.now();
    let revision = revision(response.header())?;
    let prefix = shared.config.prefix.len();
    let state = response.kvs().iter().map(|kv| {
        let name = kv.key().get(prefix..).unwrap_or_default();
        (Key::parse(name), versioned(kv))
    });
    Ok(Snapshot {
        invoked,
        ended,
        revision,
        state: state.collect(),
    })
}
