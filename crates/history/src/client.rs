//! One client of the workload: runs operations one after another and reconnects after every error.

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
    ClientId, ClientKind, CompareBy, Key, KeyState, Lane, Operation, OperationOutcome, Request,
    Response, Snapshot, Value,
};
use crate::outcome;
use crate::random::Random;
use crate::target::{ConnectionPurpose, connect};
use crate::workload::WorkloadState;

/// Runs until the workload is stopped.
pub(crate) async fn run(shared: Arc<WorkloadState>, lane: Lane, kind: ClientKind, nth: usize) {
    let mut random = Random::new(shared.config.seed ^ (u64::from(lane.0) << 32));
    let period = shared.period();
    sleep(period.mul_f64(random.below(100) as f64 / 100.0)).await;
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut id = shared.fresh_client();
    let mut connections = Connections::of(kind, nth);
    while !shared.is_stopped() {
        ticks.tick().await;
        let Some(Connection {
            endpoint,
            mut client,
        }) = connections.next(&shared).await
        else {
            continue;
        };
        let Some(op) = run_operation(&shared, &mut random, &mut client, id, lane).await else {
            break;
        };
        if op.response().is_none() {
            connections.close(&endpoint);
        }
        if matches!(op.outcome, OperationOutcome::Unknown(_)) {
            id = shared.fresh_client();
        }
        shared.record(op);
    }
}

/// Runs one operation; `None` if the recording is full.
async fn run_operation(
    shared: &WorkloadState,
    random: &mut Random,
    client: &mut KvClient,
    id: ClientId,
    lane: Lane,
) -> Option<Operation> {
    if !shared.reserve() {
        return None;
    }
    let (slot, key) = shared.pick_key(random);
    let request = choose_request(shared, random, slot, key);
    let name = shared.name(key);
    let invoked = shared.config.clock.now();
    let result = timeout(shared.config.timeout, send(client, name, request)).await;
    let ended = shared.config.clock.now();
    let outcome = match result {
        Ok(Ok(response)) => OperationOutcome::Ok(response),
        Ok(Err(error)) => outcome::of_error(&error),
        Err(_) => OperationOutcome::Unknown("no response within the timeout".into()),
    };
    let op = Operation {
        client: id,
        lane,
        key,
        request,
        invoked,
        ended,
        outcome,
    };
    shared.remember(slot, &op);
    Some(op)
}

fn choose_request(shared: &WorkloadState, random: &mut Random, slot: usize, key: Key) -> Request {
    let value = Value(shared.next_value.fetch_add(1, Ordering::Relaxed));
    match random.below(100) {
        0..40 => Request::Put(value),
        40..65 => {
            // Mostly expects the last known state; sometimes a missing key, which fails if the key exists.
            let expect = if random.percent(10) {
                None
            } else {
                shared.last_known_state(slot, key)
            };
            let by = if expect.is_some() && random.percent(50) {
                CompareBy::Value
            } else {
                CompareBy::Revision
            };
            Request::CompareAndSwap { by, expect, value }
        }
        _ => Request::Read,
    }
}

async fn send(client: &mut KvClient, name: String, request: Request) -> Result<Response, Error> {
    match request {
        Request::Put(value) => {
            let response = client.put(name, value.0.to_string(), None).await?;
            Ok(Response::Written(revision(response.header())?))
        }
        Request::Read => {
            let response = client.get(name, None).await?;
            Ok(Response::Read(
                revision(response.header())?,
                first_state(response.kvs()),
            ))
        }
        Request::CompareAndSwap { by, expect, value } => {
            let compare = match (by, expect) {
                (CompareBy::Value, Some((old, _))) => {
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
                return Ok(Response::Written(revision));
            }
            match response.op_responses().first() {
                Some(TxnOpResponse::Get(read)) => {
                    Ok(Response::Mismatch(revision, first_state(read.kvs())))
                }
                _ => Err(Error::Internal(
                    "a failed transaction without its read".into(),
                )),
            }
        }
    }
}

fn revision(header: Option<&etcd_client::ResponseHeader>) -> Result<i64, Error> {
    header
        .map(etcd_client::ResponseHeader::revision)
        .ok_or_else(|| Error::Internal("a response without a header".into()))
}

fn first_state(kvs: &[KeyValue]) -> Option<KeyState> {
    kvs.first().map(key_state)
}

fn key_state(kv: &KeyValue) -> KeyState {
    KeyState {
        value: Value::parse(kv.value()),
        revision: kv.mod_revision(),
        version: kv.version(),
    }
}

/// Reads all keys of the workload linearizably, from one member after another until one responds or the timeout
/// expires.
pub(crate) async fn snapshot(
    shared: &WorkloadState,
    time_limit: Duration,
) -> Result<Snapshot, String> {
    const LARGE: usize = 256 << 20;
    let deadline = tokio::time::Instant::now() + time_limit;
    let mut last = "no endpoint is configured".to_owned();
    for turn in 0.. {
        if let Some(endpoint) = shared.endpoint(ClientKind::AllMembers, turn) {
            let invoked = shared.config.clock.now();
            let read = async {
                let client = connect(
                    &endpoint,
                    shared.tls(),
                    shared.config.timeout,
                    ConnectionPurpose::Calls,
                )
                .await?;
                let mut client = client.kv_client().max_decoding_message_size(LARGE);
                let options = GetOptions::new().with_prefix();
                client
                    .get(shared.config.prefix.clone(), Some(options))
                    .await
            };
            match timeout(shared.config.timeout * 5, read).await {
                Ok(Ok(response)) => {
                    return to_snapshot(shared, invoked, &response)
                        .map_err(|error| error.to_string());
                }
                Ok(Err(error)) => last = format!("{endpoint}: {error}"),
                Err(_) => last = format!("{endpoint}: no response within the timeout"),
            }
        }
        if tokio::time::Instant::now() >= deadline {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err(last)
}

fn to_snapshot(
    shared: &WorkloadState,
    invoked: crate::history::RunTime,
    response: &GetResponse,
) -> Result<Snapshot, Error> {
    let ended = shared.config.clock.now();
    let revision = revision(response.header())?;
    let prefix = shared.config.prefix.len();
    let state = response.kvs().iter().map(|kv| {
        let name = kv.key().get(prefix..).unwrap_or_default();
        (Key::parse(name), key_state(kv))
    });
    Ok(Snapshot {
        invoked,
        ended,
        revision,
        state: state.collect(),
    })
}
