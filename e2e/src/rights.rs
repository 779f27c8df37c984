//! Which rights the operator uses, by the requests that it makes in the stories, and which it is given.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

/// The variable that names the directory where stories note what was used.
pub const NOTED_IN: &str = "EVENKEEL_RIGHTS";

/// The right to do something to a kind of objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The kind, as in `pods/status`, with its group: `poddisruptionbudgets.policy`.
    pub resource: String,
    /// What, as in `list`.
    pub verb: String,
}

impl fmt::Display for Right {
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

/// The right that a request needs, from its verb and its path without names; nothing for what names no resource.
pub fn needed(verb: &str, pattern: &str) -> Option<Right> {
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
    Some(Right {
        resource: with_group(&resource, group),
        verb: verb.to_owned(),
    })
}

/// Notes what was used, where the stories are told to.
pub fn note(requests: &BTreeMap<(String, String), usize>, by: &str) {
    let Ok(dir) = std::env::var(NOTED_IN) else {
        return;
    };
    let rights: BTreeSet<_> = requests
        .keys()
        .filter_map(|(verb, pattern)| needed(verb, pattern))
        .collect();
    let file = Path::new(&dir).join(by);
    let written = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut file| {
            rights
                .iter()
                .try_for_each(|right| writeln!(file, "{right}"))
        });
    if let Err(error) = written {
        println!(
            "what {by} used could not be noted in {}: {error}",
            file.display()
        );
    }
}

/// What all stories have noted.
pub fn noted(dir: &Path) -> std::io::Result<BTreeSet<Right>> {
    let mut all = BTreeSet::new();
    for file in std::fs::read_dir(dir)? {
        for line in std::fs::read_to_string(file?.path())?.lines() {
            if let Some((verb, resource)) = line.split_once(' ') {
                all.insert(Right {
                    resource: resource.to_owned(),
                    verb: verb.to_owned(),
                });
            }
        }
    }
    Ok(all)
}

/// What roles among objects give.
pub fn granted(objects: &[Value]) -> BTreeSet<Right> {
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
                    all.insert(Right {
                        resource: with_group(&resource, &group),
                        verb,
                    });
                }
            }
        }
    }
    all
}
