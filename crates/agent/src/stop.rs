//! The end of a task by its deadline or by SIGTERM.

use evenkeel_archive::tasks::FailureReason;
use tokio::sync::watch;

use crate::AgentFailure;

/// Why a task is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// The deadline, in seconds.
    Deadline(u64),
    /// SIGTERM: the pod is being deleted.
    Terminated,
}

impl StopCause {
    /// Returns the failure of the stopped task.
    pub fn failure(self) -> AgentFailure {
        match self {
            Self::Deadline(seconds) => AgentFailure::new(
                FailureReason::DeadlineExceeded,
                format!(
                    "The task did not end within {seconds} s. Allow it more time, or find the cause in the log of the pod."
                ),
            ),
            Self::Terminated => AgentFailure::new(
                FailureReason::Other,
                "The pod was stopped before the task was done. Another attempt can succeed.",
            ),
        }
    }
}

/// A signal that a task waits for while it works, so that it can clean up.
#[derive(Clone, Debug)]
pub struct StopSignal(watch::Receiver<Option<StopCause>>);

impl StopSignal {
    /// Returns a signal and the sender that raises it.
    pub fn new() -> (watch::Sender<Option<StopCause>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// Waits until the task must stop.
    pub async fn stopped(&self) -> StopCause {
        let mut receiver = self.0.clone();
        loop {
            if let Some(cause) = *receiver.borrow_and_update() {
                return cause;
            }
            if receiver.changed().await.is_err() {
                // Without a sender the task is never stopped.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the result of a future, or the failure of a task that is stopped. The future is then dropped.
    pub async fn limit<T>(
        &self,
        future: impl Future<Output = Result<T, AgentFailure>>,
    ) -> Result<T, AgentFailure> {
        tokio::select! {
            biased;
            cause = self.stopped() => Err(cause.failure()),
            result = future => result,
        }
    }
}
