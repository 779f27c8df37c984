//! `kubectl evenkeel move-leader`: transfers leadership to another member. etcd itself is asked for the leader, before and after.

use std::time::Duration;

use evenkeel_api::{EtcdCluster, MemberRole, MemberStatus};
use kube::ResourceExt;
use tokio::time::{Instant, sleep};

use crate::args::NamedTarget;
use crate::connection::Connection;
use crate::effect;
use crate::error::CliError;
use crate::live_leader::LeaderAnswers;
use crate::{etcdctl, kubectl_error, permission};

/// How long the members may take to report the new leader. etcd responds to the transfer after it is complete.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two questions.
const VERIFY_INTERVAL: Duration = Duration::from_millis(200);
/// How often a transfer is tried. Another member may become the leader between the question and the transfer.
const MAX_ATTEMPTS: usize = 2;

/// Transfers leadership to the named member, or to the next one.
pub(crate) async fn run(
    connection: &Connection,
    target: &NamedTarget,
    to: Option<&str>,
) -> Result<u8, CliError> {
    let cluster = connection.cluster(Some(&target.cluster)).await?;
    let name = cluster.name_any();
    let mut attempt = 1;
    let (old_leader, new_leader) = loop {
        let answers = LeaderAnswers::query(connection, &cluster).await?;
        let old_leader = answers
            .require_leader()
            .map_err(|error| error.about(&name))?
            .to_owned();
        let new_leader = select_leader(&cluster, &answers, &old_leader, to)?;
        if new_leader.name == old_leader {
            println!(
                "{name}: etcd reports that {old_leader} is the leader already. Nothing was changed."
            );
            return Ok(0);
        }
        match transfer(connection, &name, &old_leader, new_leader).await? {
            Transfer::Done => break (old_leader, new_leader.name.clone()),
            Transfer::NotTheLeader(_) if attempt < MAX_ATTEMPTS => attempt += 1,
            Transfer::NotTheLeader(error) => return Err(error),
        }
    };
    verify(connection, &cluster, &new_leader).await?;
    println!("{name}: transferred leadership from {old_leader} to {new_leader}.");
    for note in effect::after_transfer(&cluster) {
        println!("  {note}");
    }
    Ok(0)
}

/// The result of a request for a transfer.
enum Transfer {
    /// etcd has transferred leadership.
    Done,
    /// The member was not the leader any more.
    NotTheLeader(CliError),
}

/// Asks the leader to transfer leadership.
async fn transfer(
    connection: &Connection,
    cluster: &str,
    leader: &str,
    to: &MemberStatus,
) -> Result<Transfer, CliError> {
    let action = format!(
        "transfer leadership of EtcdCluster {cluster} from {leader} to {}",
        to.name
    );
    permission::require_exec(connection, &action).await?;
    let arguments = ["move-leader".to_owned(), to.id.clone()];
    let output = etcdctl::run_in_pod(connection, leader, &arguments)?;
    if output.status.success() {
        return Ok(Transfer::Done);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let error = kubectl_error::exec_error(&action, leader, &stderr);
    if is_not_the_leader(&stderr) {
        return Ok(Transfer::NotTheLeader(error));
    }
    Err(error)
}

/// Returns whether etcdctl reports that its member is not the leader.
fn is_not_the_leader(stderr: &str) -> bool {
    stderr.contains("no leader endpoint given") || stderr.contains("not leader")
}

/// Waits until etcd reports the new leader.
async fn verify(
    connection: &Connection,
    cluster: &EtcdCluster,
    new_leader: &str,
) -> Result<(), CliError> {
    let deadline = Instant::now() + VERIFY_TIMEOUT;
    loop {
        let answers = LeaderAnswers::query(connection, cluster).await?;
        if answers.leader.as_deref() == Some(new_leader) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(not_verified(&cluster.name_any(), new_leader, &answers));
        }
        sleep(VERIFY_INTERVAL).await;
    }
}

fn not_verified(cluster: &str, new_leader: &str, answers: &LeaderAnswers) -> CliError {
    let found = match &answers.leader {
        Some(leader) => format!("reports {leader} as the leader now"),
        None => format!("reports no leader. Tried: {}", answers.tried_text()),
    };
    CliError::new(format!(
        "{cluster}: etcd accepted the transfer to {new_leader}, but {found}"
    ))
    .help("etcd may elect another leader at any time: try again, or see `kubectl evenkeel status`")
}

/// Returns the member that becomes the leader.
fn select_leader<'c>(
    cluster: &'c EtcdCluster,
    answers: &LeaderAnswers,
    leader: &str,
    to: Option<&str>,
) -> Result<&'c MemberStatus, CliError> {
    let members = cluster
        .status
        .as_ref()
        .map(|status| status.member_list.as_slice())
        .unwrap_or_default();
    let problem = |member: &MemberStatus| problem_of(member, answers);
    let is_other = |member: &&MemberStatus| member.name != leader;
    let names = |members: &mut dyn Iterator<Item = &MemberStatus>| {
        let names: Vec<_> = members.map(|member| member.name.as_str()).collect();
        names.join(", ")
    };
    let mut candidates = members
        .iter()
        .filter(is_other)
        .filter(|member| problem(member).is_none());
    let Some(name) = to else {
        // The next member in the list, so that repeated calls rotate through all members.
        let current = members
            .iter()
            .position(|member| member.name == leader)
            .unwrap_or_default();
        let next = members
            .iter()
            .cycle()
            .skip(current + 1)
            .take(members.len())
            .filter(is_other)
            .find(|member| problem(member).is_none());
        return next.ok_or_else(|| no_candidate(cluster, members, answers, leader));
    };
    let Some(named) = members.iter().find(|member| member.name == name) else {
        return Err(CliError::new(format!(
            "cannot transfer leadership to {name}: EtcdCluster {} has no such member",
            cluster.name_any()
        ))
        .help(format!("existing members: {}", names(&mut members.iter()))));
    };
    match problem(named) {
        Some(problem) if named.name != leader => Err(CliError::new(format!(
            "cannot transfer leadership to {name}: {problem}"
        ))
        .help(format!("candidates: {}", names(&mut candidates)))),
        _ => Ok(named),
    }
}

/// Returns the reason why a member cannot become the leader.
fn problem_of(member: &MemberStatus, answers: &LeaderAnswers) -> Option<String> {
    let is_responding = answers
        .is_responding(&member.name)
        .unwrap_or(member.healthy);
    match member.role {
        MemberRole::Learner => Some("it is a learner, which has no vote".to_owned()),
        MemberRole::Joining => Some("it has not joined yet".to_owned()),
        MemberRole::Leaving => Some("it is being removed".to_owned()),
        MemberRole::Voter if !is_responding => Some("it does not respond".to_owned()),
        MemberRole::Voter if member.id.is_empty() => {
            Some("its member ID is not in status.memberList yet".to_owned())
        }
        MemberRole::Voter => None,
    }
}

fn no_candidate(
    cluster: &EtcdCluster,
    members: &[MemberStatus],
    answers: &LeaderAnswers,
    leader: &str,
) -> CliError {
    let name = cluster.name_any();
    let others: Vec<_> = members
        .iter()
        .filter(|member| member.name != leader)
        .filter_map(|member| Some(format!("{}: {}", member.name, problem_of(member, answers)?)))
        .collect();
    let reason = if others.is_empty() {
        format!("EtcdCluster {name} has no other member than its leader {leader}")
    } else {
        format!(
            "no other member can become the leader ({})",
            others.join("; ")
        )
    };
    CliError::new(format!("cannot transfer leadership: {reason}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::live_leader::LeaderAnswer;

    fn cluster(members: &[(&str, &str)]) -> EtcdCluster {
        let members: Vec<_> = members
            .iter()
            .map(|(name, role)| json!({ "name": name, "id": format!("id-{name}"), "role": role, "healthy": true }))
            .collect();
        // The leader in the status is outdated: it must not matter.
        serde_json::from_value(json!({
            "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": { "name": "orders" },
            "spec": { "version": "3.6.16" }, "status": { "leader": "c", "memberList": members },
        }))
        .unwrap()
    }

    fn select(
        members: &[(&str, &str)],
        leader: &str,
        silent: &[&str],
        to: Option<&str>,
    ) -> Result<String, String> {
        let answers = members.iter().map(|(name, _)| {
            let answer = if silent.contains(name) {
                LeaderAnswer::NoAnswer("timed out".to_owned())
            } else {
                LeaderAnswer::Follower
            };
            ((*name).to_owned(), answer)
        });
        let answers = LeaderAnswers {
            members: answers.collect(),
            leader: Some(leader.to_owned()),
            tried: Vec::new(),
        };
        select_leader(&cluster(members), &answers, leader, to)
            .map(|member| member.name.clone())
            .map_err(|error| error.to_string())
    }

    const VOTERS: [(&str, &str); 3] = [("a", "Voter"), ("b", "Voter"), ("c", "Voter")];

    #[test]
    fn the_next_responding_voter_becomes_the_leader() {
        assert_eq!(select(&VOTERS, "a", &[], None).unwrap(), "b");
        assert_eq!(select(&VOTERS, "c", &[], None).unwrap(), "a");
        assert_eq!(select(&VOTERS, "a", &["b"], None).unwrap(), "c");
        let error = select(&VOTERS, "a", &["b", "c"], None).unwrap_err();
        assert!(error.contains("b: it does not respond; c: it"), "{error}");
        let error = select(&VOTERS[..1], "a", &[], None).unwrap_err();
        assert!(error.contains("has no other member"), "{error}");
    }

    #[test]
    fn the_named_member_becomes_the_leader_if_it_can() {
        assert_eq!(select(&VOTERS, "a", &[], Some("c")).unwrap(), "c");
        assert_eq!(select(&VOTERS, "a", &[], Some("a")).unwrap(), "a");
        let error = select(&VOTERS, "a", &["b"], Some("b")).unwrap_err();
        assert!(
            error.contains("to b: it does not respond") && error.contains("candidates: c"),
            "{error}"
        );
        let learner = [("a", "Voter"), ("b", "Voter"), ("d", "Learner")];
        let error = select(&learner, "a", &[], Some("d")).unwrap_err();
        assert!(error.contains("it is a learner"), "{error}");
        let error = select(&VOTERS, "a", &[], Some("x")).unwrap_err();
        assert!(error.contains("existing members: a, b, c"), "{error}");
    }

    #[test]
    fn a_transfer_that_etcd_does_not_confirm_is_an_error() {
        let answers = LeaderAnswers {
            leader: Some("c".to_owned()),
            ..LeaderAnswers::default()
        };
        let error = not_verified("orders", "b", &answers);
        assert_eq!(error.exit_code, crate::error::EXIT_FAILED);
        assert_eq!(
            error.message,
            "orders: etcd accepted the transfer to b, but reports c as the leader now"
        );
    }

    #[test]
    fn a_leader_that_changed_meanwhile_is_recognized() {
        assert!(is_not_the_leader(
            "Error: no leader endpoint given at [https://localhost:2379]"
        ));
        assert!(!is_not_the_leader("Error: context deadline exceeded"));
    }
}
