//! `kubectl evenkeel move-leader`: the lead goes to another member.

use evenkeel_api::{EtcdClusterStatus, MemberRole, MemberStatus};
use kube::ResourceExt;

use crate::args::Which;
use crate::connection::Reached;
use crate::error::Trouble;
use crate::etcdctl;

/// Hands the lead over.
pub(crate) async fn run(reached: &Reached, which: &Which, to: Option<&str>) -> Result<u8, Trouble> {
    let cluster = reached.cluster(which.cluster.as_deref()).await?;
    let status = cluster.status.clone().unwrap_or_default();
    let transfer_to = transfer_to(&status, to)?;
    if transfer_to.name == status.leader {
        println!("{} leads already.", transfer_to.name);
        return Ok(0);
    }
    let arguments = ["move-leader".to_owned(), transfer_to.id.clone()];
    let said = etcdctl::ask(reached, &status.leader, &arguments)?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
        return Err(Trouble::new(format!(
            "{} does not hand the lead of {} over: {why}",
            status.leader,
            cluster.name_any()
        ))
        .help("it may have changed hands meanwhile: `kubectl evenkeel status` tells who leads"));
    }
    println!("{} leads now; {} did.", transfer_to.name, status.leader);
    Ok(0)
}

/// Who gets it.
fn transfer_to<'s>(
    status: &'s EtcdClusterStatus,
    to: Option<&str>,
) -> Result<&'s MemberStatus, Trouble> {
    if status.leader.is_empty() {
        return Err(Trouble::new("nobody leads, or nobody knows who")
            .help("`kubectl evenkeel why` tells more"));
    }
    let fit = |member: &&MemberStatus| {
        member.healthy && member.role == MemberRole::Voter && !member.id.is_empty()
    };
    let fits: Vec<_> = status.member_list.iter().filter(fit).collect();
    let others = || {
        let names = fits
            .iter()
            .filter(|one| one.name != status.leader)
            .map(|one| one.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    match to {
        Some(name) => fits
            .iter()
            .find(|one| one.name == name)
            .copied()
            .ok_or_else(|| {
                Trouble::new(format!(
                    "{name} cannot lead: it is no member that has a vote and serves"
                ))
                .help(format!("these can: {}", others()))
            }),
        None => {
            // The next one in the list, so that asking again goes round.
            let at = fits
                .iter()
                .position(|one| one.name == status.leader)
                .unwrap_or_default();
            let next = fits
                .iter()
                .cycle()
                .skip(at + 1)
                .take(fits.len())
                .find(|one| one.name != status.leader);
            next.copied()
                .ok_or_else(|| Trouble::new("no other member has a vote and serves"))
        }
    }
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
    fn the_lead_goes_round_among_those_who_serve() {
        let all = ["a", "b", "c"];
        assert_eq!(transfer_to(&status("a", &all), None).unwrap().name, "b");
        assert_eq!(transfer_to(&status("c", &all), None).unwrap().name, "a");
        assert_eq!(
            transfer_to(&status("a", &["a", "c"]), None).unwrap().name,
            "c"
        );
        assert_eq!(
            transfer_to(&status("a", &all), Some("c")).unwrap().name,
            "c"
        );
        assert!(transfer_to(&status("a", &["a"]), None).is_err());
        let told = transfer_to(&status("a", &["a", "c"]), Some("b"))
            .unwrap_err()
            .to_string();
        assert!(told.contains("these can: c"), "{told}");
        assert!(transfer_to(&status("", &all), None).is_err());
    }
}
