//! The command line. Every flag can also be set by an environment variable.

use std::time::Duration;

use clap::Parser;
use evenkeel_runtime::program;

/// Runs database clusters on Kubernetes.
#[derive(Clone, Debug, Parser)]
#[command(name = "evenkeel-operator", version, max_term_width = 110)]
pub(crate) struct Flags {
    /// The flags of every program that is built on the runtime.
    #[command(flatten)]
    pub(crate) program: program::Flags,
    /// Interval at which the certificates of each cluster are checked, such as 10m or 90s. Secrets are not watched; they
    /// are also checked when another object of their cluster changes
    #[arg(long, env = "EVENKEEL_SECRETS_INTERVAL", default_value = "10m", value_parser = parse_interval, value_name = "DURATION")]
    pub(crate) secrets_interval: Duration,
    /// Image of the agent, which runs in the pods that check stores and take backups: the image of this operator. Backups
    /// require it
    #[arg(long, env = "EVENKEEL_AGENT_IMAGE", value_name = "IMAGE")]
    agent_image: Option<String>,
}

impl Flags {
    /// Returns the image of the agent. An empty one counts as not set: a chart may set the variable always.
    pub(crate) fn agent_image(&self) -> Option<&str> {
        let image = self.agent_image.as_deref()?.trim();
        (!image.is_empty()).then_some(image)
    }
}

/// Certificates are renewed when they are checked, so they must be checked often enough.
const MAX_SECRETS_INTERVAL: Duration = Duration::from_secs(86_400);

/// Parses a duration above zero in the notation of the resources.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = evenkeel_api::duration::parse(text)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| "the interval must be above 0, such as 10m or 90s".to_owned())?;
    if interval > MAX_SECRETS_INTERVAL {
        return Err(
            "the interval must be at most 24h: certificates are renewed when they are checked"
                .to_owned(),
        );
    }
    Ok(interval)
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
    fn the_secrets_interval_is_between_zero_and_24h() {
        let parse =
            |text: &str| Flags::try_parse_from(["evenkeel-operator", "--secrets-interval", text]);
        assert_eq!(
            parse("90s").unwrap().secrets_interval,
            Duration::from_secs(90)
        );
        assert_eq!(
            Flags::parse_from(["evenkeel-operator"]).secrets_interval,
            Duration::from_secs(600)
        );
        assert!(parse("0").is_err() && parse("soon").is_err() && parse("25h").is_err());
    }

    #[test]
    fn an_empty_agent_image_counts_as_not_set() {
        let image = |text: &str| {
            let flags = Flags::parse_from(["evenkeel-operator", "--agent-image", text]);
            flags.agent_image().map(ToOwned::to_owned)
        };
        assert_eq!(image("evenkeel:1").as_deref(), Some("evenkeel:1"));
        assert_eq!(image(""), None);
        assert_eq!(Flags::parse_from(["evenkeel-operator"]).agent_image(), None);
    }

    #[test]
    fn the_flags_of_the_runtime_are_accepted() {
        let flags = Flags::parse_from(["evenkeel-operator", "--namespaces", "shop,bank"]);
        assert_eq!(flags.program.namespaces, ["shop", "bank"]);
    }
}
