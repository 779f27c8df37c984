//! Replays scripts on real etcd processes on loopback. Each member has its own address in 127/8 and the same ports,
//! so that no outgoing connection of another process takes the port of a stopped member. Each process ends with the
//! thread that runs the script.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use evenkeel_etcd::build::restore_pod::RestoredMember;
use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::names::Serial;
use evenkeel_explorer::model::member_label;
use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::etcd::{EtcdVersion, get};
use serde_json::{Value, json};

use crate::held;
use crate::stage::{Expected, IdNumbering, ListedEntry, MemberReply, ObservedState, ReplayStep};

const CLIENT_PORT: u16 = 12379;
const PEER_PORT: u16 = 12380;
/// How long model and etcd may differ after a step. etcd rejects changes as "unhealthy" for 5 s after an election.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(20);
/// The cluster token of all clusters.
const TOKEN: &str = "replay-1";
/// The key in a backup, in base64.
const BACKUP_KEY: &str = "YmFja3Vw";
/// The timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_millis(800);

/// The processes of one version and the numbering of their IDs.
pub(crate) struct EtcdReplay {
    version: EtcdVersion,
    programs: PathBuf,
    dir: tempfile::TempDir,
    options: Vec<String>,
    members: BTreeMap<Serial, Member>,
    names: IdNumbering,
}

struct Member {
    address: [u8; 4],
    process: Option<Child>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Errors cannot be reported here.
        let _ = self.kill();
    }
}

impl Member {
    fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    fn url(&self, port: u16) -> String {
        let [a, b, c, d] = self.address;
        format!("http://{a}.{b}.{c}.{d}:{port}")
    }

    /// Calls etcd through its JSON gateway, which allows setting every field and never retries.
    fn call(&self, path: &str, request: &Value, timeout: Duration) -> Result<Value> {
        let mut stream =
            TcpStream::connect_timeout(&SocketAddr::from((self.address, CLIENT_PORT)), timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        let body = request.to_string();
        write!(
            stream,
            "POST /v3/{path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let status = head.lines().next().unwrap_or_default();
        ensure!(status.contains(" 200 "), "{}", body.trim());
        Ok(serde_json::from_str(body)?)
    }

    /// Returns the member's reply and whether it is a learner.
    fn reply(&self) -> Option<(MemberReply, bool)> {
        let status = self
            .call("maintenance/status", &json!({}), CALL_TIMEOUT)
            .ok()?;
        let learner = status["isLearner"] == true;
        let serves = if learner {
            number(&status["leader"]).is_some_and(|leader| leader != 0)
        } else {
            self.call("kv/range", &json!({"key": "AA=="}), CALL_TIMEOUT)
                .is_ok()
        };
        let (cluster, id) = (
            number(&status["header"]["cluster_id"])?,
            number(&status["header"]["member_id"])?,
        );
        Some((
            MemberReply {
                cluster,
                id,
                serves,
            },
            learner,
        ))
    }
}

impl EtcdReplay {
    /// Prepares a cluster without processes.
    pub(crate) fn new(version: EtcdVersion, max_learners: u8) -> Result<Self> {
        let options = match max_learners {
            1 => Vec::new(),
            more => vec![format!("--max-learners={more}")],
        };
        let (programs, dir) = (get(version)?, tempfile::tempdir()?);
        Ok(Self {
            version,
            programs,
            dir,
            options,
            members: BTreeMap::new(),
            names: IdNumbering::default(),
        })
    }

    /// Executes one step, then waits until the observable state equals that of the model and stays so.
    pub(crate) fn run(
        &mut self,
        step: &ReplayStep,
        expected: Expected,
        model_state: &ObservedState,
    ) -> Result<()> {
        let done = self.step(step, model_state.done)?;
        let (until, mut agreed) = (Instant::now() + AGREEMENT_TIMEOUT, 0);
        loop {
            let state = self.state(done);
            agreed = if state == *model_state && step.is_shown_by(expected, &state) {
                agreed + 1
            } else {
                0
            };
            if agreed == 2 {
                return Ok(());
            }
            if Instant::now() > until {
                bail!(
                    "etcd {} differs from the model after {step:?}\n  model: {model_state:?}\n  etcd:  {state:?}\n{}",
                    self.version,
                    self.log_tails()
                );
            }
            sleep(Duration::from_millis(200));
        }
    }

    fn step(&mut self, step: &ReplayStep, must_succeed: Option<bool>) -> Result<Option<bool>> {
        match step {
            ReplayStep::Start(serial, start) => self.start(*serial, start)?,
            ReplayStep::StartUnderNewLeader(serial, start) => {
                self.start(Serial(0), &StartMode::ExistingData)?;
                self.start(*serial, start)?;
            }
            ReplayStep::Kill(serial) => self.member(*serial)?.kill()?,
            ReplayStep::Wipe(serial) => {
                self.member(*serial)?.kill()?;
                std::fs::remove_dir_all(self.data(*serial))?;
            }
            ReplayStep::Copy(serial) => {
                Cmd::new("cp")
                    .arg("-a")
                    .arg(self.data(*serial))
                    .arg(self.copy(*serial))
                    .run()?;
            }
            ReplayStep::Restore(serial) => {
                std::fs::remove_dir_all(self.data(*serial))?;
                std::fs::rename(self.copy(*serial), self.data(*serial))?;
            }
            ReplayStep::RestoreBackup(serial) => self.restore_backup(*serial)?,
            ReplayStep::Change(change) => {
                return self
                    .send_change(*change, must_succeed == Some(true))
                    .map(Some);
            }
            ReplayStep::ChangeAsMemberDies(serial, change) => {
                let (path, request) = self.make_first_member_leader(*change)?;
                self.member(*serial)?.kill()?;
                return Ok(Some(
                    self.member(Serial(0))?
                        .call(path, &request, CALL_TIMEOUT)
                        .is_ok(),
                ));
            }
            ReplayStep::ChangeAsMemberFreezes(serial, change) => {
                let (path, request) = self.make_first_member_leader(*change)?;
                // A leader counts a member as reachable after 5 s of contact.
                sleep(Duration::from_secs(6));
                let process = self
                    .member(*serial)?
                    .process
                    .as_ref()
                    .context("the member does not run")?;
                Cmd::new("kill")
                    .args(["-STOP", &process.id().to_string()])
                    .run()?;
                return Ok(Some(
                    self.member(Serial(0))?
                        .call(path, &request, CALL_TIMEOUT * 2)
                        .is_ok(),
                ));
            }
        }
        Ok(None)
    }

    /// Kills a member and accepts its connections without answering until they carry messages. Returns the open
    /// connections: sent, and not answered.
    pub(crate) fn kill_and_hold_connections(&mut self, serial: Serial) -> Result<Vec<TcpStream>> {
        self.make_first_member_leader(MembershipChange::Remove(serial))?;
        let member = self.member(serial)?;
        member.kill()?;
        held::accept_connections(SocketAddr::from((member.address, PEER_PORT)))
    }

    /// Restarts a member on its data and waits until it has served long enough for etcd.
    pub(crate) fn restart_until_serving(&mut self, serial: Serial) -> Result<()> {
        self.start(serial, &StartMode::ExistingData)?;
        let until = Instant::now() + AGREEMENT_TIMEOUT;
        while !self
            .member(serial)?
            .reply()
            .is_some_and(|(reply, _)| reply.serves)
        {
            ensure!(
                Instant::now() < until,
                "the member does not serve again\n{}",
                self.log_tails()
            );
            sleep(Duration::from_millis(100));
        }
        sleep(Duration::from_secs(2));
        Ok(())
    }

    /// Sends a change to one member, once.
    pub(crate) fn send_change_to(
        &mut self,
        target: Serial,
        change: MembershipChange,
    ) -> Result<Value> {
        let (path, request) = self.request(change)?;
        self.member(target)?.call(path, &request, CALL_TIMEOUT * 2)
    }

    /// Transfers the leadership to the first member. Returns the request for the change.
    fn make_first_member_leader(
        &mut self,
        change: MembershipChange,
    ) -> Result<(&'static str, Value)> {
        let until = Instant::now() + AGREEMENT_TIMEOUT;
        loop {
            let status =
                self.member(Serial(0))?
                    .call("maintenance/status", &json!({}), CALL_TIMEOUT)?;
            let (leader, id) = (
                status["leader"].clone(),
                status["header"]["member_id"].clone(),
            );
            if leader == id {
                return self.request(change);
            }
            ensure!(
                Instant::now() < until,
                "the first member does not become the leader"
            );
            let target = json!({"targetID": id});
            for one in self.members.values() {
                // Only the leader executes the transfer.
                let _ = one.call("maintenance/transfer-leadership", &target, CALL_TIMEOUT);
            }
        }
    }

    fn member(&mut self, serial: Serial) -> Result<&mut Member> {
        self.members
            .get_mut(&serial)
            .with_context(|| format!("{} never started", member_label(serial)))
    }

    fn data(&self, serial: Serial) -> PathBuf {
        self.dir.path().join(member_label(serial))
    }

    fn copy(&self, serial: Serial) -> PathBuf {
        self.dir
            .path()
            .join(format!("{}.copy", member_label(serial)))
    }

    /// Returns a member; allocates its address if it is new.
    fn member_or_new(&mut self, serial: Serial) -> &mut Member {
        self.members.entry(serial).or_insert_with(|| Member {
            address: fresh_address(),
            process: None,
        })
    }

    /// Starts a process and waits until it answers or exits, for 3 s at most.
    fn start(&mut self, serial: Serial, start: &StartMode) -> Result<()> {
        let list: Vec<Serial> = match start {
            StartMode::Join(list) => list.iter().copied().collect(),
            StartMode::Held
            | StartMode::Bootstrap
            | StartMode::ExistingData
            | StartMode::Restored => vec![serial],
        };
        let one = |serial: Serial, member: &Member| {
            format!("{}={}", member_label(serial), member.url(PEER_PORT))
        };
        let list: Vec<String> = list
            .into_iter()
            .map(|serial| one(serial, self.member_or_new(serial)))
            .collect();
        let state = if *start == StartMode::Bootstrap {
            "new"
        } else {
            "existing"
        };
        self.spawn(serial, &list.join(","), state)?;
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until
            && !self.has_ended(serial)?
            && self.member(serial)?.reply().is_none()
        {
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Takes a snapshot of another cluster, which has one key, and restores it as the operator's restore pods do.
    fn restore_backup(&mut self, serial: Serial) -> Result<()> {
        let source = Serial(25);
        self.start(source, &StartMode::Bootstrap)?;
        let until = Instant::now() + AGREEMENT_TIMEOUT;
        let put = json!({ "key": BACKUP_KEY, "value": BACKUP_KEY });
        while self
            .member(source)?
            .call("kv/put", &put, CALL_TIMEOUT)
            .is_err()
        {
            ensure!(
                Instant::now() < until,
                "the source of the backup does not serve\n{}",
                self.log_tails()
            );
            sleep(Duration::from_millis(100));
        }
        let file = self.dir.path().join("backup");
        let endpoint = self.member(source)?.url(CLIENT_PORT);
        Cmd::new(self.programs.join("etcdctl"))
            .args(["--endpoints", &endpoint, "snapshot", "save"])
            .arg(&file)
            .run()?;
        self.members.remove(&source);
        let url = self.member_or_new(serial).url(PEER_PORT);
        let temporary = self.dir.path().join("restore.tmp");
        let name = member_label(serial);
        let identity = RestoredMember {
            name: &name,
            peer_url: &url,
            token: TOKEN,
        };
        Cmd::new(self.programs.join("etcdutl"))
            .args(identity.etcdutl_args(&file.to_string_lossy(), &temporary.to_string_lossy()))
            .run()?;
        std::fs::rename(temporary, self.data(serial))?;
        Ok(())
    }

    /// Returns the revision at which the key of the backup was written, and the revision of the member.
    pub(crate) fn restored_revisions(&mut self, serial: Serial) -> Result<(u64, u64)> {
        let range = json!({ "key": BACKUP_KEY });
        let answer = self
            .member(serial)?
            .call("kv/range", &range, CALL_TIMEOUT)?;
        let written = number(&answer["kvs"][0]["mod_revision"]).context("the key is missing")?;
        let revision = number(&answer["header"]["revision"]).context("no revision")?;
        Ok((written, revision))
    }

    /// Starts a process with this list and state.
    pub(crate) fn spawn(&mut self, serial: Serial, list: &str, state: &str) -> Result<()> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log(serial))?;
        let member = self.member_or_new(serial);
        member.kill()?;
        let (clients, peers) = (member.url(CLIENT_PORT), member.url(PEER_PORT));
        let command = Cmd::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(self.programs.join("etcd"))
            .args(["--name", &member_label(serial), "--data-dir"])
            .arg(self.data(serial))
            .args([
                "--listen-client-urls",
                &clients,
                "--advertise-client-urls",
                &clients,
            ])
            .args([
                "--listen-peer-urls",
                &peers,
                "--initial-advertise-peer-urls",
                &peers,
            ])
            .arg(format!("--initial-cluster={list}"))
            .args([
                "--initial-cluster-state",
                state,
                "--initial-cluster-token",
                TOKEN,
            ])
            .args([
                "--heartbeat-interval",
                "50",
                "--election-timeout",
                "500",
                "--log-level",
                "error",
            ])
            .args(&self.options);
        let child = command.spawn(|command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
        })?;
        self.member(serial)?.process = Some(child);
        Ok(())
    }

    /// Returns true if a member's process has exited.
    pub(crate) fn has_ended(&mut self, serial: Serial) -> Result<bool> {
        let process = self.member(serial)?.process.as_mut();
        Ok(process
            .map(Child::try_wait)
            .transpose()?
            .is_none_or(|status| status.is_some()))
    }

    /// Sends a change: repeatedly if it must succeed, once if it must be rejected.
    fn send_change(&mut self, change: MembershipChange, must_succeed: bool) -> Result<bool> {
        let until = Instant::now() + AGREEMENT_TIMEOUT;
        loop {
            let answer = self.send_change_once(change);
            match answer {
                Ok(_) => return Ok(true),
                Err(_) if must_succeed && Instant::now() < until => {
                    sleep(Duration::from_millis(300))
                }
                Err(error) if must_succeed => {
                    return Err(error.context(format!("etcd rejects {change:?}")));
                }
                Err(_) => return Ok(false),
            }
        }
    }

    fn request(&mut self, change: MembershipChange) -> Result<(&'static str, Value)> {
        Ok(match change {
            MembershipChange::Add(serial) => {
                let url = self.member_or_new(serial).url(PEER_PORT);
                (
                    "cluster/member/add",
                    json!({"peerURLs": [url], "isLearner": true}),
                )
            }
            MembershipChange::Promote(serial) => {
                ("cluster/member/promote", json!({"ID": self.id(serial)?}))
            }
            MembershipChange::Remove(serial) => {
                ("cluster/member/remove", json!({"ID": self.id(serial)?}))
            }
            MembershipChange::RemoveUnknown(id) => {
                ("cluster/member/remove", json!({"ID": id.0.to_string()}))
            }
        })
    }

    fn send_change_once(&mut self, change: MembershipChange) -> Result<Value> {
        let (path, request) = self.request(change)?;
        let responding: Vec<_> = self
            .members
            .values()
            .filter_map(|one| Some((one, one.reply()?)))
            .collect();
        let voters = || responding.iter().filter(|(_, (_, learner))| !learner);
        let target = voters()
            .find(|(_, (reply, _))| reply.serves)
            .or_else(|| voters().next());
        let (target, _) = target.context("no member answers")?;
        let answer = target.call(path, &request, CALL_TIMEOUT * 2)?;
        // The commit index reaches the disk only with later entries: a member restarted at once would see the old
        // membership.
        for _ in 0..2 {
            let _ = target.call("kv/put", &json!({"key": "AA=="}), CALL_TIMEOUT);
        }
        Ok(answer)
    }

    /// Returns the ID of a member from any member list.
    fn id(&self, serial: Serial) -> Result<String> {
        let url = self
            .members
            .get(&serial)
            .context("unknown member")?
            .url(PEER_PORT);
        let lists = self.members.values().filter_map(|one| list(one, false));
        let mut entries = lists.flatten().filter(|entry| entry["peerURLs"][0] == url);
        Ok(entries.next().context("not a member")?["ID"]
            .as_str()
            .context("no ID")?
            .to_owned())
    }

    fn state(&mut self, done: Option<bool>) -> ObservedState {
        let replies: BTreeMap<Serial, (MemberReply, bool)> = self
            .members
            .iter()
            .filter_map(|(serial, one)| Some((*serial, one.reply()?)))
            .collect();
        let authoritative = replies
            .iter()
            .filter(|(_, (reply, learner))| reply.serves && !learner);
        let lists = authoritative.filter_map(|(serial, _)| list(self.members.get(serial)?, true));
        let members = lists
            .into_iter()
            .next_back()
            .map(|list| list.iter().filter_map(|one| self.entry(one)).collect());
        let replies = replies
            .into_iter()
            .map(|(serial, (reply, _))| (serial, reply))
            .collect();
        self.names.number(ObservedState {
            done,
            members,
            replies,
        })
    }

    fn entry(&self, listed: &Value) -> Option<(Serial, ListedEntry)> {
        let is_member = |one: &&Member| listed["peerURLs"][0] == one.url(PEER_PORT);
        let (serial, _) = self.members.iter().find(|(_, one)| is_member(one))?;
        let started = listed["name"].as_str().is_some_and(|name| !name.is_empty());
        Some((
            *serial,
            ListedEntry {
                id: number(&listed["ID"])?,
                learner: listed["isLearner"] == true,
                started,
            },
        ))
    }

    fn log(&self, serial: Serial) -> PathBuf {
        self.dir
            .path()
            .join(format!("{}.log", member_label(serial)))
    }

    /// Returns the last lines of every member's log.
    pub(crate) fn log_tails(&self) -> String {
        let of = |serial: &Serial| {
            let log = std::fs::read_to_string(self.log(*serial)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!(
                "{}: {}\n",
                member_label(*serial),
                lines[lines.len().saturating_sub(4)..].join("\n   ")
            )
        };
        self.members.keys().map(of).collect()
    }
}

/// Returns a member's member list; a linearizable one needs a quorum.
fn list(member: &Member, linearizable: bool) -> Option<Vec<Value>> {
    let listed = member
        .call(
            "cluster/member/list",
            &json!({"linearizable": linearizable}),
            CALL_TIMEOUT,
        )
        .ok()?;
    listed["members"].as_array().cloned()
}

/// Parses a number, which the gateway writes as text.
fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

/// Returns an address that no other member of this process uses, and probably none of another process.
fn fresh_address() -> [u8; 4] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    [127, high | 0x80, low, NEXT.fetch_add(1, Ordering::Relaxed)]
}
