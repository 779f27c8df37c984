//! The command line.

use std::path::PathBuf;
use std::time::Duration;

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
  3  status: clients can write, but the cluster is degraded or paused, or no operator is running
  4  status: clients cannot write, or this is unknown
  5  the cluster, store, backup or restore does not exist, or Evenkeel is not installed
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
    /// Kubernetes cluster of the kubeconfig, instead of the context's
    #[arg(long = "cluster", global = true, value_name = "NAME")]
    pub(crate) kube_cluster: Option<String>,
    /// User of the kubeconfig, instead of the context's
    #[arg(long = "user", global = true, value_name = "NAME")]
    pub(crate) kube_user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonated_user: Option<String>,
    /// Group to impersonate, with --as; can be repeated
    #[arg(
        long = "as-group",
        global = true,
        value_name = "GROUP",
        requires = "impersonated_user"
    )]
    pub(crate) impersonated_groups: Vec<String>,
    /// How long one request to the Kubernetes API may take, such as 10s; 0 means no limit (default: 15s)
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse_timeout)]
    pub(crate) request_timeout: Option<RequestTimeout>,
    /// Print the requests to the Kubernetes API: method, path, code and duration. LEVEL is kubectl's: below 6 none
    #[arg(
        short = 'v',
        long = "verbose",
        alias = "v",
        global = true,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "6"
    )]
    pub(crate) verbosity: Option<u8>,
    /// Namespace; defaults to the namespace of the context
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// When to use colors
    #[arg(long, global = true, value_enum, default_value_t = ColorMode::Auto, value_name = "WHEN")]
    pub(crate) color: ColorMode,
}

/// The level of kubectl's `-v` from which on requests are printed.
const MIN_REQUEST_VERBOSITY: u8 = 6;

impl ConnectionArgs {
    /// Returns whether requests are printed.
    pub(crate) fn prints_requests(&self) -> bool {
        self.verbosity
            .is_some_and(|level| level >= MIN_REQUEST_VERBOSITY)
    }
}

/// A limit for the duration of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestTimeout {
    /// No limit.
    None,
    /// At most this long.
    After(Duration),
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

/// The format of the output of `status` and `why`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextFormat {
    /// Text for people
    #[default]
    Text,
    /// Text with further columns, and tables that are not truncated
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl TextFormat {
    /// Returns the format that all verbs share.
    pub(crate) fn output_format(self) -> OutputFormat {
        match self {
            Self::Text | Self::Wide => OutputFormat::Text,
            Self::Json => OutputFormat::Json,
            Self::Yaml => OutputFormat::Yaml,
        }
    }
}

/// The cluster that a verb applies to.
#[derive(Clone, Debug, Flags)]
pub(crate) struct Target {
    /// Name of the cluster; optional if the namespace has only one
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: Option<String>,
}

/// The cluster that a verb changes. Its name is required, so that no cluster is changed by mistake.
#[derive(Clone, Debug, Flags)]
pub(crate) struct NamedTarget {
    /// Name of the cluster
    #[arg(value_name = CLUSTER_VALUE)]
    pub(crate) cluster: String,
}

/// The flags of `backups`.
#[derive(Clone, Debug, Flags)]
pub(crate) struct BackupsArgs {
    /// Name of the cluster; defaults to all clusters
    #[arg(value_name = CLUSTER_VALUE)]
    pub(crate) cluster: Option<String>,
    /// List the backups of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["cluster", "from_store"])]
    pub(crate) all_namespaces: bool,
    /// Only backups in this BackupStore
    #[arg(long, value_name = "NAME", conflicts_with = "from_store")]
    pub(crate) store: Option<String>,
    /// List what is in this BackupStore, also backups of deleted clusters. The operator starts a pod for it
    #[arg(long, value_name = "NAME")]
    pub(crate) from_store: Option<String>,
    /// Create a Backup object for the backup with this location or name, with --from-store; can be repeated
    #[arg(long, value_name = "LOCATION", requires = "from_store")]
    pub(crate) import: Vec<String>,
    /// Create a Backup object for each complete backup that has none, with --from-store
    #[arg(long, requires = "from_store", conflicts_with = "import")]
    pub(crate) import_all: bool,
    /// Show the list again every two seconds, until Ctrl-C
    #[arg(short, long, conflicts_with = "from_store")]
    pub(crate) watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: TextFormat,
}

/// The placeholder of a cluster's name.
pub(crate) const CLUSTER_VALUE: &str = "CLUSTER";
/// The placeholder of the name of a Restore.
pub(crate) const RESTORE_VALUE: &str = "RESTORE";

/// The arguments of `restore`. Those of the restore are absent if `undo` is present.
#[derive(Clone, Debug, Flags)]
pub(crate) struct RestoreArgs {
    #[command(subcommand)]
    pub(crate) undo: Option<RestoreVerb>,
    /// Name of the cluster
    #[arg(value_name = CLUSTER_VALUE, required = true)]
    pub(crate) cluster: Option<String>,
    /// Name of the Backup
    #[arg(long, value_name = "BACKUP", required = true)]
    pub(crate) from: Option<String>,
    /// Name of the Restore; defaults to one of cluster, backup and cluster ID
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How long the old data is kept, such as 72h: the restore can be undone until then
    #[arg(long, value_name = "DURATION", default_value = "72h", value_parser = parse_keep)]
    pub(crate) keep_old_data_for: String,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
}

/// The verbs about an existing restore.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RestoreVerb {
    /// Bring the old data of a cluster back, as long as it is kept. Without --yes, only show what that does
    Undo {
        /// Name of the Restore
        #[arg(value_name = RESTORE_VALUE)]
        restore: String,
        #[command(flatten)]
        request: RequestArgs,
    },
}

/// The flags of `restore` and of `restore undo`.
#[derive(Clone, Debug, Flags)]
pub(crate) struct RequestArgs {
    /// Replace the data, and wait until clients are served
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Return as soon as the request is stored, with --yes
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// How long to wait, with --yes; the operator continues afterwards
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = parse_seconds)]
    pub(crate) timeout: i64,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
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
        /// Show the state again every two seconds, until Ctrl-C
        #[arg(short, long)]
        watch: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: TextFormat,
    },
    /// Explain the state of a cluster: goal, blocker, evidence, required action and the last decisions
    Why {
        #[command(flatten)]
        target: Target,
        /// Explain the clusters of all namespaces
        #[arg(short = 'A', long, conflicts_with = "cluster")]
        all_namespaces: bool,
        /// Number of decisions to show
        #[arg(long, default_value_t = 5, value_name = "COUNT")]
        last: usize,
        /// Show the facts that each decision was based on
        #[arg(long)]
        facts: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: TextFormat,
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
        #[command(flatten)]
        target: NamedTarget,
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
        /// Name of the member; defaults to all members
        #[arg(long, value_name = "NAME")]
        member: Option<String>,
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
        target: NamedTarget,
        /// Name of the new leader; defaults to the next healthy voter
        #[arg(long, value_name = "MEMBER")]
        to: Option<String>,
    },
    /// Take a backup of a cluster, and wait until it is complete
    Backup {
        #[command(flatten)]
        target: NamedTarget,
        /// Name of the BackupStore; defaults to the store of the cluster's schedule, or the only one of the namespace
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        /// Name of the Backup; defaults to the name of the cluster and the time
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// How long the backup may take, such as 30m; defaults to the deadline of the cluster's schedule, or 30m
        #[arg(long, value_name = "DURATION", value_parser = parse_deadline)]
        deadline: Option<String>,
        /// Return as soon as the Backup is created
        #[arg(long)]
        no_wait: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: OutputFormat,
    },
    /// List the backups of clusters, or the backups in a store, and import backups from a store
    Backups(BackupsArgs),
    /// Replace the data of a cluster by that of a backup. Without --yes, only show what that does
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        disable_help_subcommand = true
    )]
    Restore(RestoreArgs),
    /// List the restores of clusters, and until when they can be undone
    Restores {
        /// Name of the cluster; defaults to all clusters
        #[arg(value_name = CLUSTER_VALUE)]
        cluster: Option<String>,
        /// List the restores of all namespaces
        #[arg(short = 'A', long, conflicts_with = "cluster")]
        all_namespaces: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: OutputFormat,
    },
    /// Restart the members one by one, the leader last
    Restart {
        #[command(flatten)]
        target: NamedTarget,
    },
    /// Stop the operator from changing or healing a cluster; its members keep running
    Pause {
        #[command(flatten)]
        target: NamedTarget,
    },
    /// Let the operator manage a paused cluster again
    Resume {
        #[command(flatten)]
        target: NamedTarget,
    },
    /// Print the versions of the plugin, the operator and the CRD
    Version {
        /// Print only the version of the plugin, without a connection to Kubernetes
        #[arg(long)]
        client: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: OutputFormat,
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
    /// JSON Schema of the output of status and why
    ReportSchema,
}

/// Parses a duration in the notation of the resources into seconds. Returns at least 1.
fn parse_seconds(text: &str) -> Result<i64, String> {
    let duration = evenkeel_api::duration::parse(text).map_err(|error| error.to_string())?;
    let seconds = duration.unwrap_or_default().as_secs();
    i64::try_from(seconds.max(1)).map_err(|_| "the duration is too long".to_owned())
}

/// The limits of a backup's deadline in seconds, as in the CRD.
const DEADLINE_SECONDS: std::ops::RangeInclusive<u64> = 60..=86_400;

/// Checks the deadline of a backup, and returns it as it is.
fn parse_deadline(text: &str) -> Result<String, String> {
    let duration = evenkeel_api::duration::parse(text).map_err(|error| error.to_string())?;
    let seconds = duration.unwrap_or_default().as_secs();
    if DEADLINE_SECONDS.contains(&seconds) {
        Ok(text.to_owned())
    } else {
        Err("must be at least 1m and at most 24h".to_owned())
    }
}

/// How long the old data of a restored cluster can be kept, in seconds, as in the CRD.
const MAX_KEEP_SECONDS: u64 = 8760 * 3600;

/// Checks how long old data is kept, and returns it as it is.
fn parse_keep(text: &str) -> Result<String, String> {
    let duration = evenkeel_api::duration::parse(text).map_err(|error| error.to_string())?;
    match duration.map(|duration| duration.as_secs()) {
        Some(0..=MAX_KEEP_SECONDS) => Ok(text.to_owned()),
        Some(_) => Err("must be at most 8760h".to_owned()),
        None => Err("must be above 0, such as 72h".to_owned()),
    }
}

/// Parses a request timeout as kubectl does: a duration, or a number of seconds.
fn parse_timeout(text: &str) -> Result<RequestTimeout, String> {
    let milliseconds = text.strip_suffix("ms").and_then(|count| count.parse().ok());
    let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let duration = match (milliseconds, seconds) {
        (Some(count), _) => Duration::from_millis(count),
        (None, Some(count)) => Duration::from_secs(count),
        (None, None) => evenkeel_api::duration::parse(text)
            .map_err(|error| error.to_string())?
            .unwrap_or_default(),
    };
    Ok(if duration.is_zero() {
        RequestTimeout::None
    } else {
        RequestTimeout::After(duration)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

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
            target, arguments, ..
        } = Args::parse_from(typed).verb
        else {
            unreachable!()
        };
        assert_eq!(target.cluster, "orders");
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

    #[test]
    fn verbs_that_change_something_require_a_name() {
        for verb in [
            "restart",
            "pause",
            "resume",
            "move-leader",
            "backup",
            "restore",
        ] {
            let error = Args::try_parse_from(["kubectl-evenkeel", verb]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument, "{verb}");
            assert_eq!(error.exit_code(), 2);
        }
        for verb in ["status", "why", "plan", "logs", "backups", "restores"] {
            Args::try_parse_from(["kubectl-evenkeel", verb]).unwrap();
        }
    }

    #[test]
    fn an_import_needs_a_store_and_a_deadline_has_limits() {
        let parse =
            |typed: &str| Args::try_parse_from(typed.split_whitespace()).map(|args| args.verb);
        let invalid = [
            "kubectl-evenkeel backups --import a",
            "kubectl-evenkeel backups --import-all",
            "kubectl-evenkeel backups --from-store prod -A",
            "kubectl-evenkeel backups --from-store prod -w",
            "kubectl-evenkeel backups orders -A",
            "kubectl-evenkeel backup orders --deadline 30s",
            "kubectl-evenkeel backup orders --deadline 25h",
            "kubectl-evenkeel backup orders --deadline soon",
        ];
        for typed in invalid {
            assert_eq!(parse(typed).unwrap_err().exit_code(), 2, "{typed}");
        }
        let typed =
            "kubectl-evenkeel backups orders --from-store prod --import a --import b -o wide";
        let Verb::Backups(args) = parse(typed).unwrap() else {
            unreachable!()
        };
        assert_eq!(args.import, ["a", "b"]);
        let Verb::Backup { deadline, .. } =
            parse("kubectl-evenkeel backup orders --deadline 1h30m").unwrap()
        else {
            unreachable!()
        };
        assert_eq!(deadline.as_deref(), Some("1h30m"));
    }

    #[test]
    fn a_restore_names_a_backup_and_an_undo_names_a_restore() {
        let parse =
            |typed: &str| Args::try_parse_from(typed.split_whitespace()).map(|args| args.verb);
        for typed in [
            "kubectl-evenkeel restore orders",
            "kubectl-evenkeel restore --from nightly",
            "kubectl-evenkeel restore undo",
            "kubectl-evenkeel restore orders --from nightly --keep-old-data-for soon",
            "kubectl-evenkeel restore orders --from nightly --keep-old-data-for 9000h",
            "kubectl-evenkeel restore orders --from nightly --keep-old-data-for 0",
            "kubectl-evenkeel restores orders -A",
        ] {
            assert_eq!(parse(typed).unwrap_err().exit_code(), 2, "{typed}");
        }
        let typed = "kubectl-evenkeel restore orders --from nightly --timeout 5m -n shop";
        let Verb::Restore(args) = parse(typed).unwrap() else {
            unreachable!()
        };
        assert_eq!(args.cluster.as_deref(), Some("orders"));
        assert_eq!(args.from.as_deref(), Some("nightly"));
        assert_eq!(args.keep_old_data_for, "72h");
        assert!(args.undo.is_none() && !args.request.yes);
        assert_eq!(args.request.timeout, 300);
        let typed = "kubectl-evenkeel restore undo orders-nightly --yes -n shop";
        let Verb::Restore(args) = parse(typed).unwrap() else {
            unreachable!()
        };
        let Some(RestoreVerb::Undo { restore, request }) = args.undo else {
            unreachable!()
        };
        assert_eq!((restore.as_str(), request.yes), ("orders-nightly", true));
    }

    #[test]
    fn the_connection_flags_are_kubectls() {
        let typed = "kubectl-evenkeel status orders --cluster prod --user jane --as bob --as-group dev --as-group ops \
            --request-timeout 5s -v";
        let args = Args::parse_from(typed.split_whitespace());
        let Verb::Status { target, .. } = &args.verb else {
            unreachable!()
        };
        assert_eq!(target.cluster.as_deref(), Some("orders"));
        let connection = args.connection;
        assert_eq!(connection.kube_cluster.as_deref(), Some("prod"));
        assert_eq!(connection.kube_user.as_deref(), Some("jane"));
        assert_eq!(connection.impersonated_user.as_deref(), Some("bob"));
        assert_eq!(connection.impersonated_groups, ["dev", "ops"]);
        assert!(connection.prints_requests());
        let error = Args::try_parse_from(["kubectl-evenkeel", "status", "--as-group", "dev"]);
        assert_eq!(
            error.unwrap_err().kind(),
            ErrorKind::MissingRequiredArgument
        );
    }

    #[test]
    fn verbosity_and_timeouts_are_written_as_for_kubectl() {
        let connection = |flag: &str| {
            Args::parse_from(["kubectl-evenkeel", flag, "status", "orders"]).connection
        };
        assert!(connection("-v").prints_requests());
        assert!(connection("-v=8").prints_requests());
        assert!(connection("--v=6").prints_requests());
        assert!(!connection("-v=2").prints_requests());
        assert!(!connection("--color=never").prints_requests());
        let timeout = |text: &str| connection(&format!("--request-timeout={text}")).request_timeout;
        let after = |seconds| Some(RequestTimeout::After(Duration::from_secs(seconds)));
        assert_eq!(timeout("10s"), after(10));
        assert_eq!(timeout("2m"), after(120));
        assert_eq!(timeout("3"), after(3));
        assert_eq!(
            timeout("500ms"),
            Some(RequestTimeout::After(Duration::from_millis(500)))
        );
        assert_eq!(timeout("0"), Some(RequestTimeout::None));
        assert_eq!(timeout("0s"), Some(RequestTimeout::None));
        assert!(parse_timeout("soon").is_err());
    }
}
