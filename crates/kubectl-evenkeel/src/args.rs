//! What can be typed.

use std::path::PathBuf;

use clap::{Args as Flags, Parser, Subcommand, ValueEnum};

/// How Evenkeel's clusters are, why, and what can be done about it.
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
    pub(crate) reach: Reach,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXIT_CODES: &str = "Exit codes:
  0  all is well, or it was done
  1  it could not be done
  2  it was not understood
  3  status: clients can write, but something is amiss
  4  status: clients cannot write, or nobody knows
  5  there is no such cluster, or Evenkeel is not installed
  6  you are not allowed to
  7  Kubernetes does not answer";

/// Which Kubernetes, and where in it: as for kubectl.
#[derive(Clone, Debug, Default, Flags)]
pub(crate) struct Reach {
    /// The kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Whether to use colours
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN")]
    pub(crate) color: Colour,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// In which form to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
    /// For programs that people read
    Yaml,
}

/// One cluster.
#[derive(Clone, Debug, Flags)]
pub(crate) struct Which {
    /// The cluster; may be left out where there is only one
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// How a cluster is: can it be written to, what may still fail, who its members are, what is going on
    Status {
        #[command(flatten)]
        which: Which,
        /// The clusters of all namespaces, a line each
        #[arg(short = 'A', long, conflicts_with = "cluster")]
        all_namespaces: bool,
        /// In which form
        #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
        output: Output,
    },
    /// Why it is so: what is wanted, what is in the way, what you can do; and what was decided last, on which facts
    Why {
        #[command(flatten)]
        which: Which,
        /// How many decisions
        #[arg(long, default_value_t = 5, value_name = "COUNT")]
        last: usize,
        /// With the facts that each decision rested on
        #[arg(long)]
        facts: bool,
        /// In which form
        #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
        output: Output,
    },
    /// What would be done, one thing after another, if the resource were as in a file; nothing is changed
    Plan {
        #[command(flatten)]
        which: Which,
        /// The resource as it is to be, for kubectl apply; - is the standard input; left out, it stays as it is
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// With what is only written down
        #[arg(long)]
        all: bool,
        /// In which form
        #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
        output: Output,
    },
    /// Run etcdctl in a member, with its certificates: kubectl evenkeel etcdctl orders -- get --prefix /
    Etcdctl {
        /// The cluster
        #[arg(value_name = "CLUSTER")]
        cluster: String,
        /// The member; by default the one that leads
        #[arg(long, value_name = "NAME")]
        member: Option<String>,
        /// What etcdctl is to do
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            required = true,
            value_name = "ARGUMENTS"
        )]
        arguments: Vec<String>,
    },
    /// What the members log, merged by time
    Logs {
        #[command(flatten)]
        which: Which,
        /// Go on as they write more
        #[arg(short, long)]
        follow: bool,
        /// So many lines of each member, from the end
        #[arg(long, value_name = "COUNT")]
        tail: Option<i64>,
        /// Only what is not older, such as 10m
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        since: Option<i64>,
        /// What ran before the last restart
        #[arg(short, long, conflicts_with = "follow")]
        previous: bool,
    },
    /// Hand the lead to another member
    MoveLeader {
        #[command(flatten)]
        which: Which,
        /// To whom; by default the next one that serves
        #[arg(long, value_name = "MEMBER")]
        to: Option<String>,
    },
    /// Restart the members one by one, whoever leads last
    Restart {
        #[command(flatten)]
        which: Which,
    },
    /// Leave a cluster alone: its members go on, nothing is changed or healed
    Pause {
        #[command(flatten)]
        which: Which,
    },
    /// Look after it again
    Resume {
        #[command(flatten)]
        which: Which,
    },
    /// The reference of the plugin, or of the conditions, as Markdown
    #[command(name = "__reference", hide = true)]
    Reference {
        /// Of what
        of: Reference,
    },
    /// What may be typed next, for shells
    #[command(name = "__complete", hide = true)]
    Complete {
        /// What was typed
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// What there is a reference of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reference {
    /// What can be typed
    Verbs,
    /// Conditions and reasons, with what a person can do
    Conditions,
}

/// A duration as it is written in resources, in seconds.
fn duration(text: &str) -> Result<i64, String> {
    let read = evenkeel_api::retention::parse(text).map_err(|why| why.to_string())?;
    let seconds = read.unwrap_or_default().as_secs();
    i64::try_from(seconds.max(1)).map_err(|_| "that is longer than anything".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_can_be_typed_makes_sense() {
        Args::command().debug_assert();
    }

    #[test]
    fn etcdctl_gets_all_that_follows_the_cluster() {
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
        assert_eq!(args.reach.namespace.as_deref(), Some("shop"));
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
    fn a_namespace_may_stand_anywhere() {
        for typed in [
            ["kubectl-evenkeel", "-n", "shop", "status"],
            ["kubectl-evenkeel", "status", "-n", "shop"],
        ] {
            assert_eq!(
                Args::parse_from(typed).reach.namespace.as_deref(),
                Some("shop")
            );
        }
    }
}
