//! The measurements of `hack/bench-backup`: throughput and memory of the agent, compared with etcd's own programs on the same
//! disk.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "measurements fail by panicking, and use a part of the scene of the tests"
)]

#[path = "../agent/scene.rs"]
mod scene;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use evenkeel_archive::tasks::{FetchTask, InstallTask, Outcome, Request, Task, TaskResult};
use evenkeel_lab::command::Cmd;

use scene::Scene;

const ROUNDS: usize = 3;
const VALUE_BYTES: usize = 256 << 10;
const DEADLINE_SECONDS: u64 = 1_800;

/// The medians of one size.
struct Measured {
    save: Duration,
    snapshot: Duration,
    bare_restore: Duration,
    restore: Duration,
    snapshot_memory_kib: u64,
    restore_memory_kib: u64,
}

#[test]
fn measure() {
    let measured = [100, 1024].map(measure_size);
    println!("| | 100 MiB | 1 GiB | target |\n|---|---|---|---|");
    let row = |what: &str, target: &str, value: &dyn Fn(&Measured) -> String| {
        let [small, large] = measured.each_ref().map(value);
        println!("| {what} | {small} | {large} | {target} |");
    };
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    row("`etcdctl snapshot save`", "–", &|it| seconds(it.save));
    row("backup by the agent", "–", &|it| seconds(it.snapshot));
    row(
        "throughput of the backup ÷ that of `etcdctl`",
        "≥ 0.9",
        &|it| format!("{:.2}", it.save.as_secs_f64() / it.snapshot.as_secs_f64()),
    );
    row("copy, then `etcdutl snapshot restore`", "–", &|it| {
        seconds(it.bare_restore)
    });
    row("restore by the agent and `etcdutl`", "–", &|it| {
        seconds(it.restore)
    });
    row("restore ÷ bare restore", "≤ 1.5", &|it| {
        format!(
            "{:.2}",
            it.restore.as_secs_f64() / it.bare_restore.as_secs_f64()
        )
    });
    let mib = |kib: u64| format!("{} MiB", kib.div_ceil(1024));
    row("peak memory of the agent, backup", "≤ 64 MiB", &|it| {
        mib(it.snapshot_memory_kib)
    });
    row("peak memory of the agent, restore", "≤ 64 MiB", &|it| {
        mib(it.restore_memory_kib)
    });
}

fn measure_size(mib: u32) -> Measured {
    let scene = Scene::start("3.6.16");
    scene.fill(mib * 4, VALUE_BYTES);
    let (mut saves, mut snapshots, mut bare, mut restores) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut snapshot_memory_kib, mut restore_memory_kib) = (0, 0);
    let saved = scene.path("saved.db");
    for round in 0..ROUNDS {
        saves.push(timed(|| save(&scene, &saved)));
        let mut location = String::new();
        snapshots.push(timed(|| {
            let task = scene.snapshot_task(scene.address, &format!("round-{round}"));
            let (result, memory) = run(&scene, Task::SnapshotEtcd(task));
            snapshot_memory_kib = memory.max(snapshot_memory_kib);
            let TaskResult::Backup {
                location: found, ..
            } = result
            else {
                panic!("{result:?}");
            };
            location = found;
        }));
        let (copied, restored) = (scene.path("copied.db"), scene.path("bare"));
        bare.push(timed(|| {
            std::fs::copy(&saved, &copied).unwrap();
            scene.restore(&copied, &restored);
        }));
        std::fs::remove_dir_all(&restored).unwrap();
        restores.push(timed(|| {
            let memory = restore(&scene, &location);
            restore_memory_kib = memory.max(restore_memory_kib);
        }));
        std::fs::remove_dir_all(scene.path("installed")).unwrap();
    }
    Measured {
        save: median(saves),
        snapshot: median(snapshots),
        bare_restore: median(bare),
        restore: median(restores),
        snapshot_memory_kib,
        restore_memory_kib,
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn save(scene: &Scene, file: &Path) {
    let _ = std::fs::remove_file(file);
    let tls = |name: &str| scene.path("tls").join(name);
    Cmd::new(scene.programs.join("etcdctl"))
        .args(["snapshot", "save"])
        .arg(file)
        .args(["--endpoints", &format!("https://{}", scene.address)])
        .arg("--cacert")
        .arg(tls("ca.crt"))
        .arg("--cert")
        .arg(tls("tls.crt"))
        .arg("--key")
        .arg(tls("tls.key"))
        .run()
        .unwrap();
}

/// Downloads, restores and installs a backup. Returns the peak memory of the agent.
fn restore(scene: &Scene, location: &str) -> u64 {
    let (file, restoring) = (scene.path("fetched.db"), scene.path("restoring"));
    let fetch = FetchTask {
        location: location.to_owned(),
        file: file.clone(),
        engine: "etcd".to_owned(),
        version: scene.version.clone(),
        space_percent: 220,
        certificates: None,
    };
    let (_, fetched) = run(scene, Task::Fetch(fetch));
    scene.restore(&file, &restoring);
    let install = InstallTask {
        from: restoring,
        to: scene.path("installed"),
        remove: vec![file],
    };
    let (_, installed) = run(scene, Task::Install(install));
    fetched.max(installed)
}

/// Runs a task, which must succeed. Returns its result and the peak memory of the agent in KiB.
fn run(scene: &Scene, task: Task) -> (TaskResult, u64) {
    let request = Request {
        deadline_seconds: DEADLINE_SECONDS,
        ..scene.request(task)
    };
    let mut child = scene
        .agent_with_log(&request, "info")
        .spawn(|command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
        })
        .unwrap();
    let memory = peak_memory_kib(&mut child);
    match scene.outcome() {
        Outcome::Succeeded(result) => (result, memory),
        Outcome::Failed(failure) => panic!("{failure:?}"),
    }
}

/// Waits for a process. Returns the largest memory that it has had, which the kernel counts.
fn peak_memory_kib(child: &mut Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmHWM:"));
        let found = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = found.unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(10));
    }
    peak
}
