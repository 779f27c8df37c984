//! `kubectl evenkeel etcdctl`: runs etcdctl in the pod of a member, with the member's certificates.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use evenkeel_api::{EtcdCluster, MemberStatus};
use kube::ResourceExt;
// A member's server certificate is also valid as a client certificate of that member.
use evenkeel_etcd::build::pod::{CONTAINER, SERVER_TLS};

use crate::args::NamedTarget;
use crate::connection::Connection;
use crate::error::CliError;
use crate::live_leader::LeaderAnswers;
use crate::permission;

const LOCAL_ENDPOINT: &str = "--endpoints=https://localhost:2379";

/// Replaces this process by etcdctl. Returns only if that fails.
pub(crate) async fn run(
    connection: &Connection,
    target: &NamedTarget,
    member: Option<&str>,
    arguments: &[String],
) -> Result<u8, CliError> {
    let cluster = connection.cluster(Some(&target.cluster)).await?;
    let action = format!("run etcdctl in a pod of EtcdCluster {}", target.cluster);
    permission::require_exec(connection, &action).await?;
    let member = match member {
        Some(name) => named_member(&cluster, name)?,
        None => {
            let answers = LeaderAnswers::query(connection, &cluster).await?;
            let member = select_member(&cluster, &answers)?;
            if answers.leader.is_none() {
                eprintln!(
                    "note: the leader is unknown, so etcdctl runs in {member}. Tried: {}",
                    answers.tried_text()
                );
            }
            member
        }
    };
    let mut kubectl = kubectl_exec(connection, &member, true);
    kubectl.args(etcdctl_command(arguments));
    Err(cannot_run_kubectl(&kubectl.exec()))
}

/// Runs etcdctl in the pod of a member, and returns its output.
pub(crate) fn run_in_pod(
    connection: &Connection,
    member: &str,
    arguments: &[String],
) -> Result<Output, CliError> {
    let mut kubectl = kubectl_exec(connection, member, false);
    kubectl.args(etcdctl_command(arguments));
    connection
        .output_of(&mut kubectl)
        .map_err(|error| cannot_run_kubectl(&error))
}

fn kubectl_exec(connection: &Connection, member: &str, is_interactive: bool) -> Command {
    let mut kubectl = connection.kubectl();
    kubectl.args(["exec", "--container", CONTAINER]);
    if is_interactive {
        kubectl.arg("--stdin");
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            kubectl.arg("--tty");
        }
    }
    kubectl.args([member, "--"]);
    kubectl
}

/// Returns the command in the container.
fn etcdctl_command(arguments: &[String]) -> Vec<String> {
    let mut command = vec![
        "etcdctl".to_owned(),
        format!("--cacert={SERVER_TLS}/ca.crt"),
        format!("--cert={SERVER_TLS}/tls.crt"),
        format!("--key={SERVER_TLS}/tls.key"),
    ];
    // etcdctl would use the endpoints of both flags.
    let sets_endpoints =
        |argument: &String| argument == "--endpoints" || argument.starts_with("--endpoints=");
    if !arguments.iter().any(sets_endpoints) {
        command.push(LOCAL_ENDPOINT.to_owned());
    }
    command.extend_from_slice(arguments);
    command
}

/// Returns the member of this name.
fn named_member(cluster: &EtcdCluster, name: &str) -> Result<String, CliError> {
    let members = members(cluster);
    if members.iter().any(|member| member.name == name) {
        return Ok(name.to_owned());
    }
    let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
    Err(CliError::new(format!(
        "member {name} of EtcdCluster {} does not exist",
        cluster.name_any()
    ))
    .help(format!("existing members: {}", names.join(", "))))
}

/// Returns the leader. While it is unknown, prefers a member that responds, then one that was healthy, then any.
fn select_member(cluster: &EtcdCluster, answers: &LeaderAnswers) -> Result<String, CliError> {
    if let Some(leader) = &answers.leader {
        return Ok(leader.clone());
    }
    let members = members(cluster);
    let responding = members
        .iter()
        .find(|member| answers.is_responding(&member.name) == Some(true));
    let preferred = responding
        .or_else(|| members.iter().find(|member| member.healthy))
        .or(members.first());
    preferred.map(|member| member.name.clone()).ok_or_else(|| {
        CliError::new(format!(
            "EtcdCluster {} has no members yet",
            cluster.name_any()
        ))
        .help("`kubectl evenkeel status` shows the progress")
    })
}

fn members(cluster: &EtcdCluster) -> &[MemberStatus] {
    let status = cluster.status.as_ref();
    status
        .map(|status| status.member_list.as_slice())
        .unwrap_or_default()
}

fn cannot_run_kubectl(error: &std::io::Error) -> CliError {
    CliError::new(format!("failed to run kubectl: {error}"))
        .help("etcdctl runs through `kubectl exec`: kubectl must be on the PATH")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::live_leader::LeaderAnswer;

    fn cluster(leader: &str, healthy: &[&str]) -> EtcdCluster {
        let member = |name: &str| json!({ "name": name, "role": "Voter", "healthy": healthy.contains(&name) });
        let members = ["orders-a", "orders-b"].map(member);
        serde_json::from_value(json!({
            "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": { "name": "orders" },
            "spec": { "version": "3.6.16", "members": 2 }, "status": { "leader": leader, "memberList": members },
        }))
        .unwrap()
    }

    #[test]
    fn the_leader_that_etcd_reports_is_selected() {
        // The status still names another leader.
        let cluster = cluster("orders-a", &["orders-a", "orders-b"]);
        let answers = |leader: Option<&str>, responding: &[&str]| LeaderAnswers {
            leader: leader.map(str::to_owned),
            members: responding
                .iter()
                .map(|name| ((*name).to_owned(), LeaderAnswer::NoLeader))
                .collect(),
            ..LeaderAnswers::default()
        };
        let select =
            |leader, responding: &[&str]| select_member(&cluster, &answers(leader, responding));
        assert_eq!(select(Some("orders-b"), &[]).unwrap(), "orders-b");
        assert_eq!(select(None, &["orders-b"]).unwrap(), "orders-b");
        assert_eq!(select(None, &[]).unwrap(), "orders-a");
    }

    #[test]
    fn an_unknown_member_lists_the_existing_ones() {
        let cluster = cluster("", &[]);
        assert_eq!(named_member(&cluster, "orders-b").unwrap(), "orders-b");
        let error = named_member(&cluster, "orders-c").unwrap_err().to_string();
        assert!(
            error.contains("existing members: orders-a, orders-b"),
            "{error}"
        );
    }

    #[test]
    fn an_endpoints_argument_replaces_the_local_endpoint() {
        let has_local_endpoint = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(|it| (*it).to_owned()).collect();
            etcdctl_command(&arguments).contains(&LOCAL_ENDPOINT.to_owned())
        };
        assert!(has_local_endpoint(&["member", "list"]));
        assert!(!has_local_endpoint(&[
            "--endpoints",
            "https://other:2379",
            "get",
            "a"
        ]));
    }
}
