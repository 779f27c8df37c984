//! `kubectl evenkeel move-leader`: transfers leadership to another member.

use evenkeel_api::{EtcdClusterStatus, MemberRole, MemberStatus};
use kube::ResourceExt;

use crate::args::Target;
use crate::connection::Connection;
use crate::error::CliError;
use crate::etcdctl;

/// Transfers leadership to the named member, or to the next one.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    to: Option<&str>,
) -> Result<u8, CliError> {
    let cluster = connection.cluster(target.cluster.as_deref()).await?;
    let name = cluster.name_any();
    let status = cluster.status.clone().unwrap_or_default();
    let new_leader = select_leader(&status, to)?;
    if new_leader.name == status.leader {
        println!(
            "{name}: {} is the leader already (status.leader). Nothing was changed.",
            new_leader.name
        );
        return Ok(0);
    }
    let arguments = ["move-leader".to_owned(), new_leader.id.clone()];
    let output = etcdctl::run_in_pod(connection, &status.leader, &arguments)?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CliError::new(format!(
            "failed to transfer leadership of EtcdCluster {name} from {} to {}: {error}",
            status.leader, new_leader.name
        ))
        .help(
            "this requires permission to create pods/exec. If another member has become the leader meanwhile, try again: \
             `kubectl evenkeel status` shows the leader",
        ));
    }
    println!(
        "{name}: transferred leadership from {} to {}.",
        status.leader, new_leader.name
    );
    Ok(0)
}

/// Returns the member that becomes the leader.
fn select_leader<'s>(
    status: &'s EtcdClusterStatus,
    to: Option<&str>,
) -> Result<&'s MemberStatus, CliError> {
    if status.leader.is_empty() {
        return Err(
            CliError::new("the leader is unknown: status.leader is empty")
                .help("`kubectl evenkeel why` shows the reason"),
        );
    }
    let can_lead = |member: &&MemberStatus| {
        member.healthy && member.role == MemberRole::Voter && !member.id.is_empty()
    };
    let candidates: Vec<_> = status.member_list.iter().filter(can_lead).collect();
    let is_other = |member: &MemberStatus| member.name != status.leader;
    let Some(name) = to else {
        // The next member in the list, so that repeated calls rotate through all members.
        let current = candidates
            .iter()
            .position(|member| !is_other(member))
            .unwrap_or_default();
        let next = candidates
            .iter()
            .cycle()
            .skip(current + 1)
            .take(candidates.len())
            .find(|member| is_other(member));
        return next
            .copied()
            .ok_or_else(|| CliError::new("no other member is a healthy voter"));
    };
    let named = candidates.iter().find(|member| member.name == name);
    named.copied().ok_or_else(|| {
        let others: Vec<_> = candidates
            .iter()
            .filter(|member| is_other(member))
            .map(|member| member.name.as_str())
            .collect();
        CliError::new(format!(
            "cannot transfer leadership to {name}: it is not a healthy voter"
        ))
        .help(format!("candidates: {}", others.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(leader: &str, healthy: &[&str]) -> EtcdClusterStatus {
        let member = |name: &str| json!({ "name": name, "id": format!("id-{name}"), "role": "Voter", "healthy": healthy.contains(&name) });
        let members = ["a", "b", "c"].map(member);
        serde_json::from_value(json!({ "leader": leader, "memberList": members })).unwrap()
    }

    #[test]
    fn the_next_healthy_voter_becomes_the_leader() {
        let select = |leader: &str, healthy: &[&str], to: Option<&str>| {
            select_leader(&status(leader, healthy), to)
                .map(|member| member.name.clone())
                .map_err(|error| error.to_string())
        };
        let all = ["a", "b", "c"];
        assert_eq!(select("a", &all, None).unwrap(), "b");
        assert_eq!(select("c", &all, None).unwrap(), "a");
        assert_eq!(select("a", &["a", "c"], None).unwrap(), "c");
        assert_eq!(select("a", &all, Some("c")).unwrap(), "c");
        assert!(select("a", &["a"], None).is_err());
        let error = select("a", &["a", "c"], Some("b")).unwrap_err();
        assert!(error.contains("candidates: c"), "{error}");
        assert!(select("", &all, None).is_err());
    }
}
