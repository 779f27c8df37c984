//! Three real etcd processes on loopback under the workload while members are killed, restarted and frozen.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use evenkeel_history::check::AnomalyKind;
use evenkeel_history::{
    ClientKind, ClientTls, History, RunTime, Workload, WorkloadConfig, WorkloadTarget, check,
};
use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::etcd::{EtcdVersion, get};
use evenkeel_lab::pki::{Holder, Pki};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A member of a cluster on loopback. Its process ends with the test.
struct Member {
    name: String,
    programs: PathBuf,
    dir: PathBuf,
    client: String,
    peer: String,
    all: String,
    tls: Vec<String>,
    process: Option<Child>,
}

impl Member {
    fn start(&mut self) -> Result<()> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join(format!("{}.log", self.name)))?;
        let command = Cmd::new(self.programs.join("etcd"))
            .args(["--name", &self.name, "--data-dir"])
            .arg(self.dir.join(&self.name))
            .args([
                "--listen-client-urls",
                &self.client,
                "--advertise-client-urls",
                &self.client,
            ])
            .args([
                "--listen-peer-urls",
                &self.peer,
                "--initial-advertise-peer-urls",
                &self.peer,
            ])
            .args([
                "--initial-cluster",
                &self.all,
                "--initial-cluster-token",
                "history",
                "--log-level",
                "warn",
            ])
            .args(&self.tls);
        let child = command.spawn(|command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
        })?;
        self.process = Some(child);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.process.as_ref().context("the member does not run")?;
        Ok(kill(Pid::from_raw(i32::try_from(process.id())?), signal)?)
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Returns true if this member reports itself as the leader.
    fn leads(&self) -> Result<bool> {
        let (_, said) = Cmd::new(self.programs.join("etcdctl"))
            .args([
                "--endpoints",
                &self.client,
                "--command-timeout",
                "2s",
                "endpoint",
                "status",
                "-w",
                "json",
            ])
            .attempt()?;
        let number = |name: &str| {
            let (_, rest) = said.split_once(&format!("\"{name}\":"))?;
            Some(
                rest.chars()
                    .take_while(char::is_ascii_digit)
                    .collect::<String>(),
            )
        };
        let (id, leader) = (number("member_id"), number("leader"));
        Ok(id.is_some() && id == leader)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Errors cannot be reported here. SIGKILL also ends a frozen process.
        let _ = self.kill();
    }
}

struct Cluster {
    members: Vec<Member>,
    dir: tempfile::TempDir,
    tls: Option<ClientTls>,
}

impl Cluster {
    fn start(size: usize, with_tls: bool) -> Result<Self> {
        let programs = get(EtcdVersion::DEFAULT)?;
        let dir = tempfile::tempdir()?;
        let (tls, flags) = if with_tls {
            certificates(dir.path())?
        } else {
            (None, Vec::new())
        };
        let scheme = if with_tls { "https" } else { "http" };
        // All sockets stay open until all ports are known, so that the ports differ.
        let sockets = (0..2 * size)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<Result<Vec<_>, _>>()?;
        let addresses = sockets
            .iter()
            .map(TcpListener::local_addr)
            .collect::<Result<Vec<_>, _>>()?;
        drop(sockets);
        let (clients, peers) = addresses.split_at(size);
        let all: Vec<String> = (0..)
            .zip(peers)
            .map(|(n, peer)| format!("m{n}=http://{peer}"))
            .collect();
        let mut cluster = Self {
            members: Vec::new(),
            dir,
            tls,
        };
        for (n, (client, peer)) in (0..).zip(clients.iter().zip(peers)) {
            let mut member = Member {
                name: format!("m{n}"),
                programs: programs.clone(),
                dir: cluster.dir.path().to_owned(),
                client: format!("{scheme}://{client}"),
                peer: format!("http://{peer}"),
                all: all.join(","),
                tls: flags.clone(),
                process: None,
            };
            member.start()?;
            cluster.members.push(member);
        }
        Ok(cluster)
    }

    fn target(&self) -> WorkloadTarget {
        let members: Vec<String> = self
            .members
            .iter()
            .map(|member| member.client.clone())
            .collect();
        WorkloadTarget {
            service: members.iter().rev().cloned().collect(),
            members,
            tls: self.tls.clone(),
        }
    }

    /// Returns the members, the leader first.
    fn leader_first(&mut self) -> Result<&mut [Member]> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            for at in 0..self.members.len() {
                if self.members.get(at).map(Member::leads).transpose()? == Some(true) {
                    self.members.rotate_left(at);
                    return Ok(&mut self.members);
                }
            }
            sleep(Duration::from_millis(200));
        }
        bail!("no leader after 20 s")
    }
}

/// Returns the TLS configuration of a client, and the flags of a server whose certificate has a name but no address.
fn certificates(dir: &Path) -> Result<(Option<ClientTls>, Vec<String>)> {
    let pki = Pki::at(&dir.join("pki"));
    let ca = pki.ca("ca")?;
    let names = vec!["orders-client".to_owned()];
    let server = pki.issue(
        "ca",
        "server",
        &Holder {
            name: "server",
            group: None,
            names,
            addresses: Vec::new(),
        },
    )?;
    let client = pki.issue("ca", "client", &Holder::client("client", None))?;
    let tls = ClientTls {
        ca: std::fs::read(&ca.cert)?,
        cert: std::fs::read(&client.cert)?,
        key: std::fs::read(&client.key)?,
        server_name: Some("orders-client".into()),
    };
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let flags = vec![
        flag("cert-file", &server.cert),
        flag("key-file", &server.key),
        flag("trusted-ca-file", &ca.cert),
        "--client-cert-auth".to_owned(),
    ];
    Ok((Some(tls), flags))
}

fn run(workload: &Workload, cluster: &mut Cluster) -> Result<()> {
    let second = |n: u64| sleep(Duration::from_millis(n * 1_000));
    second(1);
    let [leader, ..] = cluster.leader_first()? else {
        bail!("no members")
    };
    println!("{:?} {}: killing the leader", workload.now(), leader.name);
    leader.kill()?;
    second(3);
    leader.start()?;
    second(2);
    let [leader, follower, ..] = cluster.leader_first()? else {
        bail!("too few members")
    };
    println!("{:?} {}: freezing the leader", workload.now(), leader.name);
    leader.signal(Signal::SIGSTOP)?;
    second(3);
    leader.signal(Signal::SIGCONT)?;
    second(2);
    println!("{:?} {}: killing a follower", workload.now(), follower.name);
    follower.kill()?;
    second(1);
    follower.start()?;
    second(1);
    Ok(())
}

fn save_beside(history: &History) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("history.jsonl");
    if let Err(error) = history.save(&path) {
        println!("{error}");
    }
    path
}

#[test]
fn the_history_is_correct_while_members_are_killed_and_frozen() -> Result<()> {
    let mut cluster = Cluster::start(3, false)?;
    let config = WorkloadConfig {
        operations_per_second: 400.0,
        ..WorkloadConfig::default()
    };
    let workload = Workload::start(config, cluster.target(), Duration::from_secs(30))?;
    run(&workload, &mut cluster)?;
    println!("while it runs: {}", workload.stats(RunTime(0)));
    let history = workload.finish(Duration::from_secs(30))?;
    let stats = history.stats(..);
    println!("{stats}");
    let began = Instant::now();
    let proof = check::check_and_prove(&history);
    let path = save_beside(&history);
    println!(
        "checked in {:?}; the history is in {}",
        began.elapsed(),
        path.display()
    );
    println!("{}", proof?);
    ensure!(stats.operations_per_second() >= 100.0, "too slow: {stats}");
    ensure!(
        stats.failed > 0 && stats.unknown > 0,
        "the faults had no effect: {stats}"
    );
    ensure!(
        stats.longest_write_gap < Duration::from_secs(8),
        "too long without a write: {stats}"
    );
    ensure!(
        History::load(&path)? == history,
        "the file does not contain the recorded history"
    );
    Ok(())
}

#[test]
fn a_member_rolled_back_to_older_data_is_detected_by_both_checkers() -> Result<()> {
    let mut cluster = Cluster::start(1, false)?;
    let workload = Workload::start(
        WorkloadConfig::default(),
        cluster.target(),
        Duration::from_secs(30),
    )?;
    let [member] = cluster.members.as_mut_slice() else {
        bail!("one member")
    };
    let (data, older) = (member.dir.join(&member.name), member.dir.join("older"));
    sleep(Duration::from_secs(1));
    member.kill()?;
    Cmd::new("cp").arg("-a").args([&data, &older]).run()?;
    member.start()?;
    sleep(Duration::from_secs(2));
    member.kill()?;
    std::fs::remove_dir_all(&data)?;
    std::fs::rename(&older, &data)?;
    member.start()?;
    sleep(Duration::from_secs(2));
    // The watch waits for a revision that this etcd may never reach; the recording is checked all the same.
    let history = workload
        .finish(Duration::from_secs(5))
        .unwrap_or_else(|unfinished| *unfinished.history);
    let result = check(&history);
    println!(
        "{}",
        result
            .to_string()
            .lines()
            .take(4)
            .collect::<Vec<_>>()
            .join("\n")
    );
    let broken = &result.anomalies;
    ensure!(
        broken.contains(AnomalyKind::LostWrite) || broken.contains(AnomalyKind::OutOfOrder),
        "the revision-ordered checker detects nothing: {result}"
    );
    ensure!(
        broken.contains(AnomalyKind::NotLinearizable),
        "the general checker detects nothing: {result}"
    );
    Ok(())
}

#[test]
fn the_workload_uses_tls_follows_its_members_and_continues_an_earlier_one() -> Result<()> {
    let cluster = Cluster::start(1, true)?;
    let target = cluster.target();
    let (time_limit, second) = (Duration::from_secs(30), Duration::from_secs(1));
    let first = Workload::start(WorkloadConfig::default(), target.clone(), time_limit)?;
    sleep(second);
    let nowhere = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let moved = first.now();
    first.set_members(vec![format!("https://{nowhere}")]);
    sleep(second);
    let without_members = first.stats(moved);
    first.set_members(target.members.clone());
    sleep(second);
    let first = first.finish(time_limit)?;
    println!(
        "without members: {without_members}\nall: {}\n{}",
        first.stats(..),
        check::check_and_prove(&first)?
    );
    let gap = |kind| {
        without_members
            .longest_write_gap_by_kind
            .get(&kind)
            .copied()
            .unwrap_or_default()
    };
    ensure!(
        gap(ClientKind::AllMembers) > second * 4 / 5,
        "writes were acknowledged without members: {without_members}"
    );
    ensure!(
        gap(ClientKind::Service) < gap(ClientKind::AllMembers),
        "clients of the Service must continue: {without_members}"
    );

    let next = Workload::start(
        WorkloadConfig {
            seed: 2,
            ..WorkloadConfig::default()
        },
        target,
        time_limit,
    )?;
    sleep(second);
    let next = next.finish(time_limit)?;
    println!("{}", check::check_and_prove(&next)?);
    let end = first.end.as_ref().context("an end")?.revision;
    ensure!(!next.start.state.is_empty() && check::check_restore(&first, end, &next).count() == 0);
    ensure!(check::check_restore(&first, end - 5, &next).count() > 0);
    Ok(())
}

#[test]
fn a_workload_without_etcd_fails_within_its_timeout() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let target = WorkloadTarget {
        members: vec![format!("http://127.0.0.1:{port}")],
        ..WorkloadTarget::default()
    };
    let began = Instant::now();
    let error = Workload::start(WorkloadConfig::default(), target, Duration::from_secs(1))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("failed to read the initial state") && error.contains(&port.to_string()),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
}
