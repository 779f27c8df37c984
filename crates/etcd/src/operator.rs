//! etcd's hands and eyes, as the loop wants them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel::{
    Action, Change, Error, Explained, Key, Look, Notice, Operate, Outcome, Plan, Ref, Seen, SharedClock,
    SharedRandom, Sight, Written, journal_of,
};
use evenkeel_api::{EtcdCluster, labels, quantity};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ObjectMeta;
use kube::{Client, Resource, ResourceExt};

use crate::accept::{Before, in_force};
use crate::act::renew::Renewal;
use crate::decide::Etcd;
use crate::names::{Lineage, member_name, peer_host};
use crate::observe::ask::{self, Answers, Asked, Endpoint, SharedConnections};
use crate::observe::find::{self, Objects, Stores};
use crate::observe::secrets::Secrets;
use crate::observe::since::Since;
use crate::observe::volumes::Volumes;
use crate::observe::{Beside, Found, member};
use crate::plan::{Apply, Create, Mark, Wait};
use crate::wanted::Wanted;
use crate::{act, tell};

/// What is written, and not watched.
pub(crate) const UNWATCHED: &[&str] = &["Secret"];

/// Runs etcd clusters in one scope.
pub struct Operator {
    pub(crate) client: Client,
    pub(crate) clock: SharedClock,
    pub(crate) written: Written<Key>,
    pub(crate) secrets: Secrets,
    random: SharedRandom,
    stores: Stores,
    volumes: Volumes,
    since: Since,
    connections: Mutex<HashMap<Key, SharedConnections>>,
    /// What came of the last read as clients make it.
    served: Mutex<HashMap<Key, Seen<()>>>,
    /// From where on logs are being renewed.
    renewals: Mutex<HashMap<Key, Renewal>>,
}

impl Operator {
    /// With what the watches bring, and what is handed in. Secrets are read again after `secrets_interval`, since nobody watches
    /// them.
    pub fn new(
        client: Client,
        stores: Stores,
        secrets_interval: Duration,
        clock: SharedClock,
        random: SharedRandom,
    ) -> Self {
        Self {
            client,
            written: Written::new(clock.clone()),
            clock,
            random,
            stores,
            secrets: Secrets::every(secrets_interval),
            volumes: Volumes::default(),
            since: Since::default(),
            connections: Mutex::default(),
            served: Mutex::default(),
            renewals: Mutex::default(),
        }
    }

    /// The connections to a cluster's members.
    pub(crate) fn connections(&self, key: &Key) -> SharedConnections {
        let mut all = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key.clone()).or_default().clone()
    }

    /// From where on a cluster's logs are being renewed, or what that becomes.
    pub(crate) fn renewal(
        &self,
        key: &Key,
        becomes: impl FnOnce(Option<Renewal>) -> Option<Renewal>,
    ) -> Option<Renewal> {
        let mut all = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        let becomes = becomes(all.remove(key));
        all.extend(becomes.map(|becomes| (key.clone(), becomes)));
        becomes
    }

    async fn found(&self, key: &Key, objects: Objects) -> Result<Found, Error> {
        let size = quantity::bytes(&objects.resource.spec.storage.size).unwrap_or_default();
        let fixed = self.volumes.that_cannot_grow(&self.client, size, &objects.claims).await?;
        let class = objects.resource.spec.storage.class.as_deref();
        let missing_class = self.volumes.missing(&self.client, class, &objects.claims).await?;
        let before = Before::of(&objects).of_classes(fixed, missing_class.clone());
        let (wanted, refused) =
            in_force(&objects.resource, &before).map_err(|why| Error::other(tell::ACCEPTING, why))?;
        let now = self.clock.now();
        let times = (now, self.clock.uptime());
        let tls = self.secrets.judge(&self.client, key, &wanted, times, objects.print()).await?;
        let places = self.volumes.places(&self.client, &self.stores.hostnames(), &objects.claims).await?;
        let misplaced = self.volumes.misplaced(&self.stores, &wanted.node_selector, &objects.claims);
        let hostnames = self.stores.hostnames_of(&objects.pods);
        let lineage = Lineage(u32::try_from(self.random.u64() >> 32).unwrap_or_default());
        let beside = Beside { places, misplaced, missing_class, hostnames, tls, now, lineage };
        Found::of(objects, (wanted, refused), beside)
    }

    /// Asks etcd, as far as there is any to be asked. Whether clients are served is for the prober to find out: through a
    /// Service whose last connection died that takes seconds, which healing does not have.
    async fn ask(&self, key: &Key, found: &Found, as_clients: bool) -> Answers {
        let (Some(access), Some(register), Some((_, identity))) =
            (&found.tls.access, found.register(), &found.identity)
        else {
            return Answers::default();
        };
        if found.goes_former() {
            // What is still served is about to be deleted: nobody is to take that for this resource's.
            return Answers::default();
        }
        let members: Vec<Asked> = found.pods.values().filter_map(|pod| asked(found, pod)).collect();
        let service = found.client_service.as_ref().filter(|_| as_clients && identity.sealed);
        let service = service.and_then(|service| service_endpoint(&found.wanted, service));
        let connections = self.connections(key);
        let mut answers =
            ask::ask(&connections, access, (&members, service.as_ref()), &register, found.now).await;
        self.since.tell(key, &mut answers);
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if as_clients {
            served.insert(key.clone(), answers.served);
        } else if identity.sealed && answers.membership.is_present() {
            // Nobody is served, whatever was so a moment ago, when no member answers.
            answers.served = served.get(key).copied().unwrap_or_default();
        }
        answers
    }
}

/// Where a member of the current epoch can be asked, once its pod has an address.
fn asked(found: &Found, pod: &Pod) -> Option<Asked> {
    let (_, identity) = found.identity.as_ref()?;
    let member = member(&pod.metadata)?;
    if member.lineage != identity.lineage || member.epoch != identity.epoch {
        return None;
    }
    let start = crate::build::start::read(pod, member.serial, |_| None);
    Some(Asked {
        serial: member.serial,
        endpoint: endpoint(&found.wanted, pod)?,
        founder: start == crate::facts::Start::Found,
    })
}

/// Where a pod's etcd answers clients.
pub(crate) fn endpoint(wanted: &Wanted, pod: &Pod) -> Option<Endpoint> {
    let member = member(&pod.metadata)?;
    let address = pod.status.as_ref()?.pod_ip.clone().filter(|address| !address.is_empty())?;
    let name = member_name(&wanted.name, member.lineage, member.serial);
    Some(Endpoint { address, name: peer_host(&wanted.name, &wanted.namespace, &name) })
}

fn service_endpoint(wanted: &Wanted, service: &Service) -> Option<Endpoint> {
    let address = service.spec.as_ref()?.cluster_ip.clone().filter(|address| address != "None")?;
    Some(Endpoint { address, name: format!("{}.{}.svc", wanted.names().client_service(), wanted.namespace) })
}

impl Operate for Operator {
    type Engine = Etcd;
    type Resource = EtcdCluster;
    type Found = Found;
    type Probed = Answers;

    fn silence() -> Answers {
        Answers::default()
    }

    async fn probe(&self, key: Key) -> Option<Answers> {
        let objects = self.stores.find(&key).filter(|_| self.stores.listed.is_complete())?;
        match self.found(&key, objects).await {
            Ok(found) => Some(self.ask(&key, &found, true).await),
            Err(error) => {
                tracing::debug!(resource = %key, %error, "not asked");
                None
            }
        }
    }

    async fn look(&self, key: &Key, look: Look<'_, Answers>) -> Result<Option<Sight<Self>>, Error> {
        if let Look::Remembered(answers) = look
            && self.stores.listed.is_complete()
            && self.written.seen(key, |what| self.stores.version(key, what))
        {
            let Some(objects) = self.stores.find(key) else { return Ok(None) };
            let found = self.found(key, objects).await?;
            let facts = found.facts(answers);
            return Ok(Some(Sight { facts, found, probed: answers.clone(), live: false }));
        }
        let Some(objects) = find::live(&self.client, key).await? else { return Ok(None) };
        let found = self.found(key, objects).await?;
        let answers = self.ask(key, &found, false).await;
        Ok(Some(Sight { facts: found.facts(&answers), found, probed: answers, live: true }))
    }

    async fn act(
        &self,
        sight: &Sight<Self>,
        action: &Action<'_, Etcd>,
        holds: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        act::act(self, sight, action, holds).await
    }

    fn rests_on(action: &Action<'_, Etcd>) -> bool {
        match action {
            // What a change of the membership rests on; how a member starts rests on what it joined on; and on the first
            // identity rests everything.
            Action::Apply(Apply::Budget { .. }) | Action::Create(Create::Identity(_)) | Action::Step(_) => {
                true
            }
            Action::Mark(mark) => !matches!(
                mark,
                Mark::Route { .. }
                    | Mark::Unroute { .. }
                    | Mark::Own { .. }
                    | Mark::Removed { .. }
                    | Mark::Grow { .. }
                    | Mark::Accept
            ),
            Action::Apply(Apply::Object(_)) | Action::Create(_) => false,
        }
    }

    fn doubts(plan: &Plan<Etcd>) -> bool {
        let absent =
            |wait: &Wait| matches!(wait, Wait::Contradiction | Wait::NothingLeft(_) | Wait::NoQuorum);
        plan.status.waits.iter().any(absent)
    }

    fn unseen(&self, resource: &EtcdCluster, why: &Error) -> Option<serde_json::Value> {
        serde_json::to_value(tell::unseen(resource, self.clock.now(), why)).ok()
    }

    fn status(
        &self,
        sight: &Sight<Self>,
        plan: &Plan<Etcd>,
        refused: Option<&Error>,
    ) -> Option<serde_json::Value> {
        let status = tell::status(&sight.found, &sight.facts, plan, refused);
        serde_json::to_value(status).ok()
    }

    fn resource<'s>(&self, sight: &'s Sight<Self>) -> &'s EtcdCluster {
        &sight.found.resource
    }

    fn notice(&self, sight: &Sight<Self>, action: &Action<'_, Etcd>) -> Option<Notice> {
        tell::notice(&sight.found, action)
    }

    fn troubles(&self, sight: &Sight<Self>, plan: &Plan<Etcd>) -> Vec<Notice> {
        tell::troubles(&sight.found, &sight.facts, plan)
    }

    fn explain(&self, sight: &Sight<Self>, plan: &Plan<Etcd>) -> Explained {
        tell::explain(&sight.found, &sight.facts, plan)
    }

    fn journal(&self, resource: &EtcdCluster) -> Option<ObjectMeta> {
        // Not the label that everything else of a cluster has: what carries it is watched, and wakes the loop.
        let labels = [(labels::APP_MANAGED_BY, labels::MANAGER), (labels::APP_NAME, "etcd")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Some(ObjectMeta { labels: Some(labels), ..journal_of(resource) })
    }

    fn name(action: &Action<'_, Etcd>) -> &'static str {
        tell::name(action)
    }

    fn told(&self, resource: &EtcdCluster) {
        let key = Key { namespace: resource.namespace().unwrap_or_default(), name: resource.name_any() };
        let what = Ref { kind: EtcdCluster::kind(&()).into_owned(), name: resource.name_any() };
        let version = resource.resource_version().unwrap_or_default();
        self.written.note(&key, what, Change::Stored { version });
    }

    fn forget(&self, key: &Key) {
        self.secrets.forget(key);
        self.since.forget(key);
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.served.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.renewals.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.written.retain(|other| other != key);
    }
}
