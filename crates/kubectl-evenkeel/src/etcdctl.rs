//! `kubectl evenkeel etcdctl`: etcdctl in a member's pod, with the certificates that are there. Nothing has to be set up.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use evenkeel_api::{EtcdCluster, EtcdClusterStatus};
// The certificates with which a member serves also open its own door.
use evenkeel_etcd::build::pod::{CONTAINER, SERVER_TLS};

use crate::connection::Reached;
use crate::error::Trouble;

/// Becomes etcdctl; returns only if that cannot be.
pub(crate) async fn run(
    reached: &Reached,
    cluster: &str,
    member: Option<&str>,
    arguments: &[String],
) -> Result<u8, Trouble> {
    let cluster = reached.cluster(Some(cluster)).await?;
    let member = chosen(&cluster, member)?;
    let mut kubectl = exec(reached, &member, true);
    kubectl.args(etcdctl(arguments));
    Err(unavailable(&kubectl.exec()))
}

/// What etcdctl says when it is run in a member.
pub(crate) fn ask(
    reached: &Reached,
    member: &str,
    arguments: &[String],
) -> Result<Output, Trouble> {
    let mut kubectl = exec(reached, member, false);
    kubectl.args(etcdctl(arguments));
    kubectl.output().map_err(|why| unavailable(&why))
}

fn exec(reached: &Reached, member: &str, interactive: bool) -> Command {
    let mut kubectl = reached.kubectl();
    kubectl.args(["exec", "--container", CONTAINER]);
    if interactive {
        kubectl.arg("--stdin");
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            kubectl.arg("--tty");
        }
    }
    kubectl.args([member, "--"]);
    kubectl
}

/// The command in the pod.
fn etcdctl(arguments: &[String]) -> Vec<String> {
    let mut all = vec![
        "etcdctl".to_owned(),
        format!("--cacert={SERVER_TLS}/ca.crt"),
        format!("--cert={SERVER_TLS}/tls.crt"),
        format!("--key={SERVER_TLS}/tls.key"),
    ];
    // Given twice, they would both be asked.
    let named =
        |argument: &String| argument == "--endpoints" || argument.starts_with("--endpoints=");
    if !arguments.iter().any(named) {
        all.push("--endpoints=https://localhost:2379".to_owned());
    }
    all.extend_from_slice(arguments);
    all
}

/// The member to ask: the one that was named, else the one that leads, else one that serves, else any.
fn chosen(cluster: &EtcdCluster, named: Option<&str>) -> Result<String, Trouble> {
    let none = EtcdClusterStatus::default();
    let status = cluster.status.as_ref().unwrap_or(&none);
    let members = &status.member_list;
    let names = || {
        members
            .iter()
            .map(|one| one.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    match named {
        Some(name) if members.iter().any(|one| one.name == name) => Ok(name.to_owned()),
        Some(name) => Err(Trouble::new(format!("there is no member {name}"))
            .help(format!("there are {}", names()))),
        None => {
            let leads = members
                .iter()
                .find(|one| one.healthy && one.name == status.leader);
            let any = leads
                .or_else(|| members.iter().find(|one| one.healthy))
                .or(members.first());
            any.map(|one| one.name.clone()).ok_or_else(|| {
                Trouble::new("it has no members yet")
                    .help("`kubectl evenkeel status` tells how far it is")
            })
        }
    }
}

fn unavailable(why: &std::io::Error) -> Trouble {
    Trouble::new(format!("kubectl cannot be run: {why}"))
        .help("it must be on the PATH: etcdctl is run by `kubectl exec`")
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
    fn the_leader_is_asked_or_whoever_serves_or_who_is_named() {
        let asked =
            |leader, healthy: &[&str], named| chosen(&cluster(leader, healthy), named).unwrap();
        assert_eq!(
            asked("orders-b", &["orders-a", "orders-b"], None),
            "orders-b"
        );
        assert_eq!(asked("orders-b", &["orders-a"], None), "orders-a");
        assert_eq!(asked("", &[], None), "orders-a");
        assert_eq!(asked("", &[], Some("orders-b")), "orders-b");
        let told = chosen(&cluster("", &[]), Some("orders-c"))
            .unwrap_err()
            .to_string();
        assert!(told.contains("there are orders-a, orders-b"), "{told}");
    }

    #[test]
    fn endpoints_that_are_named_are_the_only_ones() {
        let of = |arguments: &[&str]| {
            etcdctl(
                &arguments
                    .iter()
                    .map(|one| (*one).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert!(of(&["member", "list"]).contains(&"--endpoints=https://localhost:2379".to_owned()));
        assert!(
            !of(&["--endpoints", "https://other:2379", "get", "a"])
                .contains(&"--endpoints=https://localhost:2379".to_owned())
        );
    }
}
