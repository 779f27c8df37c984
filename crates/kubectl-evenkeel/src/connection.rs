//! How Kubernetes is reached, and the clusters in it.

use std::process::Command;
use std::time::Duration;

use evenkeel_api::EtcdCluster;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};

use crate::args::Reach;
use crate::error::{NO_ANSWER, NOT_THERE, Trouble};

/// Nobody waits longer than this for one answer.
const LIMIT: Duration = Duration::from_secs(15);

/// Kubernetes, as the user reaches it.
pub(crate) struct Reached {
    /// The client.
    pub(crate) client: Client,
    /// The namespace that was asked for, or the context's own.
    pub(crate) namespace: String,
    flags: Reach,
}

impl Reached {
    /// As the kubeconfig and the flags say.
    pub(crate) async fn by(flags: &Reach) -> Result<Self, Trouble> {
        let options = KubeConfigOptions {
            context: flags.context.clone(),
            ..KubeConfigOptions::default()
        };
        let mut config = match &flags.kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(file).map_err(|why| unreadable(&why))?;
                Config::from_custom_kubeconfig(read, &options)
                    .await
                    .map_err(|why| unreadable(&why))?
            }
            None if flags.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(|why| unreadable(&why))?,
            None => Config::infer().await.map_err(|why| {
                Trouble::new(format!("it is not known which Kubernetes to ask: {why}"))
                    .help("name a kubeconfig with --kubeconfig, or in the variable KUBECONFIG")
                    .code(NO_ANSWER)
            })?,
        };
        config.connect_timeout = Some(LIMIT);
        // A member that does not listen is answered for with 503, which would be asked again for minutes.
        config.default_retry = false;
        let namespace = flags
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).map_err(|why| Trouble::kubernetes("connect", &why))?;
        Ok(Self {
            client,
            namespace,
            flags: flags.clone(),
        })
    }

    /// kubectl, pointed to the same place.
    #[expect(
        clippy::disallowed_methods,
        reason = "the plugin becomes kubectl, or hands on what it said"
    )]
    pub(crate) fn kubectl(&self) -> Command {
        let mut kubectl = Command::new("kubectl");
        if let Some(file) = &self.flags.kubeconfig {
            kubectl.arg("--kubeconfig").arg(file);
        }
        if let Some(context) = &self.flags.context {
            kubectl.args(["--context", context]);
        }
        kubectl.args(["--namespace", &self.namespace]);
        kubectl
    }

    /// The clusters of the namespace, or of all.
    pub(crate) async fn clusters(&self, everywhere: bool) -> Result<Vec<EtcdCluster>, Trouble> {
        let kind = ApiResource::erase::<EtcdCluster>(&());
        let api: Api<DynamicObject> = if everywhere {
            Api::all_with(self.client.clone(), &kind)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
        };
        let list = asked("list etcdclusters", api.list(&ListParams::default())).await?;
        // One that this plugin cannot read does not hide the others.
        let read = |object: DynamicObject| {
            let name = object.name_any();
            let whole =
                serde_json::to_value(object).and_then(serde_json::from_value::<EtcdCluster>);
            whole
                .map_err(|why| eprintln!("{}", unreadable_cluster(&name, &why)))
                .ok()
        };
        Ok(list.items.into_iter().filter_map(read).collect())
    }

    /// The cluster of this name; or the only one there is.
    pub(crate) async fn cluster(&self, name: Option<&str>) -> Result<EtcdCluster, Trouble> {
        let Some(name) = name else {
            return self.only().await;
        };
        match asked(
            &format!("read the etcdcluster {name}"),
            self.api().get_opt(name),
        )
        .await?
        {
            Some(cluster) => Ok(cluster),
            None => {
                // The kind may be unknown as well, which is another matter: listing tells.
                let others = self.clusters(false).await?;
                Err(self.no_such(name, &others))
            }
        }
    }

    async fn only(&self) -> Result<EtcdCluster, Trouble> {
        let mut clusters = self.clusters(false).await?;
        match clusters.len() {
            1 => Ok(clusters.remove(0)),
            0 => Err(Trouble::new(format!(
                "there is no etcdcluster in the namespace {}",
                self.namespace
            ))
            .help("look elsewhere with -n, or everywhere with `kubectl evenkeel status -A`")
            .code(NOT_THERE)),
            _ => Err(
                Trouble::new(format!("which one? There are {}", names(&clusters)))
                    .help("name one of them"),
            ),
        }
    }

    fn no_such(&self, name: &str, others: &[EtcdCluster]) -> Trouble {
        let help = if others.is_empty() {
            "there is none in this namespace: look elsewhere with -n, or everywhere with `kubectl evenkeel status -A`".to_owned()
        } else {
            format!("there are {}", names(others))
        };
        Trouble::new(format!(
            "there is no etcdcluster {name} in the namespace {}",
            self.namespace
        ))
        .help(help)
        .code(NOT_THERE)
    }

    /// The clusters of the namespace.
    pub(crate) fn api(&self) -> Api<EtcdCluster> {
        self.api_in(&self.namespace)
    }

    /// The clusters of a namespace.
    pub(crate) fn api_in(&self, namespace: &str) -> Api<EtcdCluster> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// What Kubernetes answers, within reason.
pub(crate) async fn asked<T>(
    doing: &str,
    question: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Trouble> {
    match tokio::time::timeout(LIMIT, question).await {
        Ok(answer) => answer.map_err(|error| Trouble::kubernetes(doing, &error)),
        Err(_) => Err(Trouble::new(format!("cannot {doing}: Kubernetes does not answer within {} s", LIMIT.as_secs()))
            .help("is the cluster of this context up, and reachable from here? `kubectl cluster-info` asks the same")
            .code(NO_ANSWER)),
    }
}

fn unreadable_cluster(name: &str, why: &serde_json::Error) -> Trouble {
    Trouble::new(format!("the etcdcluster {name} cannot be read: {why}")).help(
        "the plugin and the installed CRD may be of different releases of Evenkeel: bring both up to date",
    )
}

fn names(clusters: &[EtcdCluster]) -> String {
    clusters
        .iter()
        .map(|cluster| cluster.name_any())
        .collect::<Vec<_>>()
        .join(", ")
}

fn unreadable(why: &dyn std::error::Error) -> Trouble {
    Trouble::new(format!("the kubeconfig cannot be used: {why}"))
        .help("`kubectl config view` shows it; --kubeconfig and --context name others")
        .code(NO_ANSWER)
}
