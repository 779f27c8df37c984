//! The error of a command: a message, a hint, and the exit code.

use std::fmt;

use kube::core::Status;

use crate::permission::MissingPermission;
use crate::terminal::{Terminal, clean};

/// A command that failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CliError {
    /// What failed.
    pub(crate) message: String,
    /// What the user can do.
    pub(crate) help: Option<String>,
    /// The exit code of the process.
    pub(crate) exit_code: u8,
}

/// Exit code: the command failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Exit code: invalid arguments.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit code of `status`: clients can write, but the cluster is degraded or no operator is running.
pub(crate) const EXIT_DEGRADED: u8 = 3;
/// Exit code of `status`: clients cannot write, or this is unknown.
pub(crate) const EXIT_UNAVAILABLE: u8 = 4;
/// Exit code: the cluster, store, backup or restore does not exist, or Evenkeel is not installed.
pub(crate) const EXIT_NOT_FOUND: u8 = 5;
/// Exit code: permission denied.
pub(crate) const EXIT_FORBIDDEN: u8 = 6;
/// Exit code: the Kubernetes API does not respond.
pub(crate) const EXIT_UNREACHABLE: u8 = 7;

impl CliError {
    /// Creates an error with exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            exit_code: EXIT_FAILED,
        }
    }

    /// Adds what the user can do.
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// Sets the exit code.
    pub(crate) fn exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }

    /// Prefixes the message with the name of the object that it is about.
    pub(crate) fn about(self, object: &str) -> Self {
        Self {
            message: format!("{object}: {}", self.message),
            ..self
        }
    }

    /// Adds the namespace to the commands in the message and in the help.
    pub(crate) fn with_commands(self, terminal: Terminal) -> Self {
        Self {
            message: terminal.commands(&self.message),
            help: self.help.map(|help| terminal.commands(&help)),
            ..self
        }
    }

    /// Converts the error of a request. `action` completes "cannot …".
    pub(crate) fn kubernetes(action: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(action, status),
            kube::Error::Auth(error) => Self {
                message: format!("failed to authenticate: {error}"),
                ..Self::unauthorized()
            },
            kube::Error::SerdeError(error) => Self::other_release(format!(
                "cannot {action}: cannot parse the response: {error}"
            )),
            other => Self::unreachable(action, &root_cause(other)),
        }
    }

    fn from_status(action: &str, status: &Status) -> Self {
        match status.code {
            401 => Self::unauthorized(),
            403 => match MissingPermission::parse(&status.message) {
                Some(permission) => Self::forbidden(action, &permission),
                // Admission also rejects with this code, for example because of a ResourceQuota.
                None => Self::new(format!("cannot {action}: forbidden: {}", status.message))
                    .exit_code(EXIT_FORBIDDEN),
            },
            404 if !names_an_object(status) => Self::not_installed(),
            _ => Self::new(format!("cannot {action}: {}", status.message)),
        }
    }

    /// The error for a user whom the Kubernetes API does not know. Names no user: there is none.
    pub(crate) fn unauthorized() -> Self {
        Self::new("the Kubernetes API rejected your credentials")
            .help("log in again, or check the user in your kubeconfig")
            .exit_code(EXIT_FORBIDDEN)
    }

    /// The error for a missing permission. `action` completes "cannot …".
    pub(crate) fn forbidden(action: &str, permission: &MissingPermission) -> Self {
        Self::new(format!("cannot {action}: {permission}"))
            .help(permission.help())
            .exit_code(EXIT_FORBIDDEN)
    }

    /// The error for an API server that does not respond. `action` completes "cannot …".
    pub(crate) fn unreachable(action: &str, reason: &str) -> Self {
        Self::new(format!("cannot {action}: the Kubernetes API does not respond: {reason}"))
            .help("check that the Kubernetes cluster of this context is running and reachable: `kubectl cluster-info`")
            .exit_code(EXIT_UNREACHABLE)
    }

    /// The error for a Kubernetes cluster without Evenkeel's CustomResourceDefinitions.
    pub(crate) fn not_installed() -> Self {
        Self::new("Evenkeel is not installed: the Kubernetes API does not know the kind EtcdCluster")
            .help("install it with `make deploy` or its Helm chart, or choose another context with --context")
            .exit_code(EXIT_NOT_FOUND)
    }

    /// The error for a response that this release of the plugin does not understand.
    pub(crate) fn other_release(message: impl Into<String>) -> Self {
        Self::new(message).help(
            "the plugin and the installed CRD may be of different releases: `kubectl evenkeel version` compares them",
        )
    }
}

/// Returns whether a 404 is about one object, and not about its kind.
fn names_an_object(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|details| !details.name.is_empty())
}

/// Returns the message of the innermost error. The outer ones only name the layers of libraries.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Texts from the API server may contain terminal escape sequences.
        write!(f, "error: {}", clean(&self.message))?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {}", clean(help)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str, name: &str) -> kube::Error {
        let details =
            serde_json::json!({ "name": name, "group": "", "kind": "", "uid": "", "causes": [] });
        let status = serde_json::json!({ "code": code, "message": message, "details": details });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn errors_of_kubernetes_have_help_and_an_exit_code() {
        let error = CliError::kubernetes("list clusters", &status(404, "404 page not found", ""));
        assert_eq!(
            (error.exit_code, error.help.is_some()),
            (EXIT_NOT_FOUND, true)
        );
        assert!(error.message.contains("not installed"), "{error}");
        let error = CliError::kubernetes("read orders", &status(404, "orders not found", "orders"));
        assert_eq!(
            error.to_string(),
            "error: cannot read orders: orders not found"
        );
        let error = CliError::kubernetes("read orders", &status(401, "", ""));
        assert_eq!(error.exit_code, EXIT_FORBIDDEN);
    }

    #[test]
    fn a_missing_permission_is_named() {
        let message = "etcdclusters.evenkeel.dev \"orders\" is forbidden: User \"jane\" cannot patch resource \
            \"etcdclusters\" in API group \"evenkeel.dev\" in the namespace \"rv-a\"";
        let error = CliError::kubernetes("pause EtcdCluster orders", &status(403, message, ""));
        assert_eq!(error.exit_code, EXIT_FORBIDDEN);
        let text = error.to_string();
        assert!(
            text.starts_with(
                "error: cannot pause EtcdCluster orders: user jane needs patch on etcdclusters in namespace rv-a"
            ),
            "{text}"
        );
        assert!(
            text.contains("ask for the ClusterRole edit in namespace rv-a"),
            "{text}"
        );
    }

    #[test]
    fn a_rejection_by_admission_is_not_called_a_missing_permission() {
        let message = "pods \"orders-x\" is forbidden: exceeded quota: small";
        let error = CliError::kubernetes("create Pod orders-x", &status(403, message, ""));
        assert_eq!(
            error.to_string(),
            format!("error: cannot create Pod orders-x: forbidden: {message}")
        );
        assert_eq!(error.exit_code, EXIT_FORBIDDEN);
    }

    #[test]
    fn an_unknown_format_points_to_the_versions() {
        let source = serde_json::from_str::<u8>("{}").unwrap_err();
        let error =
            CliError::kubernetes("read EtcdCluster orders", &kube::Error::SerdeError(source));
        assert_eq!(error.exit_code, EXIT_FAILED);
        assert!(
            error.to_string().contains("`kubectl evenkeel version`"),
            "{error}"
        );
    }

    #[test]
    fn commands_of_an_error_name_another_namespace_than_the_contexts() {
        let error = || CliError::new("no pods").help("`kubectl evenkeel why` shows the reason");
        let terminal = Terminal::new(crate::args::ColorMode::Never);
        let help = |namespace: &str| {
            let terminal = terminal.with_namespaces("default", namespace);
            error().with_commands(terminal).help.unwrap()
        };
        assert_eq!(help("t2"), "`kubectl evenkeel why -n t2` shows the reason");
        assert_eq!(help("default"), "`kubectl evenkeel why` shows the reason");
    }

    #[test]
    fn a_request_that_timed_out_means_that_the_api_does_not_respond() {
        let timed_out =
            crate::request_layer::RequestTimedOut(std::time::Duration::from_millis(2500));
        let error = CliError::kubernetes("list clusters", &kube::Error::Service(timed_out.into()));
        assert_eq!(error.exit_code, EXIT_UNREACHABLE);
        assert_eq!(
            error.message,
            "cannot list clusters: the Kubernetes API does not respond: no response within 2.5s"
        );
    }
}
