//! What the program can be told: by flags, or by variables of the environment.

use std::net::SocketAddr;
use std::time::Duration;

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
    /// How often certificates are looked at, such as 10m or 90s: Secrets are not watched. They are also looked at when
    /// anything else of their cluster changes
    #[arg(long, env = "EVENKEEL_SECRETS_INTERVAL", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub(crate) secrets_interval: Duration,
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

/// A duration as it is written in resources, too; none at all is no interval.
fn duration(text: &str) -> Result<Duration, String> {
    let read = evenkeel_api::retention::parse(text).map_err(|why| why.to_string())?;
    let read = read.ok_or_else(|| "an interval is not 0: write a duration such as 10m or 90s".to_owned())?;
    if read > LONGEST {
        return Err("at most 24h: certificates are renewed when they are looked at".to_owned());
    }
    Ok(read)
}

const LONGEST: Duration = Duration::from_secs(86_400);

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
    fn the_interval_of_certificates_is_a_duration_and_not_nought() {
        let read = |text: &str| Flags::try_parse_from(["evenkeel-operator", "--secrets-interval", text]);
        assert_eq!(read("90s").unwrap().secrets_interval, Duration::from_secs(90));
        assert_eq!(Flags::parse_from(["evenkeel-operator"]).secrets_interval, Duration::from_secs(600));
        assert!(read("0").is_err() && read("soon").is_err() && read("25h").is_err());
    }

    #[test]
    fn namespaces_are_separated_by_commas() {
        let flags = Flags::parse_from(["evenkeel-operator", "--namespaces", "shop,bank"]);
        assert_eq!(flags.namespaces, ["shop", "bank"]);
        assert!(Flags::parse_from(["evenkeel-operator"]).namespaces.is_empty());
    }
}
