//! Keys and values of labels and annotations, and names, as Kubernetes takes them: a pod or a Service with others is refused when it is
//! made, which would be when a member is restarted.

/// A name of up to 63 letters, digits, dots, dashes and underscores between letters or digits.
fn is_plain(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(it))
}

/// Names in lower case with dots between.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// The key of a label or an annotation: a name, perhaps with a domain and a slash before it.
pub(crate) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_plain(name),
        None => is_plain(text),
    }
}

/// The value of a label.
pub(crate) fn is_value(text: &str) -> bool {
    text.is_empty() || is_plain(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_those_that_kubernetes_takes() {
        for key in [
            "disk",
            "topology.kubernetes.io/zone",
            "a_b.c-D",
            "0",
            &"a".repeat(63),
        ] {
            assert!(is_key(key), "{key}");
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
            assert!(!is_key(key), "{key}");
        }
        assert!(is_value("") && is_value("ssd") && !is_value("an ssd") && !is_value("a/b"));
        assert!(
            is_subdomain("high")
                && is_subdomain("a.b-c")
                && !is_subdomain("High!")
                && !is_subdomain("a..b")
        );
    }
}
