//! The connection to Kubernetes with the user's kubeconfig, and access to the clusters in it.

use std::ffi::OsString;
use std::process::{Command, Output};
use std::time::Duration;

use evenkeel_api::EtcdCluster;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource, ResourceExt};

use crate::args::{ConnectionArgs, RequestTimeout};
use crate::error::{CliError, EXIT_NOT_FOUND, EXIT_USAGE};
use crate::kubectl_error;
use crate::request_layer::RequestLayer;

/// How long a request to the API server may take, unless the user sets another limit.
const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to Kubernetes.
pub(crate) struct Connection {
    /// The client.
    pub(crate) client: Client,
    /// The namespace of the flags, or else of the context.
    pub(crate) namespace: String,
    /// The namespace of the context, which kubectl uses without `-n`.
    pub(crate) context_namespace: String,
    args: ConnectionArgs,
}

impl Connection {
    /// Creates the client from the kubeconfig and the flags.
    pub(crate) async fn open(args: &ConnectionArgs) -> Result<Self, CliError> {
        let mut config = read_config(args).await?;
        let timeout = match args.request_timeout {
            None => Some(DEFAULT_REQUEST_TIMEOUT),
            Some(RequestTimeout::After(timeout)) => Some(timeout),
            Some(RequestTimeout::None) => None,
        };
        // The timeout of the layer includes the connection.
        config.connect_timeout = None;
        // The API server's proxy responds with 503 for a member that does not listen. The client would retry that for
        // minutes.
        config.default_retry = false;
        if let Some(user) = &args.impersonated_user {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = Some(args.impersonated_groups.clone());
        }
        let context_namespace = config.default_namespace.clone();
        let namespace = args.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| context_namespace.clone());
        let layer = RequestLayer {
            timeout,
            prints: args.prints_requests(),
        };
        let client = ClientBuilder::try_from(config)
            .map_err(|error| CliError::kubernetes("connect", &error))?
            .with_layer(&layer)
            .build();
        Ok(Self {
            client,
            namespace,
            context_namespace,
            args: args.clone(),
        })
    }

    /// Returns a connection that uses this client.
    #[cfg(test)]
    pub(crate) fn for_tests(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            context_namespace: namespace.to_owned(),
            args: ConnectionArgs::default(),
        }
    }

    /// Returns a kubectl command with the same flags and namespace.
    #[expect(
        clippy::disallowed_methods,
        reason = "the plugin replaces itself by kubectl, or returns its output"
    )]
    pub(crate) fn kubectl(&self) -> Command {
        let mut kubectl = Command::new("kubectl");
        kubectl.args(kubectl_flags(&self.args));
        kubectl.args(["--namespace", &self.namespace]);
        kubectl
    }

    /// Runs a command of [`Self::kubectl`] and returns its output. The lines that kubectl logs because of `-v` are printed, and
    /// are not part of the output.
    pub(crate) fn output_of(&self, kubectl: &mut Command) -> std::io::Result<Output> {
        let mut output = kubectl.output()?;
        if self.args.verbosity.is_some() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let (log, rest) = kubectl_error::split_log(&stderr);
            eprint!("{log}");
            output.stderr = rest.into_bytes();
        }
        Ok(output)
    }

    /// Lists the clusters of the namespace.
    pub(crate) async fn clusters(&self) -> Result<Vec<EtcdCluster>, CliError> {
        let kind = ApiResource::erase::<EtcdCluster>(&());
        let api = Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        self.list_clusters(api).await
    }

    /// Lists the clusters of all namespaces.
    pub(crate) async fn clusters_in_all_namespaces(&self) -> Result<Vec<EtcdCluster>, CliError> {
        let kind = ApiResource::erase::<EtcdCluster>(&());
        self.list_clusters(Api::all_with(self.client.clone(), &kind))
            .await
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
                if others.is_empty() {
                    self.require_namespace().await?;
                }
                Err(self.not_found(name, &others))
            }
        }
    }

    async fn only_cluster(&self) -> Result<EtcdCluster, CliError> {
        let mut clusters = self.clusters().await?;
        if clusters.is_empty() {
            self.require_namespace().await?;
        }
        match clusters.len() {
            1 => Ok(clusters.remove(0)),
            0 => Err(CliError::new(format!(
                "no EtcdCluster found in namespace {}",
                self.namespace
            ))
            .help("choose a namespace with -n, or list all clusters with `kubectl evenkeel status -A`")
            .exit_code(EXIT_NOT_FOUND)),
            _ => Err(CliError::new(format!(
                "several EtcdClusters in namespace {}: {}; specify one",
                self.namespace,
                names(&clusters)
            ))
            .exit_code(EXIT_USAGE)),
        }
    }

    /// Returns an error if the namespace does not exist. A user who may not read it gets none.
    async fn require_namespace(&self) -> Result<(), CliError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.get_opt(&self.namespace).await {
            Ok(None) => Err(missing_namespace(&self.namespace)),
            Ok(Some(_)) | Err(_) => Ok(()),
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

    /// Lists clusters. Reports clusters that this release of the plugin cannot deserialize, and returns the others.
    async fn list_clusters(&self, api: Api<DynamicObject>) -> Result<Vec<EtcdCluster>, CliError> {
        let list = match request("list EtcdClusters", api.list(&ListParams::default())).await {
            Ok(list) => list,
            Err(error) if error == CliError::not_installed() => {
                return Err(self.other_versions().await.unwrap_or(error));
            }
            Err(error) => return Err(error),
        };
        let deserialize = |object: DynamicObject| {
            let name = object.name_any();
            let cluster =
                serde_json::to_value(object).and_then(serde_json::from_value::<EtcdCluster>);
            cluster
                .map_err(|error| eprintln!("{}", invalid_cluster(&name, &error)))
                .ok()
        };
        Ok(list.items.into_iter().filter_map(deserialize).collect())
    }

    /// Returns the error for a CRD that serves only versions that this release of the plugin does not know.
    pub(crate) async fn other_versions(&self) -> Option<CliError> {
        let groups = self.client.list_api_groups().await.ok()?.groups;
        let group = groups
            .into_iter()
            .find(|group| group.name == EtcdCluster::group(&()))?;
        let served: Vec<_> = group
            .versions
            .iter()
            .map(|version| version.group_version.as_str())
            .collect();
        Some(not_served(&served))
    }
}

/// Waits for a request. `action` completes "cannot …". The client limits how long a request takes.
pub(crate) async fn request<T>(
    action: &str,
    response: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CliError> {
    response
        .await
        .map_err(|error| CliError::kubernetes(action, &error))
}

/// Returns the names of clusters, separated by commas.
pub(crate) fn names(clusters: &[EtcdCluster]) -> String {
    clusters
        .iter()
        .map(|cluster| cluster.name_any())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Reads the kubeconfig that the flags select, or the configuration of the pod that the plugin runs in.
async fn read_config(args: &ConnectionArgs) -> Result<Config, CliError> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        cluster: args.kube_cluster.clone(),
        user: args.kube_user.clone(),
    };
    let needs_kubeconfig =
        args.context.is_some() || args.kube_cluster.is_some() || args.kube_user.is_some();
    let kubeconfig = match &args.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None if needs_kubeconfig => Kubeconfig::read(),
        None => {
            return Config::infer().await.map_err(|error| {
                CliError::new(format!("cannot find a Kubernetes configuration: {error}"))
                    .help("set --kubeconfig or the environment variable KUBECONFIG")
            });
        }
    };
    let kubeconfig = kubeconfig.map_err(|error| kubeconfig_error(&error))?;
    if let Some(user) = &args.kube_user
        && !kubeconfig.auth_infos.iter().any(|one| one.name == *user)
    {
        // The client would send requests without credentials.
        return Err(unknown_user(user));
    }
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| kubeconfig_error(&error))
}

/// Returns kubectl's flags for the same connection.
fn kubectl_flags(args: &ConnectionArgs) -> Vec<OsString> {
    // Destructured, so that no flag of a connection is forgotten.
    let ConnectionArgs {
        kubeconfig,
        context,
        kube_cluster,
        kube_user,
        impersonated_user,
        impersonated_groups,
        request_timeout,
        verbosity,
        namespace: _,
        color: _,
    } = args;
    let mut flags = Vec::new();
    let mut push = |flag: &str, value: &str| flags.push(format!("{flag}={value}").into());
    let texts = [
        ("--context", context),
        ("--cluster", kube_cluster),
        ("--user", kube_user),
        ("--as", impersonated_user),
    ];
    for (flag, value) in texts {
        if let Some(value) = value {
            push(flag, value);
        }
    }
    for group in impersonated_groups {
        push("--as-group", group);
    }
    match request_timeout {
        None => {}
        Some(RequestTimeout::None) => push("--request-timeout", "0"),
        Some(RequestTimeout::After(timeout)) => {
            push("--request-timeout", &format!("{}ms", timeout.as_millis()));
        }
    }
    if let Some(level) = verbosity {
        push("--v", &level.to_string());
    }
    if let Some(file) = kubeconfig {
        flags.push("--kubeconfig".into());
        flags.push(file.into());
    }
    flags
}

fn not_served(served: &[&str]) -> CliError {
    CliError::new(format!(
        "the Kubernetes API does not serve EtcdClusters as {}, but as {}",
        EtcdCluster::api_version(&()),
        served.join(", ")
    ))
    .help("the installed CRD is of another release than the plugin: update the older of both")
    .exit_code(EXIT_NOT_FOUND)
}

fn missing_namespace(namespace: &str) -> CliError {
    CliError::new(format!("namespace {namespace} does not exist"))
        .help("choose another with -n, or list all clusters with `kubectl evenkeel status -A`")
        .exit_code(EXIT_NOT_FOUND)
}

fn unknown_user(user: &str) -> CliError {
    CliError::new(format!("cannot use the kubeconfig: it has no user {user}"))
        .help("`kubectl config get-users` lists them. A flag of etcdctl goes behind `--`: `kubectl evenkeel etcdctl orders -- --user root get a`")
}

fn invalid_cluster(name: &str, error: &serde_json::Error) -> CliError {
    CliError::other_release(format!("cannot parse EtcdCluster {name}: {error}"))
}

fn kubeconfig_error(error: &dyn std::error::Error) -> CliError {
    CliError::new(format!("cannot use the kubeconfig: {error}"))
        .help("`kubectl config view` shows it; --kubeconfig and --context select another")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_the_flags_of_the_connection() {
        let args = ConnectionArgs {
            kubeconfig: Some("/home/jane/config".into()),
            context: Some("prod".to_owned()),
            kube_cluster: Some("east".to_owned()),
            kube_user: Some("jane".to_owned()),
            impersonated_user: Some("bob".to_owned()),
            impersonated_groups: vec!["dev".to_owned(), "ops".to_owned()],
            request_timeout: Some(RequestTimeout::After(Duration::from_millis(2500))),
            verbosity: Some(6),
            ..ConnectionArgs::default()
        };
        assert_eq!(
            kubectl_flags(&args),
            [
                "--context=prod",
                "--cluster=east",
                "--user=jane",
                "--as=bob",
                "--as-group=dev",
                "--as-group=ops",
                "--request-timeout=2500ms",
                "--v=6",
                "--kubeconfig",
                "/home/jane/config",
            ]
        );
        assert!(kubectl_flags(&ConnectionArgs::default()).is_empty());
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_does_not_mean_that_the_api_does_not_respond() {
        let args = ConnectionArgs {
            kubeconfig: Some("/nowhere/config".into()),
            ..ConnectionArgs::default()
        };
        let error = Connection::open(&args).await.err().unwrap();
        assert_eq!(error.exit_code, crate::error::EXIT_FAILED, "{error}");
        assert!(error.message.contains("/nowhere/config"), "{error}");
        assert_eq!(
            unknown_user("bob").exit_code,
            crate::error::EXIT_FAILED,
            "the kubeconfig lacks the user"
        );
    }

    /// Returns a connection to a Kubernetes API that answers every request for a namespace like this.
    fn connection(code: u16) -> Connection {
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| async move {
            let body = serde_json::json!({ "kind": "Status", "status": "Failure", "message": "no", "code": code,
                "reason": if code == 404 { "NotFound" } else { "Forbidden" } });
            let response = http::Response::builder().status(code);
            response.body(kube::client::Body::from(body.to_string().into_bytes()))
        });
        Connection {
            client: Client::new(service, "default"),
            namespace: "nons".to_owned(),
            context_namespace: "default".to_owned(),
            args: ConnectionArgs::default(),
        }
    }

    #[tokio::test]
    async fn a_namespace_that_does_not_exist_is_named_if_it_may_be_read() {
        let error = connection(404).require_namespace().await.unwrap_err();
        assert_eq!(error.message, "namespace nons does not exist");
        assert_eq!(error.exit_code, EXIT_NOT_FOUND);
        assert_eq!(connection(403).require_namespace().await, Ok(()));
    }

    #[test]
    fn a_crd_of_another_version_is_not_called_missing() {
        let error = not_served(&["evenkeel.dev/v1"]);
        assert_eq!(
            error.message,
            "the Kubernetes API does not serve EtcdClusters as evenkeel.dev/v1alpha1, but as evenkeel.dev/v1"
        );
        assert_eq!(error.exit_code, EXIT_NOT_FOUND);
    }
}
