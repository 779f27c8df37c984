//! What may be typed next. kubectl asks this of a program `kubectl_complete-evenkeel`, in the way of the library that it is
//! made with: a candidate a line, and a number at the end that says whether files are meant, too.

use clap::CommandFactory;
use kube::{Api, ResourceExt};

use crate::args::{Args, Reach};
use crate::connection::Reached;

/// Nothing but what is listed: no names of files.
const NO_FILES: &str = ":4";

/// Prints what may follow the words that were typed; the last of them is yet to be finished. Whatever fails, nothing is offered.
pub(crate) async fn run(reach: &Reach, words: &[String]) {
    let (unfinished, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let offered = offered(reach, before).await;
    for one in offered.iter().filter(|one| one.starts_with(unfinished)) {
        println!("{one}");
    }
    println!("{NO_FILES}");
}

async fn offered(reach: &Reach, before: &[String]) -> Vec<String> {
    let typed = typed(before);
    let mut reach = reach.clone();
    reach.namespace = typed.namespace.or(reach.namespace);
    reach.context = typed.context.or(reach.context);
    match typed.next {
        Next::Verb => verbs(),
        Next::Nothing => Vec::new(),
        Next::Namespace => {
            let Ok(reached) = Reached::by(&reach).await else {
                return Vec::new();
            };
            let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(reached.client);
            let list = api.list_metadata(&Default::default()).await;
            list.map(|list| list.items.iter().map(|one| one.name_any()).collect())
                .unwrap_or_default()
        }
        Next::Cluster => {
            let Ok(reached) = Reached::by(&reach).await else {
                return Vec::new();
            };
            let clusters = reached.clusters(false).await.unwrap_or_default();
            clusters.iter().map(|cluster| cluster.name_any()).collect()
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Verb,
    Cluster,
    Namespace,
    Nothing,
}

struct Typed {
    namespace: Option<String>,
    context: Option<String>,
    next: Next,
}

/// Reads what was typed so far, as far as it matters.
fn typed(before: &[String]) -> Typed {
    let (mut namespace, mut context, mut plain) = (None, None, 0);
    let mut words = before.iter();
    while let Some(word) = words.next() {
        let place = match word.as_str() {
            "-n" | "--namespace" => &mut namespace,
            "--context" => &mut context,
            "-o" | "--output" | "--kubeconfig" | "--color" | "--tail" | "--since" | "--last"
            | "--to" | "--member" => {
                if words.next().is_none() {
                    return Typed {
                        namespace,
                        context,
                        next: Next::Nothing,
                    };
                }
                continue;
            }
            flag if flag.starts_with('-') => continue,
            _ => {
                plain += 1;
                continue;
            }
        };
        match words.next() {
            Some(value) => *place = Some(value.clone()),
            None => {
                let next = if word == "--context" {
                    Next::Nothing
                } else {
                    Next::Namespace
                };
                return Typed {
                    namespace,
                    context,
                    next,
                };
            }
        }
    }
    let next = match plain {
        0 => Next::Verb,
        1 => Next::Cluster,
        _ => Next::Nothing,
    };
    Typed {
        namespace,
        context,
        next,
    }
}

fn verbs() -> Vec<String> {
    let command = Args::command();
    command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .map(|verb| verb.get_name().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_clusters_and_namespaces_are_offered_where_they_belong() {
        let next = |words: &[&str]| {
            typed(
                &words
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect::<Vec<_>>(),
            )
            .next
        };
        assert_eq!(next(&[]), Next::Verb);
        assert_eq!(next(&["-n", "shop"]), Next::Verb);
        assert_eq!(next(&["status"]), Next::Cluster);
        assert_eq!(next(&["status", "-o", "json"]), Next::Cluster);
        assert_eq!(next(&["status", "-n"]), Next::Namespace);
        assert_eq!(next(&["status", "orders"]), Next::Nothing);
        assert!(
            verbs().contains(&"status".to_owned()) && !verbs().contains(&"__complete".to_owned())
        );
        let of = typed(&["status".to_owned(), "-n".to_owned(), "shop".to_owned()]);
        assert_eq!(of.namespace.as_deref(), Some("shop"));
    }
}
