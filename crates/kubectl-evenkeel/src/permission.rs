//! Permissions that the user lacks: parsed from the API server's 403, or asked for with a SelfSubjectAccessReview.

use std::fmt;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use crate::connection::{Connection, request};
use crate::error::CliError;

/// The resources that the ClusterRole `view` of Kubernetes lets users read, among those that the plugin reads.
const VIEW_RESOURCES: [&str; 9] = [
    "configmaps",
    "deployments",
    "events",
    "persistentvolumeclaims",
    "poddisruptionbudgets",
    "pods",
    "pods/log",
    "services",
    "replicasets",
];
/// The resources that only the ClusterRole `edit` of Kubernetes includes.
const EDIT_RESOURCES: [&str; 3] = ["pods/exec", "pods/proxy", "secrets"];

/// The resources of Evenkeel.
const OWN_RESOURCES: [&str; 5] = [
    "etcdclusters",
    "backups",
    "backupschedules",
    "backupstores",
    "restores",
];

/// A permission that a request needs and the user lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingPermission {
    /// The name of the user. Empty if unknown.
    pub(crate) user: String,
    /// The verb, such as `patch`.
    pub(crate) verb: String,
    /// The resource, such as `etcdclusters` or `pods/exec`.
    pub(crate) resource: String,
    /// The namespace. `None` for the whole Kubernetes cluster.
    pub(crate) namespace: Option<String>,
}

impl MissingPermission {
    /// Parses the message of a 403, or an output of kubectl that contains it. Returns `None` if the authorizer did not
    /// write it.
    pub(crate) fn parse(message: &str) -> Option<Self> {
        let (before, after) = message.split_once("\" cannot ")?;
        let (_, user) = before.rsplit_once("User \"")?;
        let (verb, after) = after.split_once(' ')?;
        let (resource, after) = quoted_after(after, "resource ")?;
        let namespace = quoted_after(after, "in the namespace ").map(|(name, _)| name.to_owned());
        Some(Self {
            user: user.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace,
        })
    }

    /// Returns what the user can do.
    pub(crate) fn help(&self) -> String {
        let Some(role) = self.role() else {
            return "ask an administrator for this permission".to_owned();
        };
        let place = match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in all namespaces (a ClusterRoleBinding)".to_owned(),
        };
        let included = match self.own_resource() {
            None => String::new(),
            Some(own) => {
                let own = if own == "etcdclusters" {
                    "EtcdClusters"
                } else {
                    own
                };
                format!(
                    ". It includes {own} if deploy/operator/users.yaml or the Helm chart is applied"
                )
            }
        };
        let or_namespace = if self.namespace.is_none() && is_read(&self.verb) {
            ", or choose a namespace with -n"
        } else {
            ""
        };
        format!("ask for the ClusterRole {role} {place}{or_namespace}{included}")
    }

    /// Returns the resource without its subresource, if it is one of Evenkeel.
    fn own_resource(&self) -> Option<&str> {
        let resource = self.resource.split('/').next()?;
        OWN_RESOURCES.contains(&resource).then_some(resource)
    }

    /// Returns the least of the ClusterRoles of Kubernetes that contains the permission.
    fn role(&self) -> Option<&'static str> {
        let resource = self.resource.as_str();
        let is_own = self.own_resource().is_some();
        if EDIT_RESOURCES.contains(&resource) || (is_own && !is_read(&self.verb)) {
            Some("edit")
        } else if is_read(&self.verb) && (is_own || VIEW_RESOURCES.contains(&resource)) {
            Some("view")
        } else {
            None
        }
    }
}

fn is_read(verb: &str) -> bool {
    ["get", "list", "watch"].contains(&verb)
}

/// Returns the quoted text after a word, and the rest.
fn quoted_after<'t>(text: &'t str, word: &str) -> Option<(&'t str, &'t str)> {
    let (_, after) = text.split_once(word)?;
    after.strip_prefix('"')?.split_once('"')
}

impl fmt::Display for MissingPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.user.is_empty() {
            write!(f, "user {} ", self.user)?;
        }
        write!(f, "needs {} on {}", self.verb, self.resource)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => f.write_str(" at cluster scope"),
        }
    }
}

/// Returns an error unless the user may execute commands in the pods of the namespace. `action` completes "cannot …".
pub(crate) async fn require_exec(connection: &Connection, action: &str) -> Result<(), CliError> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some("create".to_owned()),
                resource: Some("pods".to_owned()),
                subresource: Some("exec".to_owned()),
                namespace: Some(connection.namespace.clone()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(connection.client.clone());
    let answer = request(action, api.create(&PostParams::default(), &review)).await;
    // Without an answer, kubectl's own error tells more.
    let is_denied = answer
        .ok()
        .and_then(|review| review.status)
        .is_some_and(|status| !status.allowed);
    if !is_denied {
        return Ok(());
    }
    let permission = MissingPermission {
        user: String::new(),
        verb: "create".to_owned(),
        resource: "pods/exec".to_owned(),
        namespace: Some(connection.namespace.clone()),
    };
    Err(CliError::forbidden(action, &permission))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(message: &str) -> MissingPermission {
        MissingPermission::parse(message).unwrap()
    }

    #[test]
    fn verb_resource_and_namespace_come_from_the_authorizers_message() {
        let exec = parse(
            "Error from server (Forbidden): pods \"orders-x\" is forbidden: User \"jane\" cannot create resource \
             \"pods/exec\" in API group \"\" in the namespace \"rv-a\"",
        );
        assert_eq!(
            exec.to_string(),
            "user jane needs create on pods/exec in namespace rv-a"
        );
        assert_eq!(
            exec.help(),
            "ask for the ClusterRole edit in namespace rv-a"
        );
        let list = parse(
            "etcdclusters.evenkeel.dev is forbidden: User \"jane\" cannot list resource \"etcdclusters\" in API group \
             \"evenkeel.dev\" at the cluster scope",
        );
        assert_eq!(
            list.to_string(),
            "user jane needs list on etcdclusters at cluster scope"
        );
        assert!(
            list.help()
                .starts_with("ask for the ClusterRole view in all namespaces"),
            "{}",
            list.help()
        );
        assert!(
            list.help().contains("choose a namespace with -n"),
            "{}",
            list.help()
        );
    }

    #[test]
    fn backups_are_included_in_the_roles_for_users() {
        let help = |verb: &str, resource: &str| {
            parse(&format!(
                "x is forbidden: User \"jane\" cannot {verb} resource \"{resource}\" in API group \"evenkeel.dev\" in the \
                 namespace \"shop\""
            ))
            .help()
        };
        assert_eq!(
            help("create", "backups"),
            "ask for the ClusterRole edit in namespace shop. It includes backups if deploy/operator/users.yaml or the Helm \
             chart is applied"
        );
        assert!(
            help("list", "backupstores")
                .starts_with("ask for the ClusterRole view in namespace shop")
        );
    }

    #[test]
    fn a_permission_outside_the_standard_roles_names_no_role() {
        let impersonate = parse(
            "users \"bob\" is forbidden: User \"jane\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
        );
        assert_eq!(
            impersonate.help(),
            "ask an administrator for this permission"
        );
    }

    #[test]
    fn messages_of_admission_are_not_parsed() {
        for message in [
            "pods \"a\" is forbidden: exceeded quota: small",
            "admission webhook \"x\" denied the request: User \"jane\" cannot",
        ] {
            assert_eq!(MissingPermission::parse(message), None, "{message}");
        }
    }
}
