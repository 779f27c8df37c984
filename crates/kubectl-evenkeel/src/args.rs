//! The command line.

use std::path::PathBuf;

use clap::{Args as Flags, Parser, Subcommand, ValueEnum};

/// Inspect and operate the database clusters of Evenkeel.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl evenkeel",
    bin_name = "kubectl evenkeel",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXIT_CODES: &str = "Exit codes:
  0  success; status: the cluster is healthy
  1  the command failed
  2  invalid arguments
  3  status: clients can write, but the cluster is degraded or no operator is running
  4  status: clients cannot write, or this is unknown
  5  the cluster does not exist, or Evenkeel is not installed
  6  permission denied
  7  the Kubernetes API does not respond";

/// The connection to Kubernetes, with kubectl's flags.
#[derive(Clone, Debug, Default, Flags)]
pub(crate) struct ConnectionArgs {
    /// Path of the kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace; defaults to the namespace of the context
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// When to use colors
    #[arg(long, global = true, value_enum, default_value_t = ColorMode::Auto, value_name = "WHEN")]
    pub(crate) color: ColorMode,
}

/// When to use colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorMode {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text for people
    #[default]
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// The cluster that a verb applies to.
#[derive(Clone, Debug, Flags)]
pub(crate) struct Target {
    /// Name of the cluster; optional if the namespace has only one
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: Option<String>,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show the state of a cluster: availability, failure tolerance, members and current action
    Status {
        #[command(flatten)]
        target: Target,
        /// Show the clusters of all namespaces, one line each
        #[arg(short = 'A', long, conflicts_with = "cluster")]
        all_namespaces: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: OutputFormat,
    },
    /// Explain the state of a cluster: goal, blocker, evidence, required action and the last decisions
    Why {
        #[command(flatten)]
        target: Target,
        /// Number of decisions to show
        #[arg(long, default_value_t = 5, value_name = "COUNT")]
        last: usize,
        /// Show the facts that each decision was based on
        #[arg(long)]
        facts: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: OutputFormat,
    },
    /// Preview the effects and the steps of an edit, without applying it
    Plan {
        #[command(flatten)]
        target: Target,
        /// Manifest with the edit, as for kubectl apply; - reads standard input; defaults to the current spec
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// List every action of each step, bookkeeping included, and every deletion of a retained volume
        #[arg(long)]
        all: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: OutputFormat,
    },
    /// Run etcdctl in the pod of a member, with its certificates: kubectl evenkeel etcdctl orders -- get --prefix /
    Etcdctl {
        /// Name of the cluster
        #[arg(value_name = "CLUSTER")]
        cluster: String,
        /// Name of the member; defaults to the leader
        #[arg(long, value_name = "NAME")]
        member: Option<String>,
        /// Arguments of etcdctl
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            required = true,
            value_name = "ARGUMENTS"
        )]
        arguments: Vec<String>,
    },
    /// Print the logs of all members, merged by time
    Logs {
        #[command(flatten)]
        target: Target,
        /// Follow the logs
        #[arg(short, long)]
        follow: bool,
        /// Number of lines of each member, from the end
        #[arg(long, value_name = "COUNT")]
        tail: Option<i64>,
        /// Only lines newer than this duration, such as 10m
        #[arg(long, value_name = "DURATION", value_parser = parse_seconds)]
        since: Option<i64>,
        /// Print the logs of the previous containers
        #[arg(short, long, conflicts_with = "follow")]
        previous: bool,
    },
    /// Transfer leadership to another member
    MoveLeader {
        #[command(flatten)]
        target: Target,
        /// Name of the new leader; defaults to the next healthy voter
        #[arg(long, value_name = "MEMBER")]
        to: Option<String>,
    },
    /// Restart the members one by one, the leader last
    Restart {
        #[command(flatten)]
        target: Target,
    },
    /// Stop the operator from changing or healing a cluster; its members keep running
    Pause {
        #[command(flatten)]
        target: Target,
    },
    /// Let the operator manage a paused cluster again
    Resume {
        #[command(flatten)]
        target: Target,
    },
    /// Print the reference of the plugin or of the conditions as Markdown
    #[command(name = "__reference", hide = true)]
    Reference {
        /// The page
        page: ReferencePage,
    },
    /// Print candidates for shell completion
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words that were typed
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// A generated page of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReferencePage {
    /// The command line
    Verbs,
    /// Conditions and reasons, with the required actions
    Conditions,
}

/// Parses a duration in the notation of the resources into seconds. Returns at least 1.
fn parse_seconds(text: &str) -> Result<i64, String> {
    let duration = evenkeel_api::duration::parse(text).map_err(|error| error.to_string())?;
    let seconds = duration.unwrap_or_default().as_secs();
    i64::try_from(seconds.max(1)).map_err(|_| "the duration is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn etcdctl_gets_all_arguments_after_the_cluster() {
        let typed = [
            "kubectl-evenkeel",
            "etcdctl",
            "orders",
            "get",
            "--prefix",
            "/",
            "-w",
            "json",
        ];
        let Verb::Etcdctl {
            cluster, arguments, ..
        } = Args::parse_from(typed).verb
        else {
            unreachable!()
        };
        assert_eq!(cluster, "orders");
        assert_eq!(arguments, ["get", "--prefix", "/", "-w", "json"]);
        let typed = [
            "kubectl-evenkeel",
            "-n",
            "shop",
            "etcdctl",
            "orders",
            "--member",
            "orders-abc",
            "--",
            "member",
            "list",
        ];
        let args = Args::parse_from(typed);
        assert_eq!(args.connection.namespace.as_deref(), Some("shop"));
        let Verb::Etcdctl {
            member, arguments, ..
        } = args.verb
        else {
            unreachable!()
        };
        assert_eq!(
            (member.as_deref(), arguments.len()),
            (Some("orders-abc"), 2)
        );
    }

    #[test]
    fn the_namespace_can_precede_or_follow_the_verb() {
        for typed in [
            ["kubectl-evenkeel", "-n", "shop", "status"],
            ["kubectl-evenkeel", "status", "-n", "shop"],
        ] {
            assert_eq!(
                Args::parse_from(typed).connection.namespace.as_deref(),
                Some("shop")
            );
        }
    }
}
