//! What went wrong, as a sentence, with what to do about it and a code for scripts.

use std::fmt;

use kube::core::Status;

use crate::terminal::clean;

/// Something could not be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What, as a sentence.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
    /// The exit code.
    pub(crate) code: u8,
}

/// It could not be done.
pub(crate) const FAILED: u8 = 1;
/// Clients can write, but something is amiss.
pub(crate) const AMISS: u8 = 3;
/// Clients cannot write, or nobody knows.
pub(crate) const NOT_WRITABLE: u8 = 4;
/// There is no such cluster, or Evenkeel is not installed.
pub(crate) const NOT_THERE: u8 = 5;
/// Not allowed.
pub(crate) const FORBIDDEN: u8 = 6;
/// Kubernetes does not answer.
pub(crate) const NO_ANSWER: u8 = 7;

impl Trouble {
    /// Something that could not be done.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            help: None,
            code: FAILED,
        }
    }

    /// With what to do about it.
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// With this exit code.
    pub(crate) fn code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// What Kubernetes said when it was asked to do this.
    pub(crate) fn kubernetes(doing: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::refused(doing, status),
            kube::Error::Auth(why) => Self::new(format!("Kubernetes cannot be asked as you: {why}"))
                .help("log in again, or look at the user in your kubeconfig")
                .code(FORBIDDEN),
            kube::Error::SerdeError(why) => Self::new(format!("cannot {doing}: what Kubernetes has cannot be read: {why}"))
                .help("the plugin and the installed CRD may be of different releases of Evenkeel: bring both up to date"),
            other => Self::new(format!("cannot {doing}: Kubernetes does not answer: {}", plainly(other)))
                .help("is the cluster of this context up, and reachable from here? `kubectl cluster-info` asks the same")
                .code(NO_ANSWER),
        }
    }

    fn refused(doing: &str, status: &Status) -> Self {
        match status.code {
            401 => Self::new("Kubernetes does not know you".to_owned())
                .help("log in again, or look at the user in your kubeconfig")
                .code(FORBIDDEN),
            403 => Self::new(format!("you are not allowed to {doing}: {}", status.message))
                .help(
                    "ask an administrator for the ClusterRole `view` in this namespace, or `edit` to change things: with \
                     Evenkeel's roles installed (deploy/operator/users.yaml) they include its clusters",
                )
                .code(FORBIDDEN),
            404 if !names_an_object(status) => Self::not_installed(),
            _ => Self::new(format!("cannot {doing}: {}", status.message)),
        }
    }

    /// Kubernetes knows no such kind of resource.
    pub(crate) fn not_installed() -> Self {
        Self::new("this Kubernetes knows no EtcdClusters: Evenkeel is not installed in it")
            .help("install it with `make deploy` or its Helm chart; or choose another context with --context")
            .code(NOT_THERE)
    }
}

/// Whether it is one object that was not found, and not the kind.
fn names_an_object(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|details| !details.name.is_empty())
}

/// The innermost reason: the outer ones say where in a library it happened.
fn plainly(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What others have written may hold what a terminal would obey.
        write!(f, "error: {}", clean(&self.what))?;
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
    fn each_trouble_says_what_to_do_and_has_its_code() {
        let told = Trouble::kubernetes("list clusters", &status(404, "404 page not found", ""));
        assert_eq!((told.code, told.help.is_some()), (NOT_THERE, true));
        assert!(told.what.contains("not installed"), "{told}");
        let told = Trouble::kubernetes(
            "list clusters",
            &status(403, "etcdclusters is forbidden", ""),
        );
        assert_eq!(told.code, FORBIDDEN);
        assert!(told.to_string().contains("ClusterRole `view`"), "{told}");
        let told = Trouble::kubernetes("read orders", &status(404, "orders not found", "orders"));
        assert_eq!(
            told.to_string(),
            "error: cannot read orders: orders not found"
        );
        let told = Trouble::kubernetes("read orders", &status(401, "", ""));
        assert_eq!(told.code, FORBIDDEN);
    }
}
