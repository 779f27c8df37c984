//! Members that freeze or die, deadlines and signals in the middle of a snapshot.

use std::process::Stdio;
use std::time::{Duration, Instant};

use evenkeel_agent::StopSignal;
use evenkeel_agent::etcd::snapshot::{SnapshotLimits, snapshot};
use evenkeel_archive::ArchiveStore;
use evenkeel_archive::tasks::{FailureReason, Outcome, Task};

use crate::proxy::Proxy;
use crate::round_trip::is_empty;
use crate::scene::{Process, Scene, wait};

/// The rate of the proxy: the snapshot takes about ten seconds.
const RATE: u64 = 3 << 20;
/// The bytes after which a test acts: the snapshot has begun, and most of it is not sent.
const BEGUN: u64 = 3 << 20;

/// Returns a scene with 30 MB of data, a proxy, and a running agent in the middle of a snapshot.
pub(crate) fn in_mid_stream(deadline_seconds: u64) -> (Scene, Process) {
    let (scene, proxy) = slow_scene();
    let task = scene.snapshot_task(scene.proxy, "first");
    let mut request = scene.request(Task::SnapshotEtcd(task));
    request.deadline_seconds = deadline_seconds;
    let agent = scene.agent(&request).spawn(|command| {
        command.stdin(Stdio::null()).stderr(Stdio::null());
    });
    let agent = Process(agent.unwrap());
    proxy.wait_for(BEGUN);
    (scene, agent)
}

fn slow_scene() -> (Scene, Proxy) {
    let scene = Scene::start("3.6.16");
    scene.fill(300, 100_000);
    let proxy = Proxy::start(scene.proxy, scene.address, RATE);
    (scene, proxy)
}

/// Fails unless the agent has failed for this reason and left nothing in the store.
pub(crate) fn assert_failed(scene: &Scene, agent: &mut Process, expected: FailureReason) -> String {
    assert!(!wait(agent));
    let Outcome::Failed(failure) = scene.outcome() else {
        panic!("the snapshot succeeded");
    };
    assert_eq!(failure.reason, expected, "{}", failure.message);
    assert_eq!(scene.stored_files(), Vec::<std::path::PathBuf>::new());
    assert!(is_empty(&scene.path("work")));
    failure.message
}

#[test]
fn a_stopped_agent_leaves_no_backup() {
    let (scene, mut agent) = in_mid_stream(60);
    let begin = Instant::now();
    agent.signal("-TERM");
    assert_failed(&scene, &mut agent, FailureReason::Other);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_deadline_ends_a_snapshot() {
    let (scene, mut agent) = in_mid_stream(3);
    assert_failed(&scene, &mut agent, FailureReason::DeadlineExceeded);
}

#[test]
fn a_killed_member_ends_a_snapshot() {
    let (scene, mut agent) = in_mid_stream(60);
    let begin = Instant::now();
    scene.etcd.signal("-KILL");
    assert_failed(&scene, &mut agent, FailureReason::SourceFailed);
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_frozen_member_is_noticed_by_the_lack_of_progress() {
    let (scene, proxy) = slow_scene();
    let limits = SnapshotLimits {
        stall: Duration::from_secs(2),
        ..SnapshotLimits::default()
    };
    let task = scene.snapshot_task(scene.proxy, "first");
    let config = scene.request(Task::List).store;
    let store = ArchiveStore::open(&config, Duration::from_secs(60)).unwrap();
    let work = scene.path("work");
    let (_sender, stop) = StopSignal::new();
    let running = scene
        .runtime
        .spawn(async move { snapshot(&store, &task, &work, &limits, &stop).await });
    proxy.wait_for(BEGUN);
    scene.etcd.signal("-STOP");
    let begin = Instant::now();
    let failure = scene.runtime.block_on(running).unwrap().unwrap_err();
    scene.etcd.signal("-CONT");
    assert_eq!(failure.reason, FailureReason::NoProgress, "{failure}");
    // Some data is still in the buffers of the sockets.
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    assert!(scene.stored_files().is_empty());
}

#[test]
fn a_member_of_another_cluster_is_not_backed_up() {
    let scene = Scene::start("3.6.16");
    let mut task = scene.snapshot_task(scene.address, "first");
    task.cluster.cluster_id = "1".to_owned();
    let (reason, message) = scene.fail(Task::SnapshotEtcd(task));
    assert_eq!(reason, FailureReason::SourceFailed);
    assert!(message.contains("not to 1"), "{message}");
    assert!(scene.stored_files().is_empty());
}

#[test]
fn an_unreachable_member_is_reported() {
    let mut scene = Scene::start("3.6.16");
    scene.etcd.signal("-KILL");
    wait(&mut scene.etcd);
    let task = scene.snapshot_task(scene.address, "first");
    let (reason, message) = scene.fail(Task::SnapshotEtcd(task));
    assert_eq!(reason, FailureReason::SourceFailed);
    assert!(message.contains("refused"), "{message}");
    let mut task = scene.snapshot_task(scene.address, "first");
    task.endpoint = task.endpoint.replace("https", "http");
    let (reason, _) = scene.fail(Task::SnapshotEtcd(task));
    assert_eq!(reason, FailureReason::InvalidRequest);
}
