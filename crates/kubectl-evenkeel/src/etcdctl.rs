//! `kubectl evenkeel etcdctl`: runs etcdctl in the pod of a member, with the member's certificates.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use evenkeel_api::{EtcdCluster, EtcdClusterStatus};
use kube::ResourceExt;
// A member's server certificate is also valid as a client certificate of that member.
use evenkeel_etcd::build::pod::{CONTAINER, SERVER_TLS};

use crate::connection::Connection;
use crate::error::CliError;

const LOCAL_ENDPOINT: &str = "--endpoints=https://localhost:2379";

/// Replaces this process by etcdctl. Returns only if that fails.
pub(crate) async fn run(
    connection: &Connection,
    cluster: &str,
    member: Option<&str>,
    arguments: &[String],
) -> Result<u8, CliError> {
    let cluster = connection.cluster(Some(cluster)).await?;
    let member = select_member(&cluster, member)?;
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
    kubectl.output().map_err(|error| cannot_run_kubectl(&error))
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

/// Returns the member of this name. Without a name, prefers the leader, then a healthy member, then any.
fn select_member(cluster: &EtcdCluster, name: Option<&str>) -> Result<String, CliError> {
    let empty = EtcdClusterStatus::default();
    let status = cluster.status.as_ref().unwrap_or(&empty);
    let members = &status.member_list;
    let names = || {
        members
            .iter()
            .map(|member| member.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    match name {
        Some(name) if members.iter().any(|member| member.name == name) => Ok(name.to_owned()),
        Some(name) => Err(CliError::new(format!("member {name} does not exist"))
            .help(format!("existing members: {}", names()))),
        None => {
            let leader = members
                .iter()
                .find(|member| member.healthy && member.name == status.leader);
            let preferred = leader
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
    }
}

fn cannot_run_kubectl(error: &std::io::Error) -> CliError {
    CliError::new(format!("failed to run kubectl: {error}"))
        .help("etcdctl runs through `kubectl exec`: kubectl must be on the PATH")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    fn the_leader_is_selected_unless_it_is_down_or_another_is_named() {
        let select = |leader, healthy: &[&str], name| {
            select_member(&cluster(leader, healthy), name).unwrap()
        };
        assert_eq!(
            select("orders-b", &["orders-a", "orders-b"], None),
            "orders-b"
        );
        assert_eq!(select("orders-b", &["orders-a"], None), "orders-a");
        assert_eq!(select("", &[], None), "orders-a");
        assert_eq!(select("", &[], Some("orders-b")), "orders-b");
        let error = select_member(&cluster("", &[]), Some("orders-c"))
            .unwrap_err()
            .to_string();
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
