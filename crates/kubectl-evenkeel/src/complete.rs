//! Shell completion. kubectl runs the program `kubectl_complete-evenkeel` with the protocol of its command-line library:
//! one candidate per line, with a description after a tab, then a directive as a number.
//!
//! Verbs, flags and their values come from the definition of the command line, so new ones need no code here.

use std::time::Duration;

use clap::{Arg, Command, CommandFactory};
use evenkeel_api::{Backup, BackupStore, Restore};
use k8s_openapi::api::core::v1::Namespace;
use kube::config::Kubeconfig;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::args::{Args, CLUSTER_VALUE, ConnectionArgs, RESTORE_VALUE, RequestTimeout};
use crate::connection::Connection;
use crate::usage::connection_args;

/// The directive that file names are candidates.
const FILE_COMPLETION: &str = ":0";
/// The directive that file names are no candidates.
const NO_FILE_COMPLETION: &str = ":4";
/// How long a request may take: the user waits for the candidates.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Prints the candidates for the last of the typed words. Errors yield no candidates.
pub(crate) async fn run(args: &ConnectionArgs, words: &[String]) {
    let (unfinished, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let mut command = Args::command();
    command.build();
    let next = next_word(&command, before, unfinished);
    for candidate in candidates(&next, &merged_args(args, before)).await {
        if candidate.starts_with(unfinished) {
            println!("{candidate}");
        }
    }
    if matches!(next, NextWord::File) {
        println!("{FILE_COMPLETION}");
    } else {
        println!("{NO_FILE_COMPLETION}");
    }
}

/// Returns the flags of the connection: the typed ones, and else those of this process.
fn merged_args(args: &ConnectionArgs, before: &[String]) -> ConnectionArgs {
    let program = "kubectl-evenkeel".to_owned();
    let typed = connection_args(std::iter::once(&program).chain(before));
    let timeout = RequestTimeout::After(REQUEST_TIMEOUT);
    ConnectionArgs {
        namespace: typed.namespace.or_else(|| args.namespace.clone()),
        context: typed.context.or_else(|| args.context.clone()),
        kubeconfig: typed.kubeconfig.or_else(|| args.kubeconfig.clone()),
        request_timeout: typed.request_timeout.or(Some(timeout)),
        verbosity: None,
        ..typed
    }
}

/// The kind of the word that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NextWord {
    /// One of these words, each with its description.
    OneOf(Vec<(String, String)>),
    /// The name of a cluster.
    Cluster,
    /// The name of a member of this cluster.
    Member(String),
    /// The name of a BackupStore.
    Store,
    /// The name of a Backup.
    Backup,
    /// The name of a Restore.
    Restore,
    /// The name of a namespace.
    Namespace,
    /// The name of a context of the kubeconfig.
    Context,
    /// The name of a cluster of the kubeconfig.
    KubeCluster,
    /// The name of a user of the kubeconfig.
    KubeUser,
    /// The name of a file.
    File,
    /// A word without candidates.
    Other,
}

/// Determines the kind of the word that follows the typed words.
fn next_word(command: &Command, before: &[String], unfinished: &str) -> NextWord {
    let mut verb = command;
    let mut positional: Vec<&str> = Vec::new();
    let mut words = before.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            return NextWord::Other;
        }
        if word.len() > 1 && word.starts_with('-') {
            match flag(command, verb, word).filter(|flag| takes_next_word(flag, word)) {
                Some(flag) if words.next().is_none() => return value_of(flag, &positional),
                _ => {}
            }
        } else if std::ptr::eq(verb, command) {
            match command.find_subcommand(word) {
                Some(found) => verb = found,
                None => return NextWord::Other,
            }
        } else if positional.is_empty()
            && let Some(found) = verb.find_subcommand(word)
        {
            verb = found;
        } else {
            positional.push(word);
        }
    }
    let is_verb = std::ptr::eq(verb, command);
    let expected = verb.get_positionals().nth(positional.len());
    // The arguments of etcdctl are its own.
    let rest_begins = verb
        .get_positionals()
        .position(|argument| argument.is_trailing_var_arg_set());
    if rest_begins.is_some_and(|begins| positional.len() > begins) {
        return NextWord::Other;
    }
    if unfinished.starts_with('-') {
        return NextWord::OneOf(flags(command, verb));
    }
    if is_verb {
        return NextWord::OneOf(verbs(command));
    }
    match expected.and_then(value_name) {
        Some(CLUSTER_VALUE) => NextWord::Cluster,
        Some(RESTORE_VALUE) => NextWord::Restore,
        _ => NextWord::Other,
    }
}

/// Finds the flag of a word, among those of the verb and the global ones.
fn flag<'c>(command: &'c Command, verb: &'c Command, word: &str) -> Option<&'c Arg> {
    let is_named = |argument: &&Arg| match word.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long.split('=').next().unwrap_or(long)),
        None => argument.get_short() == word.chars().nth(1),
    };
    let mut arguments = verb.get_arguments().chain(command.get_arguments());
    arguments.find(is_named)
}

/// Returns whether the value of a flag is the next word, and not part of this one.
fn takes_next_word(flag: &Arg, word: &str) -> bool {
    let is_complete = word.contains('=') || (!word.starts_with("--") && word.len() > 2);
    flag.get_action().takes_values() && !flag.is_require_equals_set() && !is_complete
}

fn value_of(flag: &Arg, positional: &[&str]) -> NextWord {
    let values: Vec<_> = flag
        .get_possible_values()
        .iter()
        .map(|value| (value.get_name().to_owned(), String::new()))
        .collect();
    if !values.is_empty() {
        return NextWord::OneOf(values);
    }
    match (flag.get_id().as_str(), positional) {
        ("namespace", _) => NextWord::Namespace,
        ("store" | "from_store", _) => NextWord::Store,
        ("from", _) => NextWord::Backup,
        ("context", _) => NextWord::Context,
        ("kube_cluster", _) => NextWord::KubeCluster,
        ("kube_user", _) => NextWord::KubeUser,
        ("to" | "member", [cluster, ..]) => NextWord::Member((*cluster).to_owned()),
        ("file" | "kubeconfig", _) => NextWord::File,
        _ => NextWord::Other,
    }
}

fn value_name(argument: &Arg) -> Option<&str> {
    let names = argument.get_value_names()?;
    names.first().map(AsRef::as_ref)
}

/// Returns the verbs, without the hidden ones.
fn verbs(command: &Command) -> Vec<(String, String)> {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs
        .map(|verb| {
            let about = verb.get_about().map(ToString::to_string);
            (verb.get_name().to_owned(), about.unwrap_or_default())
        })
        .collect()
}

/// Returns the flags of a verb and the global ones.
fn flags(command: &Command, verb: &Command) -> Vec<(String, String)> {
    let mut flags: Vec<_> = verb
        .get_arguments()
        .chain(command.get_arguments())
        .filter(|argument| !argument.is_hide_set())
        .filter_map(|argument| {
            let help = argument.get_help().map(ToString::to_string);
            Some((
                format!("--{}", argument.get_long()?),
                help.unwrap_or_default(),
            ))
        })
        .collect();
    flags.sort();
    flags.dedup_by(|one, other| one.0 == other.0);
    flags
}

async fn candidates(next: &NextWord, args: &ConnectionArgs) -> Vec<String> {
    match next {
        NextWord::OneOf(words) => words
            .iter()
            .map(|(word, description)| match description.as_str() {
                "" => word.clone(),
                description => format!("{word}\t{description}"),
            })
            .collect(),
        NextWord::Other | NextWord::File => Vec::new(),
        NextWord::Context => of_kubeconfig(args, |config| {
            config.contexts.iter().map(|it| it.name.clone()).collect()
        }),
        NextWord::KubeCluster => of_kubeconfig(args, |config| {
            config.clusters.iter().map(|it| it.name.clone()).collect()
        }),
        NextWord::KubeUser => of_kubeconfig(args, |config| {
            config.auth_infos.iter().map(|it| it.name.clone()).collect()
        }),
        NextWord::Cluster
        | NextWord::Member(_)
        | NextWord::Store
        | NextWord::Backup
        | NextWord::Restore
        | NextWord::Namespace => match Connection::open(args).await {
            Ok(connection) => of_kubernetes(next, connection).await,
            Err(_) => Vec::new(),
        },
    }
}

fn of_kubeconfig(args: &ConnectionArgs, names: fn(&Kubeconfig) -> Vec<String>) -> Vec<String> {
    let kubeconfig = match &args.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    kubeconfig.map(|config| names(&config)).unwrap_or_default()
}

async fn of_kubernetes(next: &NextWord, connection: Connection) -> Vec<String> {
    match next {
        NextWord::Namespace => {
            let api: Api<Namespace> = Api::all(connection.client);
            let list = api.list_metadata(&Default::default()).await;
            let list = list.map(|list| list.items).unwrap_or_default();
            list.iter().map(ResourceExt::name_any).collect()
        }
        NextWord::Store => names::<BackupStore>(connection).await,
        NextWord::Backup => names::<Backup>(connection).await,
        NextWord::Restore => names::<Restore>(connection).await,
        NextWord::Member(cluster) => {
            let cluster = connection.cluster(Some(cluster)).await.ok();
            let status = cluster.and_then(|cluster| cluster.status);
            let members = status.map(|status| status.member_list).unwrap_or_default();
            members.into_iter().map(|member| member.name).collect()
        }
        _ => {
            let clusters = connection.clusters().await.unwrap_or_default();
            clusters.iter().map(ResourceExt::name_any).collect()
        }
    }
}

/// Returns the names of the objects of a kind.
async fn names<K>(connection: Connection) -> Vec<String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(connection.client, &connection.namespace);
    let list = api.list_metadata(&Default::default()).await;
    let list = list.map(|list| list.items).unwrap_or_default();
    list.iter().map(ResourceExt::name_any).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kind of the last word.
    fn next(typed: &str) -> NextWord {
        let mut command = Args::command();
        command.build();
        let words: Vec<_> = typed.split(' ').map(str::to_owned).collect();
        let (unfinished, before) = words.split_last().unwrap();
        next_word(&command, before, unfinished)
    }

    fn words(typed: &str) -> Vec<String> {
        match next(typed) {
            NextWord::OneOf(words) => words.into_iter().map(|(word, _)| word).collect(),
            other => panic!("{typed}: {other:?}"),
        }
    }

    #[test]
    fn verbs_clusters_and_namespaces_are_completed() {
        assert!(words("").contains(&"version".to_owned()));
        assert_eq!(words("-n shop st"), words(""));
        assert_eq!(next("status "), NextWord::Cluster);
        assert_eq!(next("restart "), NextWord::Cluster);
        assert_eq!(next("status -o json "), NextWord::Cluster);
        assert_eq!(next("status -ojson -v -w "), NextWord::Cluster);
        assert_eq!(next("status -n "), NextWord::Namespace);
        assert_eq!(next("status --context "), NextWord::Context);
        assert_eq!(next("status --user "), NextWord::KubeUser);
        assert_eq!(next("status --as "), NextWord::Other);
        assert_eq!(next("status orders "), NextWord::Other);
        assert_eq!(next("plan -f "), NextWord::File);
        assert_eq!(next("version "), NextWord::Other);
        assert_eq!(next("backup "), NextWord::Cluster);
        assert_eq!(next("backups -A -o wide "), NextWord::Cluster);
        assert_eq!(next("backup orders --store "), NextWord::Store);
        assert_eq!(next("backups --from-store "), NextWord::Store);
        assert_eq!(next("restore "), NextWord::Cluster);
        assert_eq!(next("restore orders --from "), NextWord::Backup);
        assert_eq!(next("restore undo "), NextWord::Restore);
        assert_eq!(next("restores "), NextWord::Cluster);
    }

    #[test]
    fn values_of_flags_are_completed() {
        assert_eq!(words("status -o "), ["text", "wide", "json", "yaml"]);
        assert_eq!(words("why --output "), ["text", "wide", "json", "yaml"]);
        assert_eq!(words("plan --output "), ["text", "json", "yaml"]);
        assert_eq!(words("--color "), ["auto", "always", "never"]);
        let member = NextWord::Member("orders".to_owned());
        assert_eq!(next("move-leader orders --to "), member);
        assert_eq!(next("etcdctl orders --member "), member);
        assert_eq!(next("logs orders --previous --member "), member);
    }

    #[test]
    fn flags_of_the_verb_and_global_flags_are_completed() {
        let flags = words("status --");
        for flag in ["--watch", "--output", "--as-group", "--request-timeout"] {
            assert!(flags.contains(&flag.to_owned()), "{flag}: {flags:?}");
        }
        assert!(!words("pause -").contains(&"--watch".to_owned()));
        assert!(words("status orders --").contains(&"--watch".to_owned()));
        assert!(words("-").contains(&"--as".to_owned()));
        assert!(words("etcdctl --").contains(&"--member".to_owned()));
        assert_eq!(next("etcdctl orders get --"), NextWord::Other);
    }

    #[test]
    fn hidden_verbs_are_not_completed() {
        assert!(!words("").contains(&"__complete".to_owned()));
    }

    #[test]
    fn typed_flags_of_the_connection_are_used() {
        let process = ConnectionArgs {
            namespace: Some("default".to_owned()),
            context: Some("prod".to_owned()),
            ..ConnectionArgs::default()
        };
        let typed = ["status", "-n", "shop", "--as", "bob"].map(str::to_owned);
        let merged = merged_args(&process, &typed);
        assert_eq!(merged.namespace.as_deref(), Some("shop"));
        assert_eq!(merged.context.as_deref(), Some("prod"));
        assert_eq!(merged.impersonated_user.as_deref(), Some("bob"));
    }
}
