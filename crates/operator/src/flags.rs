//! What the program can be told: by flags, or by variables of the environment.

use std::net::SocketAddr;

use clap::{Parser, ValueEnum};

/// Runs stateful services on Kubernetes: etcd, so far.
#[derive(Clone, Debug, Parser)]
#[command(name = "evenkeel-operator", version, max_term_width = 110)]
pub(crate) struct Flags {
    /// The namespaces to look after, separated by commas; all of them if not given
    #[arg(long, env = "EVENKEEL_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) namespaces: Vec<String>,
    /// Where the lease is that tells which of several replicas acts; by default the namespace that the program runs in
    #[arg(long, env = "EVENKEEL_LEASE_NAMESPACE", value_name = "NAME")]
    pub(crate) lease_namespace: Option<String>,
    /// What the lease is called. Operators that look after different namespaces need leases of different names or places
    #[arg(long, env = "EVENKEEL_LEASE_NAME", default_value = "evenkeel-operator", value_name = "NAME")]
    pub(crate) lease_name: String,
    /// Where /livez, /readyz and /metrics are served
    #[arg(long, env = "EVENKEEL_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// What is logged: a level, or levels by module, such as info,evenkeel=debug
    #[arg(long, env = "EVENKEEL_LOG", default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
    /// How it is logged
    #[arg(long, env = "EVENKEEL_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub(crate) log_format: LogFormat,
    /// Who this is, among its replicas; by default the name of the machine, which is the pod's
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub(crate) identity: Option<String>,
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// An object a line, for machines
    Json,
    /// Text, for people
    Text,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn namespaces_are_separated_by_commas() {
        let flags = Flags::parse_from(["evenkeel-operator", "--namespaces", "shop,bank"]);
        assert_eq!(flags.namespaces, ["shop", "bank"]);
        assert!(Flags::parse_from(["evenkeel-operator"]).namespaces.is_empty());
    }
}
