//! Shell completion. kubectl runs the program `kubectl_complete-evenkeel` with the protocol of its command-line library:
//! one candidate per line, then a directive as a number.

use clap::CommandFactory;
use kube::{Api, ResourceExt};

use crate::args::{Args, ConnectionArgs};
use crate::connection::Connection;

/// The directive that file names are no candidates.
const NO_FILE_COMPLETION: &str = ":4";

/// Prints the candidates for the last of the typed words. Errors yield no candidates.
pub(crate) async fn run(args: &ConnectionArgs, words: &[String]) {
    let (unfinished, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    for candidate in candidates(args, before).await {
        if candidate.starts_with(unfinished) {
            println!("{candidate}");
        }
    }
    println!("{NO_FILE_COMPLETION}");
}

async fn candidates(args: &ConnectionArgs, before: &[String]) -> Vec<String> {
    let typed = parse(before);
    let args = ConnectionArgs {
        namespace: typed.namespace.or_else(|| args.namespace.clone()),
        context: typed.context.or_else(|| args.context.clone()),
        ..args.clone()
    };
    match typed.next {
        NextWord::Verb => verbs(),
        NextWord::Other => Vec::new(),
        NextWord::Namespace => {
            let Ok(connection) = Connection::open(&args).await else {
                return Vec::new();
            };
            let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(connection.client);
            let list = api.list_metadata(&Default::default()).await;
            list.map(|list| {
                list.items
                    .iter()
                    .map(|namespace| namespace.name_any())
                    .collect()
            })
            .unwrap_or_default()
        }
        NextWord::Cluster => {
            let Ok(connection) = Connection::open(&args).await else {
                return Vec::new();
            };
            let clusters = connection.clusters().await.unwrap_or_default();
            clusters.iter().map(|cluster| cluster.name_any()).collect()
        }
    }
}

/// The kind of the word that is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextWord {
    Verb,
    Cluster,
    Namespace,
    /// A word without candidates.
    Other,
}

/// The typed words, as far as completion needs them.
struct TypedWords {
    namespace: Option<String>,
    context: Option<String>,
    next: NextWord,
}

fn parse(before: &[String]) -> TypedWords {
    let mut typed = TypedWords {
        namespace: None,
        context: None,
        next: NextWord::Other,
    };
    let mut positional_count = 0;
    let mut words = before.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-n" | "--namespace" => match words.next() {
                Some(value) => typed.namespace = Some(value.clone()),
                None => {
                    typed.next = NextWord::Namespace;
                    return typed;
                }
            },
            "--context" => match words.next() {
                Some(value) => typed.context = Some(value.clone()),
                None => return typed,
            },
            "-o" | "--output" | "--kubeconfig" | "--color" | "--tail" | "--since" | "--last"
            | "--to" | "--member" => {
                if words.next().is_none() {
                    return typed;
                }
            }
            flag if flag.starts_with('-') => {}
            _ => positional_count += 1,
        }
    }
    typed.next = match positional_count {
        0 => NextWord::Verb,
        1 => NextWord::Cluster,
        _ => NextWord::Other,
    };
    typed
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

    fn parse_words(words: &[&str]) -> TypedWords {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&words)
    }

    #[test]
    fn verbs_clusters_and_namespaces_are_completed() {
        let next = |words: &[&str]| parse_words(words).next;
        assert_eq!(next(&[]), NextWord::Verb);
        assert_eq!(next(&["-n", "shop"]), NextWord::Verb);
        assert_eq!(next(&["status"]), NextWord::Cluster);
        assert_eq!(next(&["status", "-o", "json"]), NextWord::Cluster);
        assert_eq!(next(&["status", "-n"]), NextWord::Namespace);
        assert_eq!(next(&["status", "--context"]), NextWord::Other);
        assert_eq!(next(&["status", "orders"]), NextWord::Other);
        let typed = parse_words(&["status", "-n", "shop"]);
        assert_eq!(typed.namespace.as_deref(), Some("shop"));
    }

    #[test]
    fn hidden_verbs_are_not_completed() {
        assert!(verbs().contains(&"status".to_owned()));
        assert!(!verbs().contains(&"__complete".to_owned()));
    }
}
