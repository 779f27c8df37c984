//! The permissions that the operator uses, from its requests in the stories, and those that it is granted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

/// The variable that names the directory in which stories record the permissions that the operator used.
pub const RECORD_DIR_VARIABLE: &str = "EVENKEEL_PERMISSIONS";

/// The permission for a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The resource, as in `pods/status`, with its group: `poddisruptionbudgets.policy`.
    pub resource: String,
    /// The verb, as in `list`.
    pub verb: String,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

fn with_group(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

/// Returns the permission that a request needs, from its verb and its path pattern; `None` if the path names no resource.
pub fn required(verb: &str, pattern: &str) -> Option<Permission> {
    let (group, rest) = match pattern.strip_prefix("/apis/") {
        Some(rest) => {
            let mut words = rest.splitn(3, '/');
            let group = words.next()?;
            words.next()?;
            (group, words.next()?)
        }
        None => ("", pattern.strip_prefix("/api/v1/")?),
    };
    let rest = rest.strip_prefix("namespaces/{namespace}/").unwrap_or(rest);
    let mut words = rest.split('/');
    let (resource, name, sub) = (words.next()?, words.next(), words.next());
    let verb = match (verb, name) {
        ("GET" | "HEAD", Some(_)) => "get",
        ("GET" | "HEAD", None) => "list",
        ("WATCH", _) => "watch",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => return None,
    };
    let resource = sub.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
    Some(Permission {
        resource: with_group(&resource, group),
        verb: verb.to_owned(),
    })
}

/// Records the permissions that requests used, if the variable is set.
pub fn record(requests: &BTreeMap<(String, String), usize>, process: &str) {
    let Ok(dir) = std::env::var(RECORD_DIR_VARIABLE) else {
        return;
    };
    let permissions: BTreeSet<_> = requests
        .keys()
        .filter_map(|(verb, pattern)| required(verb, pattern))
        .collect();
    let file = Path::new(&dir).join(process);
    let written = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut file| {
            permissions
                .iter()
                .try_for_each(|permission| writeln!(file, "{permission}"))
        });
    if let Err(error) = written {
        println!(
            "failed to record the permissions of {process} in {}: {error}",
            file.display()
        );
    }
}

/// Reads the recorded permissions of all stories.
pub fn recorded(dir: &Path) -> std::io::Result<BTreeSet<Permission>> {
    let mut all = BTreeSet::new();
    for file in std::fs::read_dir(dir)? {
        for line in std::fs::read_to_string(file?.path())?.lines() {
            if let Some((verb, resource)) = line.split_once(' ') {
                all.insert(Permission {
                    resource: resource.to_owned(),
                    verb: verb.to_owned(),
                });
            }
        }
    }
    Ok(all)
}

/// Returns the permissions that the roles among these objects grant.
pub fn granted(objects: &[Value]) -> BTreeSet<Permission> {
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|text| Some(text.as_str()?.to_owned()))
            .collect()
    };
    let roles = objects
        .iter()
        .filter(|object| matches!(object["kind"].as_str(), Some("Role" | "ClusterRole")));
    let mut all = BTreeSet::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().into_iter().flatten()) {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    all.insert(Permission {
                        resource: with_group(&resource, &group),
                        verb,
                    });
                }
            }
        }
    }
    all
}
