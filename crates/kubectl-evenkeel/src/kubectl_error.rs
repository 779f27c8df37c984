//! Turns the error output of kubectl, and of etcdctl in a pod, into an error with an exit code.

use crate::error::CliError;
use crate::permission::MissingPermission;

/// Classifies the output of kubectl, if the error is about the connection or a permission. `action` completes
/// "cannot …".
pub(crate) fn connection_error(action: &str, stderr: &str) -> Option<CliError> {
    if let Some(permission) = MissingPermission::parse(stderr) {
        return Some(CliError::forbidden(action, &permission));
    }
    if stderr.contains("(Unauthorized)") {
        return Some(CliError::unauthorized());
    }
    let unreachable = [
        "nable to connect to the server",
        "connection to the server",
        "no such host",
        "request did not complete within",
        "context deadline exceeded (Client.Timeout",
    ];
    if unreachable.iter().any(|words| stderr.contains(words)) {
        return Some(CliError::unreachable(action, &without_prefix(stderr)));
    }
    None
}

/// Returns the error of a command in the pod of a member. `action` completes "cannot …".
pub(crate) fn exec_error(action: &str, pod: &str, stderr: &str) -> CliError {
    if let Some(error) = connection_error(action, stderr) {
        return error;
    }
    let fail = |reason: &str| CliError::new(format!("cannot {action}: {reason}"));
    let look = format!("`kubectl describe pod {pod}` shows its state");
    if stderr.contains("(NotFound)") {
        return fail(&format!("Pod {pod} does not exist"))
            .help("`kubectl evenkeel why` shows the reason");
    }
    let not_running = [
        "container not found",
        "unable to upgrade connection",
        "cannot exec into a container in a completed pod",
        "does not have a host assigned",
        "is not running",
    ];
    if not_running.iter().any(|words| stderr.contains(words)) {
        return fail(&format!("the container of Pod {pod} is not running")).help(look);
    }
    if stderr.contains("error dialing backend") || stderr.contains("dial tcp") {
        return fail(&format!(
            "the kubelet on the node of Pod {pod} does not respond"
        ))
        .help(look);
    }
    fail(&etcdctl_error(stderr))
}

/// Returns etcdctl's own error, without its log and kubectl's remark about the exit code.
pub(crate) fn etcdctl_error(stderr: &str) -> String {
    let is_noise = |line: &&str| {
        line.is_empty() || line.starts_with('{') || line.starts_with("command terminated with exit")
    };
    let lines: Vec<_> = stderr
        .lines()
        .map(str::trim)
        .filter(|line| !is_noise(line))
        .collect();
    if lines.is_empty() {
        return "etcdctl failed without a message".to_owned();
    }
    without_prefix(&lines.join("; "))
}

/// Removes the prefixes of kubectl and etcdctl: the plugin adds its own.
pub(crate) fn without_prefix(stderr: &str) -> String {
    let text = stderr.trim();
    let text = text
        .strip_prefix("error: ")
        .or_else(|| text.strip_prefix("Error: "))
        .unwrap_or(text);
    text.to_owned()
}

/// Separates the lines that kubectl logs because of `-v` from the others.
pub(crate) fn split_log(stderr: &str) -> (String, String) {
    stderr.split_inclusive('\n').partition(|line| is_log(line))
}

/// Returns whether a line begins like those of kubectl's log: a letter for the severity, and four digits for the date.
fn is_log(line: &str) -> bool {
    let bytes = line.as_bytes();
    bytes.len() > 5
        && b"IWEF".contains(&bytes[0])
        && bytes[1..5].iter().all(u8::is_ascii_digit)
        && bytes[5] == b' '
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{EXIT_FAILED, EXIT_FORBIDDEN, EXIT_UNREACHABLE};

    fn error(stderr: &str) -> CliError {
        exec_error("transfer leadership", "orders-x", stderr)
    }

    #[test]
    fn a_missing_permission_for_exec_has_exit_code_6() {
        let error = error(
            "Error from server (Forbidden): pods \"orders-x\" is forbidden: User \"jane\" cannot create resource \
             \"pods/exec\" in API group \"\" in the namespace \"rv-a\"\n",
        );
        assert_eq!(error.exit_code, EXIT_FORBIDDEN);
        assert_eq!(
            error.message,
            "cannot transfer leadership: user jane needs create on pods/exec in namespace rv-a"
        );
    }

    #[test]
    fn errors_of_kubectl_name_the_cause() {
        let cases = [
            (
                "Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout",
                EXIT_UNREACHABLE,
                "the Kubernetes API does not respond",
            ),
            (
                "error: You must be logged in to the server (Unauthorized)",
                EXIT_FORBIDDEN,
                "rejected your credentials",
            ),
            (
                "Error from server (NotFound): pods \"orders-x\" not found",
                EXIT_FAILED,
                "Pod orders-x does not exist",
            ),
            (
                "error: unable to upgrade connection: container not found (\"etcd\")",
                EXIT_FAILED,
                "the container of Pod orders-x is not running",
            ),
            (
                "Error from server: error dialing backend: dial tcp 10.0.0.3:10250: connect: no route to host",
                EXIT_FAILED,
                "the kubelet on the node of Pod orders-x does not respond",
            ),
        ];
        for (stderr, exit_code, words) in cases {
            let error = error(stderr);
            assert_eq!(error.exit_code, exit_code, "{stderr}");
            assert!(error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn etcdctls_error_comes_without_its_log() {
        let stderr = "{\"level\":\"warn\",\"ts\":\"2026-11-17T23:24:58Z\",\"msg\":\"retrying\"}\n\
            Error: no leader endpoint given at [https://localhost:2379]\ncommand terminated with exit code 1\n";
        assert_eq!(
            error(stderr).message,
            "cannot transfer leadership: no leader endpoint given at [https://localhost:2379]"
        );
        assert_eq!(
            etcdctl_error("command terminated with exit code 137"),
            "etcdctl failed without a message"
        );
    }

    #[test]
    fn kubectls_log_is_separated_from_its_errors() {
        let stderr = "I1118 01:02:03.000000  77 round_trippers.go:632] \"Response\" verb=\"GET\" status=\"200 OK\"\n\
            error: timed out\n";
        let (log, rest) = split_log(stderr);
        assert!(log.starts_with("I1118") && log.ends_with("OK\"\n"), "{log}");
        assert_eq!(rest, "error: timed out\n");
    }
}
