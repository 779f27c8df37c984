//! Real etcd processes on loopback as a stage. Each member has an address of its own in 127/8 and the same ports, so that
//! the port of one that is down is not taken by a stranger's outgoing connection; each process ends with the thread that
//! plays the story.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::names::Serial;
use evenkeel_explorer::world::shown;
use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::etcd::{EtcdVersion, get};
use serde_json::{Value, json};

use crate::held;
use crate::stage::{Act, Entry, Look, Names, Said, Then};

const CLIENTS: u16 = 12379;
const PEERS: u16 = 12380;
/// How long the two stages may differ after an act. A change is refused as "unhealthy" for 5 s after an election.
const PATIENCE: Duration = Duration::from_secs(20);
/// What etcd does not answer in this time it does not answer.
const TIMEOUT: Duration = Duration::from_millis(800);

/// Processes of one version, and how their IDs are numbered.
pub(crate) struct Real {
    version: EtcdVersion,
    programs: PathBuf,
    dir: tempfile::TempDir,
    options: Vec<String>,
    members: BTreeMap<Serial, Member>,
    names: Names,
}

struct Member {
    address: [u8; 4],
    process: Option<Child>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // There is nobody left to tell.
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

    /// Calls etcd through its JSON gateway: every field of a request can be set, and nothing is retried.
    fn call(&self, path: &str, request: &Value, timeout: Duration) -> Result<Value> {
        let mut stream =
            TcpStream::connect_timeout(&SocketAddr::from((self.address, CLIENTS)), timeout)?;
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

    /// What it says of itself, and whether it is a learner.
    fn said(&self) -> Option<(Said, bool)> {
        let status = self.call("maintenance/status", &json!({}), TIMEOUT).ok()?;
        let learner = status["isLearner"] == true;
        let serves = if learner {
            number(&status["leader"]).is_some_and(|leader| leader != 0)
        } else {
            self.call("kv/range", &json!({"key": "AA=="}), TIMEOUT)
                .is_ok()
        };
        let (cluster, id) = (
            number(&status["header"]["cluster_id"])?,
            number(&status["header"]["member_id"])?,
        );
        Some((
            Said {
                cluster,
                id,
                serves,
            },
            learner,
        ))
    }
}

impl Real {
    /// Nothing runs yet.
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
            names: Names::default(),
        })
    }

    /// Does one thing, and looks until what is seen is what the other stage showed, and stays so.
    pub(crate) fn play(&mut self, act: &Act, then: Then, shown: &Look) -> Result<()> {
        let done = self.act(act, shown.done)?;
        let (until, mut agreed) = (Instant::now() + PATIENCE, 0);
        loop {
            let look = self.look(done);
            agreed = if look == *shown && act.came(then, &look) {
                agreed + 1
            } else {
                0
            };
            if agreed == 2 {
                return Ok(());
            }
            if Instant::now() > until {
                bail!(
                    "etcd {} differs from the world after {act:?}\n  world: {shown:?}\n  etcd:  {look:?}\n{}",
                    self.version,
                    self.last_words()
                );
            }
            sleep(Duration::from_millis(200));
        }
    }

    fn act(&mut self, act: &Act, wanted: Option<bool>) -> Result<Option<bool>> {
        match act {
            Act::Starts(serial, start) => self.start(*serial, start)?,
            Act::StartsUnderAnotherLeader(serial, start) => {
                self.start(Serial(0), &StartMode::ExistingData)?;
                self.start(*serial, start)?;
            }
            Act::Dies(serial) => self.member(*serial)?.kill()?,
            Act::Wiped(serial) => {
                self.member(*serial)?.kill()?;
                std::fs::remove_dir_all(self.data(*serial))?;
            }
            Act::Copied(serial) => {
                Cmd::new("cp")
                    .arg("-a")
                    .arg(self.data(*serial))
                    .arg(self.copy(*serial))
                    .run()?;
            }
            Act::RolledBack(serial) => {
                std::fs::remove_dir_all(self.data(*serial))?;
                std::fs::rename(self.copy(*serial), self.data(*serial))?;
            }
            Act::Asks(change) => return self.ask(*change, wanted == Some(true)).map(Some),
            Act::AsksAsItDies(serial, change) => {
                let (path, request) = self.lead(*change)?;
                self.member(*serial)?.kill()?;
                return Ok(Some(
                    self.member(Serial(0))?
                        .call(path, &request, TIMEOUT)
                        .is_ok(),
                ));
            }
            Act::AsksAsItFreezes(serial, change) => {
                let (path, request) = self.lead(*change)?;
                // A leader counts those as there whom it has been in touch with for 5 s.
                sleep(Duration::from_secs(6));
                let process = self
                    .member(*serial)?
                    .process
                    .as_ref()
                    .context("it does not run")?;
                Cmd::new("kill")
                    .args(["-STOP", &process.id().to_string()])
                    .run()?;
                return Ok(Some(
                    self.member(Serial(0))?
                        .call(path, &request, TIMEOUT * 2)
                        .is_ok(),
                ));
            }
        }
        Ok(None)
    }

    /// Kills a member, and has somebody take its calls who says nothing, until there are messages of others among them.
    /// They are handed back as they are: sent, and not answered.
    pub(crate) fn dies_and_is_held_in_touch(&mut self, serial: Serial) -> Result<Vec<TcpStream>> {
        self.lead(MembershipChange::Remove(serial))?;
        let member = self.member(serial)?;
        member.kill()?;
        held::take_calls(SocketAddr::from((member.address, PEERS)))
    }

    /// Starts a member again with its data, and waits until it has been back for as long as etcd wants to see.
    pub(crate) fn restarts_and_serves(&mut self, serial: Serial) -> Result<()> {
        self.start(serial, &StartMode::ExistingData)?;
        let until = Instant::now() + PATIENCE;
        while !self
            .member(serial)?
            .said()
            .is_some_and(|(said, _)| said.serves)
        {
            ensure!(
                Instant::now() < until,
                "it does not come back\n{}",
                self.last_words()
            );
            sleep(Duration::from_millis(100));
        }
        sleep(Duration::from_secs(2));
        Ok(())
    }

    /// Asks one member for a change, once.
    pub(crate) fn ask_of(&mut self, asked: Serial, change: MembershipChange) -> Result<Value> {
        let (path, request) = self.request(change)?;
        self.member(asked)?.call(path, &request, TIMEOUT * 2)
    }

    /// Has the first member lead; says how to ask for a change.
    fn lead(&mut self, change: MembershipChange) -> Result<(&'static str, Value)> {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self
                .member(Serial(0))?
                .call("maintenance/status", &json!({}), TIMEOUT)?;
            let (leader, id) = (
                status["leader"].clone(),
                status["header"]["member_id"].clone(),
            );
            if leader == id {
                return self.request(change);
            }
            ensure!(
                Instant::now() < until,
                "the first member does not come to lead"
            );
            let target = json!({"targetID": id});
            for one in self.members.values() {
                // Only the leader obeys.
                let _ = one.call("maintenance/transfer-leadership", &target, TIMEOUT);
            }
        }
    }

    fn member(&mut self, serial: Serial) -> Result<&mut Member> {
        self.members
            .get_mut(&serial)
            .with_context(|| format!("{} never started", shown(serial)))
    }

    fn data(&self, serial: Serial) -> PathBuf {
        self.dir.path().join(shown(serial))
    }

    fn copy(&self, serial: Serial) -> PathBuf {
        self.dir.path().join(format!("{}.copy", shown(serial)))
    }

    /// Where a member is, or will be.
    fn place(&mut self, serial: Serial) -> &mut Member {
        self.members.entry(serial).or_insert_with(|| Member {
            address: fresh_address(),
            process: None,
        })
    }

    /// Starts a process, and waits until it answers or has ended, or for a while if it does neither.
    fn start(&mut self, serial: Serial, start: &StartMode) -> Result<()> {
        let list: Vec<Serial> = match start {
            StartMode::Join(list) => list.iter().copied().collect(),
            StartMode::Held | StartMode::Bootstrap | StartMode::ExistingData => vec![serial],
        };
        let one =
            |serial: Serial, member: &Member| format!("{}={}", shown(serial), member.url(PEERS));
        let list: Vec<String> = list
            .into_iter()
            .map(|serial| one(serial, self.place(serial)))
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
            && self.member(serial)?.said().is_none()
        {
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Starts a process with this list and state.
    pub(crate) fn spawn(&mut self, serial: Serial, list: &str, state: &str) -> Result<()> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log(serial))?;
        let member = self.place(serial);
        member.kill()?;
        let (clients, peers) = (member.url(CLIENTS), member.url(PEERS));
        let command = Cmd::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(self.programs.join("etcd"))
            .args(["--name", &shown(serial), "--data-dir"])
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
                "replay-1",
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

    /// Whether a member's process is no more.
    pub(crate) fn has_ended(&mut self, serial: Serial) -> Result<bool> {
        let process = self.member(serial)?.process.as_mut();
        Ok(process
            .map(Child::try_wait)
            .transpose()?
            .is_none_or(|status| status.is_some()))
    }

    /// Asks for a change: again and again, if it is to be done in the end; once, if it is to be refused.
    fn ask(&mut self, change: MembershipChange, wanted: bool) -> Result<bool> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask_once(change);
            match answer {
                Ok(_) => return Ok(true),
                Err(_) if wanted && Instant::now() < until => sleep(Duration::from_millis(300)),
                Err(error) if wanted => return Err(error.context(format!("{change:?} is refused"))),
                Err(_) => return Ok(false),
            }
        }
    }

    fn request(&mut self, change: MembershipChange) -> Result<(&'static str, Value)> {
        Ok(match change {
            MembershipChange::Add(serial) => {
                let url = self.place(serial).url(PEERS);
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

    fn ask_once(&mut self, change: MembershipChange) -> Result<Value> {
        let (path, request) = self.request(change)?;
        let speak: Vec<_> = self
            .members
            .values()
            .filter_map(|one| Some((one, one.said()?)))
            .collect();
        let voters = || speak.iter().filter(|(_, (_, learner))| !learner);
        let asked = voters()
            .find(|(_, (said, _))| said.serves)
            .or_else(|| voters().next());
        let (asked, _) = asked.context("nobody answers")?;
        let answer = asked.call(path, &request, TIMEOUT * 2)?;
        // How far a log is agreed on is on a member's disk only with what follows: one that is restarted at once would
        // take the membership for what it was before.
        for _ in 0..2 {
            let _ = asked.call("kv/put", &json!({"key": "AA=="}), TIMEOUT);
        }
        Ok(answer)
    }

    /// What anybody's list of members calls this one.
    fn id(&self, serial: Serial) -> Result<String> {
        let url = self.members.get(&serial).context("unheard of")?.url(PEERS);
        let lists = self.members.values().filter_map(|one| list(one, false));
        let mut entries = lists.flatten().filter(|entry| entry["peerURLs"][0] == url);
        Ok(entries.next().context("not a member")?["ID"]
            .as_str()
            .context("no ID")?
            .to_owned())
    }

    fn look(&mut self, done: Option<bool>) -> Look {
        let heard: BTreeMap<Serial, (Said, bool)> = self
            .members
            .iter()
            .filter_map(|(serial, one)| Some((*serial, one.said()?)))
            .collect();
        let vouched = heard
            .iter()
            .filter(|(_, (said, learner))| said.serves && !learner);
        let lists = vouched.filter_map(|(serial, _)| list(self.members.get(serial)?, true));
        let members = lists
            .into_iter()
            .next_back()
            .map(|list| list.iter().filter_map(|one| self.entry(one)).collect());
        let voices = heard
            .into_iter()
            .map(|(serial, (said, _))| (serial, said))
            .collect();
        self.names.number(Look {
            done,
            members,
            voices,
        })
    }

    fn entry(&self, listed: &Value) -> Option<(Serial, Entry)> {
        let is_it = |one: &&Member| listed["peerURLs"][0] == one.url(PEERS);
        let (serial, _) = self.members.iter().find(|(_, one)| is_it(one))?;
        let started = listed["name"].as_str().is_some_and(|name| !name.is_empty());
        Some((
            *serial,
            Entry {
                id: number(&listed["ID"])?,
                learner: listed["isLearner"] == true,
                started,
            },
        ))
    }

    fn log(&self, serial: Serial) -> PathBuf {
        self.dir.path().join(format!("{}.log", shown(serial)))
    }

    /// The end of everybody's log.
    pub(crate) fn last_words(&self) -> String {
        let of = |serial: &Serial| {
            let log = std::fs::read_to_string(self.log(*serial)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!(
                "{}: {}\n",
                shown(*serial),
                lines[lines.len().saturating_sub(4)..].join("\n   ")
            )
        };
        self.members.keys().map(of).collect()
    }
}

/// A member's list of members; linearizably, only with a quorum.
fn list(member: &Member, linearizable: bool) -> Option<Vec<Value>> {
    let listed = member
        .call(
            "cluster/member/list",
            &json!({"linearizable": linearizable}),
            TIMEOUT,
        )
        .ok()?;
    listed["members"].as_array().cloned()
}

/// The gateway writes large numbers as text.
fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

/// An address that no other member of this process has, and probably none of another process.
fn fresh_address() -> [u8; 4] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    [127, high | 0x80, low, NEXT.fetch_add(1, Ordering::Relaxed)]
}
