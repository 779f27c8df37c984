//! Classifies errors: either the operation certainly had no effect, or its outcome is unknown. In doubt it is
//! unknown.

use std::error::Error as _;

use etcd_client::Error;

use crate::history::OperationOutcome;

/// Errors that etcd returns before a request enters the log, or instead of applying it. Other errors do not belong
/// here because the write may still have been applied: "request timed out", "leader changed", "server stopped", and
/// even "database space exceeded", with which a member applies a write that found the quota already exhausted.
const DEFINITE_FAILURES: [&str; 7] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: request is too large",
    "etcdserver: permission denied",
    "etcdserver: user name is empty",
    "etcdserver: invalid auth token",
    "etcdserver: rpc not supported for learner",
];

/// Returns the outcome of an operation that ended with this error.
pub(crate) fn of_error(error: &Error) -> OperationOutcome {
    let text = match error {
        Error::GRpcStatus(status) => format!("{}: {}", status.code(), status.message()).into(),
        other => other.to_string().into(),
    };
    if is_definite_failure(error) {
        OperationOutcome::Failed(text)
    } else {
        OperationOutcome::Unknown(text)
    }
}

fn is_definite_failure(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    if DEFINITE_FAILURES.contains(&status.message()) {
        return true;
    }
    // Without a connection nothing was sent.
    let mut source = status.source();
    for _ in 0..16 {
        let Some(cause) = source else { return false };
        if cause.is::<tonic::ConnectError>() {
            return true;
        }
        source = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{ConnectionPurpose, connect};
    use tonic::{Code, Status};

    fn outcome(code: Code, message: &str) -> OperationOutcome {
        of_error(&Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn only_errors_returned_before_any_effect_count_as_failed() {
        assert!(matches!(
            outcome(Code::Unavailable, "etcdserver: no leader"),
            OperationOutcome::Failed(_)
        ));
        assert!(matches!(
            outcome(Code::PermissionDenied, "etcdserver: permission denied"),
            OperationOutcome::Failed(_)
        ));
        for message in [
            "etcdserver: request timed out",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "etcdserver: mvcc: database space exceeded",
            "transport error",
            "anything else",
        ] {
            assert!(
                matches!(
                    outcome(Code::Unavailable, message),
                    OperationOutcome::Unknown(_)
                ),
                "{message}"
            );
        }
        assert!(matches!(
            of_error(&Error::Internal("test".into())),
            OperationOutcome::Unknown(_)
        ));
    }

    #[test]
    fn a_request_that_was_never_sent_has_failed() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let outcome = runtime.block_on(async {
            // A port that was free a moment ago and has no listener.
            let port = std::net::TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            let endpoint = format!("http://127.0.0.1:{port}");
            let timeout = std::time::Duration::from_secs(1);
            let mut client = connect(&endpoint, None, timeout, ConnectionPurpose::Calls)
                .await
                .unwrap();
            of_error(&client.put("key", "value", None).await.unwrap_err())
        });
        assert!(
            matches!(outcome, OperationOutcome::Failed(_)),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_connection_that_breaks_after_the_request_leaves_it_unknown() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let outcome = runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = format!("http://{}", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                use std::io::Read;
                let (mut stream, _) = listener.accept().unwrap();
                let mut buffer = [0; 64];
                let _ = stream.read(&mut buffer);
            });
            let timeout = std::time::Duration::from_secs(1);
            let mut client = connect(&endpoint, None, timeout, ConnectionPurpose::Calls)
                .await
                .unwrap();
            let outcome = of_error(&client.put("key", "value", None).await.unwrap_err());
            server.join().unwrap();
            outcome
        });
        assert!(
            matches!(outcome, OperationOutcome::Unknown(_)),
            "{outcome:?}"
        );
    }
}
