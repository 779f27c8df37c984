//! Checks of names, label keys and label values as the API server makes them. The spec is checked early because a bad
//! key would otherwise fail only when a pod or Service is created from it, for example in the middle of a rollout.

/// The longest DNS label, label value, and name part of a label key.
const MAX_LABEL_LENGTH: usize = 63;
/// The longest DNS name.
const MAX_SUBDOMAIN_LENGTH: usize = 253;

/// Returns whether the text has up to 63 letters, digits, dots, dashes and underscores, and begins and ends with a
/// letter or digit.
fn is_qualified_name(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL_LENGTH
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Returns whether the text consists of lower-case letters, digits and dashes, and does not begin or end with a dash.
fn is_dns_label(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns whether the text is a DNS subdomain: labels with dots between them. Kubernetes does not limit the length of
/// the single labels.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN_LENGTH && text.split('.').all(is_dns_label)
}

/// Returns whether the text is a host name in lower case whose first label may be `*`. The last label begins with a
/// letter, so that an IPv4 address is not a host name.
pub(crate) fn is_host_name(text: &str) -> bool {
    let labels = text.strip_prefix("*.").unwrap_or(text);
    let last = labels.rsplit('.').next().unwrap_or_default();
    text.len() <= MAX_SUBDOMAIN_LENGTH
        && is_subdomain(labels)
        && labels
            .split('.')
            .all(|label| label.len() <= MAX_LABEL_LENGTH)
        && last.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Returns whether the text is the key of a label or annotation: a name, optionally with a domain and a slash in front.
pub(crate) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_qualified_name(name),
        None => is_qualified_name(text),
    }
}

/// Returns whether the text is the value of a label.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified_name(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_accepted_as_kubernetes_does() {
        for key in [
            "disk",
            "topology.kubernetes.io/zone",
            "a_b.c-D",
            "0",
            &"a".repeat(63),
        ] {
            assert!(is_label_key(key), "{key}");
        }
        for key in [
            "",
            "a disk",
            "-a",
            "a-",
            "/a",
            "a/",
            "A.example/b",
            "a/b/c",
            "ä",
            &"a".repeat(64),
        ] {
            assert!(!is_label_key(key), "{key}");
        }
        for value in ["", "ssd"] {
            assert!(is_label_value(value), "{value}");
        }
        for value in ["an ssd", "a/b"] {
            assert!(!is_label_value(value), "{value}");
        }
        for name in ["high", "a.b-c"] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in ["High!", "a..b"] {
            assert!(!is_subdomain(name), "{name}");
        }
    }

    #[test]
    fn addresses_ports_and_urls_are_not_host_names() {
        for name in [
            "etcd.corp.example",
            "*.corp.example",
            "etcd",
            "9.etcd.example",
            "xn--bcher-kva.example",
        ] {
            assert!(is_host_name(name), "{name}");
        }
        for name in [
            "",
            "10.0.0.1",
            "::1",
            "Etcd.example",
            "etcd.example:2379",
            "https://etcd",
            "*",
            "a.*.b",
            "-a",
            "a..b",
        ] {
            assert!(!is_host_name(name), "{name}");
        }
    }
}
