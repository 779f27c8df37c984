//! What the program can be told: by flags, or by variables of the environment.

use std::time::Duration;

use clap::Parser;
use evenkeel_runtime::program;

/// Runs stateful services on Kubernetes: etcd, so far.
#[derive(Clone, Debug, Parser)]
#[command(name = "evenkeel-operator", version, max_term_width = 110)]
pub(crate) struct Flags {
    /// What every such program can be told.
    #[command(flatten)]
    pub(crate) program: program::Flags,
    /// How often certificates are looked at, such as 10m or 90s: Secrets are not watched. They are also looked at when
    /// anything else of their cluster changes
    #[arg(long, env = "EVENKEEL_SECRETS_INTERVAL", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub(crate) secrets_interval: Duration,
}

/// A duration as it is written in resources, too; none at all is no interval.
fn duration(text: &str) -> Result<Duration, String> {
    let read = evenkeel_api::retention::parse(text).map_err(|why| why.to_string())?;
    let read =
        read.ok_or_else(|| "an interval is not 0: write a duration such as 10m or 90s".to_owned())?;
    if read > LONGEST {
        return Err("at most 24h: certificates are renewed when they are looked at".to_owned());
    }
    Ok(read)
}

const LONGEST: Duration = Duration::from_secs(86_400);

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
        let read =
            |text: &str| Flags::try_parse_from(["evenkeel-operator", "--secrets-interval", text]);
        assert_eq!(
            read("90s").unwrap().secrets_interval,
            Duration::from_secs(90)
        );
        assert_eq!(
            Flags::parse_from(["evenkeel-operator"]).secrets_interval,
            Duration::from_secs(600)
        );
        assert!(read("0").is_err() && read("soon").is_err() && read("25h").is_err());
    }

    #[test]
    fn what_every_such_program_can_be_told_this_one_can() {
        let flags = Flags::parse_from(["evenkeel-operator", "--namespaces", "shop,bank"]);
        assert_eq!(flags.program.namespaces, ["shop", "bank"]);
    }
}
