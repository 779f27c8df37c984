//! Reports invalid arguments. If the name of a cluster is missing, the existing ones are listed.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Args, CLUSTER_VALUE, ConnectionArgs};
use crate::connection::{Connection, names};

/// Prints an error of the command line, or the help that the user asked for. Returns the exit code.
pub(crate) async fn report(error: &clap::Error) -> ExitCode {
    // Nothing can be done about an output that is closed.
    let _ = error.print();
    if lacks_cluster(error) {
        eprintln!("{}", existing_clusters().await);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(crate::error::EXIT_USAGE))
}

/// Returns whether the name of a cluster is missing.
fn lacks_cluster(error: &clap::Error) -> bool {
    let is_cluster = |argument: &String| argument.contains(&format!("<{CLUSTER_VALUE}>"));
    error.kind() == ErrorKind::MissingRequiredArgument
        && match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing)) => missing.iter().any(is_cluster),
            _ => false,
        }
}

/// Lists the clusters of the namespace that the arguments select.
async fn existing_clusters() -> String {
    let args = connection_args(std::env::args_os());
    let connection = match Connection::open(&args).await {
        Ok(connection) => connection,
        Err(error) => return format!("The existing clusters are unknown: {}", error.message),
    };
    let namespace = &connection.namespace;
    match connection.clusters().await {
        Ok(clusters) if clusters.is_empty() => {
            format!("Namespace {namespace} has no EtcdClusters.")
        }
        Ok(clusters) => format!(
            "Existing clusters in namespace {namespace}: {}",
            names(&clusters)
        ),
        Err(error) => format!("The existing clusters are unknown: {}", error.message),
    }
}

/// Parses the flags of the connection, although other arguments are missing.
pub(crate) fn connection_args<T: Into<std::ffi::OsString> + Clone>(
    arguments: impl Iterator<Item = T>,
) -> ConnectionArgs {
    let command = Args::command().ignore_errors(true);
    command
        .try_get_matches_from(arguments)
        .ok()
        .and_then(|matches| ConnectionArgs::from_arg_matches(&matches).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn error(typed: &str) -> clap::Error {
        Args::try_parse_from(typed.split_whitespace()).unwrap_err()
    }

    #[test]
    fn a_missing_name_is_told_from_other_errors() {
        for verb in [
            "restart",
            "pause",
            "resume",
            "move-leader --to a",
            "etcdctl",
        ] {
            assert!(
                lacks_cluster(&error(&format!("kubectl-evenkeel {verb}"))),
                "{verb}"
            );
        }
        assert!(!lacks_cluster(&error("kubectl-evenkeel restart a b")));
        assert!(!lacks_cluster(&error(
            "kubectl-evenkeel status --as-group dev"
        )));
    }

    #[test]
    fn the_namespace_is_known_although_the_name_is_missing() {
        for typed in [
            "kubectl-evenkeel restart -n shop --context prod",
            "kubectl-evenkeel -n shop --context prod restart",
        ] {
            let args = connection_args(typed.split_whitespace());
            assert_eq!(args.namespace.as_deref(), Some("shop"), "{typed}");
            assert_eq!(args.context.as_deref(), Some("prod"), "{typed}");
        }
    }
}
