//! The error of an observation or an action. Control flow depends on variants, never on texts.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

/// The source of an error of any type. Shared, so that [`Error`] can be reported in several places.
type SharedSource = Arc<dyn StdError + Send + Sync>;

/// An observation or an action failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A request to the Kubernetes API failed.
    #[error("failed to {action}: {}", api_message(source))]
    Kubernetes {
        /// The action in the infinitive, such as "create Pod orders-k7f2x".
        action: String,
        /// The error of the client or the API server.
        source: Arc<kube::Error>,
    },
    /// The spec of the resource cannot be run. Only an edit of the spec ends this error.
    #[error("cannot accept the spec: {0}")]
    InvalidSpec(#[source] SharedSource),
    /// The application or the API server declined the same action many times in a row.
    #[error("{action} was declined at least {times} times in a row: {reason}")]
    RetriesExhausted {
        /// The machine-readable name of the action.
        action: &'static str,
        /// The reason given for the latest rejection.
        reason: String,
        /// A number of attempts that was reached. It does not grow with each attempt: the status contains this text, and a
        /// status that changes triggers the next attempt.
        times: u32,
    },
    /// Several plans in a row had the same actions, or none of their actions could be executed.
    #[error("no progress: {plans} plans in a row changed nothing")]
    NoProgress {
        /// The number of plans.
        plans: usize,
    },
    /// A reconcile was cancelled because it took too long.
    #[error("failed to finish the reconcile within {} s", .0.as_secs())]
    ReconcileTimeout(Duration),
    /// An action has failed in several reconciles. The text stays the same while the reason varies.
    #[error("failed to {action} repeatedly: see the events of this resource for the latest error")]
    FailsRepeatedly {
        /// The action in the infinitive.
        action: String,
    },
    /// Any other failure.
    #[error("failed to {action}: {source}")]
    Other {
        /// The action in the infinitive.
        action: String,
        /// The cause.
        source: SharedSource,
    },
}

/// Returns true if the API server does not serve the kind of the request. It then answers with a text instead of a Status,
/// from which kube makes a Status of another reason than that of a missing object.
pub(crate) fn is_kind_missing(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let texts = ["page not found", "could not find the requested resource"];
    status.code == 404 && texts.iter().any(|text| status.message.contains(text))
}

/// Returns the message of the API server: the `Display` of kube repeats the whole response.
fn api_message(error: &kube::Error) -> String {
    match error {
        error if is_kind_missing(error) => {
            "the API server does not serve this kind. Apply the CustomResourceDefinitions of the operator's release".to_owned()
        }
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

impl Error {
    /// Returns a function for `map_err` that wraps a failed request; `action` is in the infinitive.
    pub fn kubernetes(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        move |source| Self::Kubernetes {
            action,
            source: Arc::new(source),
        }
    }

    /// Wraps the reason why a spec cannot be run.
    pub fn invalid_spec(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::InvalidSpec(source.into().into())
    }

    /// Wraps any other failure; `action` is in the infinitive.
    pub fn other(
        action: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Other {
            action: action.into(),
            source: source.into().into(),
        }
    }

    /// Returns true if the write was rejected for a reason that does not pass by itself: a quota, a webhook, a missing
    /// permission, a missing CustomResourceDefinition, a PodDisruptionBudget that allows no eviction. Timeouts, conflicts and server errors may pass.
    pub fn is_rejected(&self) -> bool {
        match self {
            Self::Kubernetes { source, .. } => {
                is_kind_missing(source)
                    || matches!(&**source, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
            }
            Self::RetriesExhausted { .. } => true,
            Self::InvalidSpec(_)
            | Self::NoProgress { .. }
            | Self::ReconcileTimeout(_)
            | Self::FailsRepeatedly { .. }
            | Self::Other { .. } => false,
        }
    }

    /// Returns true if the API server or the network may be the cause, so that a retry may succeed without any change.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Kubernetes { .. })
    }

    /// Returns the error for the status of a resource that has failed in several reconciles. The text contains no
    /// details: a new text at each attempt would be a change of the resource, which triggers another reconcile.
    pub(crate) fn without_details(&self) -> Self {
        let action = match self {
            Self::Kubernetes { action, .. }
            | Self::Other { action, .. }
            | Self::FailsRepeatedly { action } => action.clone(),
            Self::RetriesExhausted { action, .. } => (*action).to_owned(),
            Self::InvalidSpec(_) => "accept the spec".to_owned(),
            Self::NoProgress { .. } => "make progress".to_owned(),
            Self::ReconcileTimeout(_) => "finish the reconcile in time".to_owned(),
        };
        Self::FailsRepeatedly { action }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_error(code: u16) -> Error {
        let status = kube::core::Status {
            code,
            message: "exceeded quota".to_owned(),
            ..kube::core::Status::default()
        };
        Error::kubernetes("create Pod a")(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn the_source_chain_is_kept() {
        let error = Error::other("read the file", std::io::Error::other("no such disk"));
        assert_eq!(error.to_string(), "failed to read the file: no such disk");
        assert_eq!(error.source().unwrap().to_string(), "no such disk");
        let error = Error::invalid_spec("3.4 is not supported");
        assert_eq!(
            error.to_string(),
            "cannot accept the spec: 3.4 is not supported"
        );
        assert!(api_error(500).source().is_some());
    }

    #[test]
    fn only_permanent_answers_count_as_rejected() {
        for (code, rejected) in [
            (400, true),
            (403, true),
            (422, true),
            (409, false),
            (429, false),
            (500, false),
        ] {
            assert_eq!(api_error(code).is_rejected(), rejected, "{code}");
        }
        assert_eq!(
            api_error(500).to_string(),
            "failed to create Pod a: exceeded quota"
        );
    }

    #[test]
    fn the_text_of_a_repeated_failure_has_no_details() {
        assert_eq!(
            api_error(500).without_details().to_string(),
            "failed to create Pod a repeatedly: see the events of this resource for the latest error"
        );
    }
}
