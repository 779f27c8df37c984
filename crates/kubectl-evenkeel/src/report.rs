//! How a cluster is, put together from its resource, its members and the operator's lease. The same for people and programs.

use evenkeel_api::{EtcdCluster, EtcdClusterStatus, MemberRole};
use evenkeel_etcd::view::quorum;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;

use crate::args::Which;
use crate::connection::Reached;
use crate::error::{AMISS, NOT_WRITABLE, Trouble};
use crate::member_metrics::Live;
use crate::operator_status::Overseer;
use crate::terminal::{Mood, span};

/// How soon before its end a certificate is worth a word: they are renewed long before.
const SOON: i64 = 14 * 86_400;

/// How a cluster is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether clients can write; nothing if nobody knows.
    pub(crate) writable: Option<bool>,
    /// How many more members may fail before clients cannot write; nothing if nobody knows.
    pub(crate) survives: Option<usize>,
    /// How many members serve, of how many.
    pub(crate) ready: String,
    pub(crate) phrase: String,
    pub(crate) members: Vec<MemberReport>,
    pub(crate) doing: String,
    pub(crate) because: String,
    pub(crate) waiting_for: Vec<String>,
    pub(crate) next: String,
    pub(crate) certificates: Vec<CertificateReport>,
    /// What is amiss, by the reason of the condition Degraded.
    pub(crate) degraded: Option<Amiss>,
    /// What is said of why clients are served, or are not.
    pub(crate) about_clients: Vec<String>,
    /// The alarm that etcd has raised, by which it refuses writes.
    pub(crate) alarm: Option<String>,
    pub(crate) paused: bool,
    /// Whether it is known that no operator is at work.
    pub(crate) unattended: bool,
    /// What else should be known.
    pub(crate) notes: Vec<String>,
}

/// What is amiss.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Amiss {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// For how many seconds.
    pub(crate) seconds: i64,
}

/// How a member is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberReport {
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) healthy: bool,
    /// By how many entries it is behind.
    pub(crate) lag: Option<u64>,
    /// How large its data is, in bytes.
    pub(crate) size: Option<u64>,
    pub(crate) version: String,
    pub(crate) node: String,
    pub(crate) message: String,
}

/// Until when a certificate is good.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateReport {
    pub(crate) secret: String,
    pub(crate) expires: String,
    /// In how many seconds.
    pub(crate) seconds: i64,
}

impl Report {
    /// Finds the cluster, and asks whoever knows something of it.
    pub(crate) async fn asked(
        reached: &Reached,
        which: &Which,
        now: Timestamp,
    ) -> Result<(EtcdCluster, Self), Trouble> {
        let cluster = reached.cluster(which.cluster.as_deref()).await?;
        let namespace = cluster.namespace();
        let overseer = Overseer::of(&reached.client, namespace.as_deref(), now).await;
        let live = Live::of(&reached.client, &cluster).await;
        let report = Self::of(&cluster, &live, &overseer, now);
        Ok((cluster, report))
    }

    /// From all that is known.
    pub(crate) fn of(
        cluster: &EtcdCluster,
        live: &Live,
        overseer: &Overseer,
        now: Timestamp,
    ) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        let leader = live.leader().unwrap_or(&status.leader);
        let members = status.member_list.iter().map(|member| MemberReport {
            name: member.name.clone(),
            role: role(member.role, leader == member.name).to_owned(),
            healthy: member.healthy,
            lag: live.lag(&member.name),
            size: live.size(&member.name),
            version: member.version.clone(),
            node: member.node.clone(),
            message: member.message.clone(),
        });
        let certificates = status.certificates.iter().map(|one| CertificateReport {
            secret: one.secret.clone(),
            expires: one.expires.0.to_string(),
            seconds: one.expires.0.as_second() - now.as_second(),
        });
        let (writable, survives) = written(&status, live, overseer);
        let degraded = condition(&status, "Degraded")
            .filter(|one| one.status == "True")
            .map(|one| Amiss {
                reason: one.reason.clone(),
                message: one.message.clone(),
                seconds: now.as_second() - one.last_transition_time.0.as_second(),
            });
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            version: cluster.spec.version.clone(),
            writable,
            survives,
            ready: status.ready.clone(),
            phrase: status.phrase.clone(),
            members: members.collect(),
            doing: status.doing.clone(),
            because: status.because.clone(),
            waiting_for: status.waiting_for.clone(),
            next: status.next.clone(),
            certificates: certificates.collect(),
            degraded,
            about_clients: about_clients(&status),
            alarm: live.alarm.clone(),
            paused: cluster.spec.paused,
            unattended: matches!(overseer, Overseer::Away(_)) || cluster.status.is_none(),
            notes: notes(cluster, &status, live, overseer, now),
        }
    }

    /// How good it is.
    pub(crate) fn mood(&self) -> Mood {
        match self.code() {
            0 => Mood::Good,
            AMISS => Mood::Warning,
            _ => Mood::Bad,
        }
    }

    /// The same for scripts.
    pub(crate) fn code(&self) -> u8 {
        match (self.writable, &self.degraded) {
            (Some(true), None) if self.unattended => AMISS,
            (Some(true), None) => 0,
            (Some(true), Some(_)) => AMISS,
            _ => NOT_WRITABLE,
        }
    }

    /// Whether clients can write, and what may still fail.
    pub(crate) fn verdict(&self) -> String {
        match (self.writable, self.survives) {
            (Some(true), Some(0)) => "writable, survives no further failure".to_owned(),
            (Some(true), Some(1)) => "writable, survives 1 more failure".to_owned(),
            (Some(true), Some(more)) => format!("writable, survives {more} more failures"),
            (Some(true), None) => "writable".to_owned(),
            (Some(false), _) => "NOT writable".to_owned(),
            (None, _) => "not known whether it is writable".to_owned(),
        }
    }

    /// What there is to say of the certificates.
    pub(crate) fn certs(&self) -> String {
        let Some(first) = self.certificates.iter().min_by_key(|one| one.seconds) else {
            return "nothing is known of them".to_owned();
        };
        let day = first.expires.get(..10).unwrap_or(&first.expires);
        match first.seconds {
            ..=0 => format!("{} has EXPIRED on {day}", first.secret),
            left if left < SOON => format!("{} expires in {}, on {day}", first.secret, span(left)),
            left => format!(
                "good; the first to expire is {}, in {}",
                first.secret,
                span(left)
            ),
        }
    }
}

/// What the conditions say to somebody whose clients are not served. Where nothing is amiss with the members, what to look at
/// instead is said of that.
fn about_clients(status: &EtcdClusterStatus) -> Vec<String> {
    let ready = condition(status, "Ready").filter(|ready| ready.status != "True");
    let degraded = condition(status, "Degraded").filter(|_| ready.is_some());
    let said = ready
        .into_iter()
        .chain(degraded)
        .map(|one| one.message.clone());
    said.filter(|message| !message.is_empty()).collect()
}

/// The condition of this type.
pub(crate) fn condition<'s>(status: &'s EtcdClusterStatus, type_: &str) -> Option<&'s Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
}

fn role(role: MemberRole, leads: bool) -> &'static str {
    match role {
        MemberRole::Voter if leads => "leader",
        MemberRole::Voter => "voter",
        MemberRole::Learner => "learner",
        MemberRole::Joining => "joining",
        MemberRole::Leaving => "leaving",
    }
}

/// Whether clients can write, and how many more members may fail. By the status, as far as somebody keeps it; and by the members'
/// own word, as far as they could be asked.
fn written(
    status: &EtcdClusterStatus,
    live: &Live,
    overseer: &Overseer,
) -> (Option<bool>, Option<usize>) {
    let ready = match condition(status, "Ready").map(|ready| ready.status.as_str()) {
        Some("True") => Some(true),
        Some("False") => Some(false),
        _ => None,
    };
    let voters = status
        .member_list
        .iter()
        .filter(|one| one.role == MemberRole::Voter);
    let voters: Vec<_> = voters.map(|one| one.name.as_str()).collect();
    let quorum = quorum(voters.len());
    let alive = live
        .alive(voters.iter().copied())
        .filter(|_| !voters.is_empty());
    let told = status.survives.and_then(|more| usize::try_from(more).ok());
    if live.alarm.is_some() || alive.is_some_and(|alive| alive < quorum) {
        return (Some(false), Some(0));
    }
    if matches!(overseer, Overseer::Away(_)) {
        // What was seen last may be long ago: only what the members themselves say counts.
        return (
            alive.map(|_| true).filter(|_| ready == Some(true)),
            alive.map(|alive| alive - quorum),
        );
    }
    let more = match (told, alive) {
        (Some(told), Some(alive)) => Some(told.min(alive - quorum)),
        (told, _) => told,
    };
    (
        ready,
        if ready == Some(false) {
            Some(0)
        } else {
            more.filter(|_| ready.is_some())
        },
    )
}

fn notes(
    cluster: &EtcdCluster,
    status: &EtcdClusterStatus,
    live: &Live,
    overseer: &Overseer,
    now: Timestamp,
) -> Vec<String> {
    let mut notes: Vec<String> = overseer.trouble().into_iter().collect();
    let created = cluster.metadata.creation_timestamp.as_ref();
    let age = created.map_or(0, |created| now.as_second() - created.0.as_second());
    if cluster.status.is_none() && age > 10 {
        notes.push(format!(
            "no operator has looked at it in the {} since it was created: is one running, and does it look after this \
             namespace?",
            span(age)
        ));
    } else if status.observed_generation < cluster.metadata.generation && cluster.status.is_some() {
        notes.push(
            "the last edit has not been looked at yet: what is told here is about the one before"
                .to_owned(),
        );
    }
    if cluster.spec.paused {
        notes.push(
            "it is paused: nothing is healed. `kubectl evenkeel resume` ends that".to_owned(),
        );
    }
    notes.extend(
        live.alarm
            .as_ref()
            .map(|alarm| format!("etcd has raised the alarm {alarm}, and refuses writes")),
    );
    notes.extend(live.trouble.clone());
    notes
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
