//! The connection to Kubernetes with the user's kubeconfig, and access to the clusters in it.

use std::process::Command;
use std::time::Duration;

use evenkeel_api::EtcdCluster;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};

use crate::args::ConnectionArgs;
use crate::error::{CliError, EXIT_NOT_FOUND, EXIT_UNREACHABLE};

/// How long a request to the API server may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to Kubernetes.
pub(crate) struct Connection {
    /// The client.
    pub(crate) client: Client,
    /// The namespace of the flags, or else of the context.
    pub(crate) namespace: String,
    args: ConnectionArgs,
}

impl Connection {
    /// Creates the client from the kubeconfig and the flags.
    pub(crate) async fn open(args: &ConnectionArgs) -> Result<Self, CliError> {
        let options = KubeConfigOptions {
            context: args.context.clone(),
            ..KubeConfigOptions::default()
        };
        let mut config = match &args.kubeconfig {
            Some(file) => {
                let kubeconfig =
                    Kubeconfig::read_from(file).map_err(|error| kubeconfig_error(&error))?;
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(|error| kubeconfig_error(&error))?
            }
            None if args.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(|error| kubeconfig_error(&error))?,
            None => Config::infer().await.map_err(|error| {
                CliError::new(format!("cannot find a Kubernetes configuration: {error}"))
                    .help("set --kubeconfig or the environment variable KUBECONFIG")
                    .exit_code(EXIT_UNREACHABLE)
            })?,
        };
        config.connect_timeout = Some(REQUEST_TIMEOUT);
        // The API server's proxy responds with 503 for a member that does not listen. The client would retry that for
        // minutes.
        config.default_retry = false;
        let namespace = args
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).map_err(|error| CliError::kubernetes("connect", &error))?;
        Ok(Self {
            client,
            namespace,
            args: args.clone(),
        })
    }

    /// Returns a kubectl command for the same kubeconfig, context and namespace.
    #[expect(
        clippy::disallowed_methods,
        reason = "the plugin replaces itself by kubectl, or returns its output"
    )]
    pub(crate) fn kubectl(&self) -> Command {
        let mut kubectl = Command::new("kubectl");
        if let Some(file) = &self.args.kubeconfig {
            kubectl.arg("--kubeconfig").arg(file);
        }
        if let Some(context) = &self.args.context {
            kubectl.args(["--context", context]);
        }
        kubectl.args(["--namespace", &self.namespace]);
        kubectl
    }

    /// Lists the clusters of the namespace.
    pub(crate) async fn clusters(&self) -> Result<Vec<EtcdCluster>, CliError> {
        let kind = ApiResource::erase::<EtcdCluster>(&());
        list_clusters(Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &kind,
        ))
        .await
    }

    /// Lists the clusters of all namespaces.
    pub(crate) async fn clusters_in_all_namespaces(&self) -> Result<Vec<EtcdCluster>, CliError> {
        let kind = ApiResource::erase::<EtcdCluster>(&());
        list_clusters(Api::all_with(self.client.clone(), &kind)).await
    }

    /// Reads the cluster of this name, or the only one of the namespace.
    pub(crate) async fn cluster(&self, name: Option<&str>) -> Result<EtcdCluster, CliError> {
        let Some(name) = name else {
            return self.only_cluster().await;
        };
        let action = format!("read EtcdCluster {name}");
        match request(&action, self.api().get_opt(name)).await? {
            Some(cluster) => Ok(cluster),
            None => {
                // A 404 can also mean that the kind is unknown. The list request reports that.
                let others = self.clusters().await?;
                Err(self.not_found(name, &others))
            }
        }
    }

    async fn only_cluster(&self) -> Result<EtcdCluster, CliError> {
        let mut clusters = self.clusters().await?;
        match clusters.len() {
            1 => Ok(clusters.remove(0)),
            0 => Err(CliError::new(format!(
                "no EtcdCluster found in namespace {}",
                self.namespace
            ))
            .help("choose a namespace with -n, or list all clusters with `kubectl evenkeel status -A`")
            .exit_code(EXIT_NOT_FOUND)),
            _ => Err(CliError::new(format!(
                "namespace {} has several EtcdClusters: {}",
                self.namespace,
                names(&clusters)
            ))
            .help("specify one by name")),
        }
    }

    fn not_found(&self, name: &str, others: &[EtcdCluster]) -> CliError {
        let help = if others.is_empty() {
            "this namespace has none: choose another with -n, or list all clusters with `kubectl evenkeel status -A`".to_owned()
        } else {
            format!("existing clusters: {}", names(others))
        };
        CliError::new(format!(
            "EtcdCluster {name} not found in namespace {}",
            self.namespace
        ))
        .help(help)
        .exit_code(EXIT_NOT_FOUND)
    }

    /// Returns the API of the namespace's clusters.
    pub(crate) fn api(&self) -> Api<EtcdCluster> {
        self.api_in(&self.namespace)
    }

    /// Returns the API of the clusters in a namespace.
    pub(crate) fn api_in(&self, namespace: &str) -> Api<EtcdCluster> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Lists clusters. Reports clusters that this release of the plugin cannot deserialize, and returns the others.
async fn list_clusters(api: Api<DynamicObject>) -> Result<Vec<EtcdCluster>, CliError> {
    let list = request("list EtcdClusters", api.list(&ListParams::default())).await?;
    let deserialize = |object: DynamicObject| {
        let name = object.name_any();
        let cluster = serde_json::to_value(object).and_then(serde_json::from_value::<EtcdCluster>);
        cluster
            .map_err(|error| eprintln!("{}", invalid_cluster(&name, &error)))
            .ok()
    };
    Ok(list.items.into_iter().filter_map(deserialize).collect())
}

/// Waits for a request, up to [`REQUEST_TIMEOUT`]. `action` completes "cannot …".
pub(crate) async fn request<T>(
    action: &str,
    response: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CliError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, response).await {
        Ok(result) => result.map_err(|error| CliError::kubernetes(action, &error)),
        Err(_) => Err(CliError::new(format!(
            "cannot {action}: the Kubernetes API did not respond within {} s",
            REQUEST_TIMEOUT.as_secs()
        ))
        .help("check that the Kubernetes cluster of this context is running and reachable: `kubectl cluster-info`")
        .exit_code(EXIT_UNREACHABLE)),
    }
}

fn invalid_cluster(name: &str, error: &serde_json::Error) -> CliError {
    CliError::new(format!("cannot parse EtcdCluster {name}: {error}"))
        .help("the plugin and the installed CRD may be of different releases: update both")
}

fn names(clusters: &[EtcdCluster]) -> String {
    clusters
        .iter()
        .map(|cluster| cluster.name_any())
        .collect::<Vec<_>>()
        .join(", ")
}

fn kubeconfig_error(error: &dyn std::error::Error) -> CliError {
    CliError::new(format!("cannot use the kubeconfig: {error}"))
        .help("`kubectl config view` shows it; --kubeconfig and --context select another")
        .exit_code(EXIT_UNREACHABLE)
}
