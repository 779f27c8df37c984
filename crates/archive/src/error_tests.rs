use super::*;

fn answered(status: &str, code: &str) -> object_store::Error {
    object_store::Error::Generic {
        store: "S3",
        source: format!(
            "Error performing PUT https://s3.example/b/k in 1ms - Server returned non-2xx status code: {status}: \
             <?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Some\nwords.</Message><AWSAccessKeyId>AKIACANARY\
             </AWSAccessKeyId></Error>"
        )
        .into(),
    }
}

#[test]
fn codes_of_servers_have_precise_reasons() {
    for (status, code, reason) in [
        (
            "404 Not Found",
            "NoSuchBucket",
            FailureReason::BucketNotFound,
        ),
        (
            "403 Forbidden",
            "InvalidAccessKeyId",
            FailureReason::InvalidCredentials,
        ),
        (
            "403 Forbidden",
            "SignatureDoesNotMatch",
            FailureReason::InvalidCredentials,
        ),
        (
            "400 Bad Request",
            "ExpiredToken",
            FailureReason::InvalidCredentials,
        ),
        (
            "404 Not Found",
            "XAdminUserNotFound",
            FailureReason::InvalidCredentials,
        ),
        (
            "403 Forbidden",
            "RequestTimeTooSkewed",
            FailureReason::InvalidCredentials,
        ),
        ("403 Forbidden", "AccessDenied", FailureReason::AccessDenied),
        (
            "400 Bad Request",
            "KMS.NotFoundException",
            FailureReason::AccessDenied,
        ),
        (
            "400 Bad Request",
            "AuthorizationHeaderMalformed",
            FailureReason::WrongRegion,
        ),
        ("301 Moved", "PermanentRedirect", FailureReason::WrongRegion),
        (
            "507 Insufficient Storage",
            "XMinioStorageFull",
            FailureReason::StoreFull,
        ),
        ("403 Forbidden", "QuotaExceeded", FailureReason::StoreFull),
        ("503 Slow", "SlowDown", FailureReason::StoreFailed),
        ("500 Oops", "InternalError", FailureReason::StoreFailed),
    ] {
        let error = StoreError::of("write x", &answered(status, code));
        assert_eq!(error.reason, reason, "{code}");
        assert!(
            error.message.starts_with(&format!(
                "failed to write x: the server answered {code}: Some words. "
            )),
            "{error}"
        );
        assert!(!error.message.contains("AKIACANARY"), "{error}");
    }
}

#[test]
fn statuses_without_a_body_have_reasons() {
    for (status, reason) in [
        ("401 Unauthorized: ", FailureReason::InvalidCredentials),
        ("403 Forbidden: ", FailureReason::AccessDenied),
        ("302 Found: ", FailureReason::WrongRegion),
        ("507 Insufficient Storage: ", FailureReason::StoreFull),
        ("500 Internal Server Error: ", FailureReason::StoreFailed),
    ] {
        let error = object_store::Error::Generic {
            store: "S3",
            source: format!("Server returned non-2xx status code: {status}").into(),
        };
        assert_eq!(StoreError::of("write x", &error).reason, reason, "{status}");
    }
}

#[test]
fn errors_of_volumes_have_reasons() {
    for (kind, reason) in [
        (io::ErrorKind::StorageFull, FailureReason::StoreFull),
        (io::ErrorKind::QuotaExceeded, FailureReason::StoreFull),
        (io::ErrorKind::PermissionDenied, FailureReason::AccessDenied),
        (
            io::ErrorKind::ReadOnlyFilesystem,
            FailureReason::AccessDenied,
        ),
        (
            io::ErrorKind::StaleNetworkFileHandle,
            FailureReason::StoreFailed,
        ),
    ] {
        let error = object_store::Error::Generic {
            store: "local",
            source: Box::new(io::Error::from(kind)),
        };
        assert_eq!(StoreError::of("write x", &error).reason, reason, "{kind}");
    }
}

#[test]
fn a_missing_bucket_is_not_a_missing_object() {
    let missing = |code: &str| object_store::Error::NotFound {
        path: "k".to_owned(),
        source: format!("<Error><Code>{code}</Code></Error>").into(),
    };
    assert!(is_not_found(&missing("NoSuchKey")));
    assert!(!is_not_found(&missing("NoSuchBucket")));
    let error = StoreError::of("find k", &missing("NoSuchBucket"));
    assert_eq!(error.reason, FailureReason::BucketNotFound);
}

#[test]
fn own_errors_pass_through_the_client() {
    let own = StoreError::new(FailureReason::InvalidCredentials, "no key");
    let wrapped = object_store::Error::Generic {
        store: "S3",
        source: Box::new(own.clone()),
    };
    assert_eq!(StoreError::of("write x", &wrapped), own);
    let deeper = object_store::Error::Generic {
        store: "S3",
        source: Box::new(io::Error::other(own.clone())),
    };
    assert_eq!(StoreError::of("write x", &deeper), own);
}

#[test]
fn messages_are_bounded_and_printable() {
    let error = StoreError::new(FailureReason::Other, "ä\n\u{1b}[31m".repeat(1000));
    assert!(error.message.len() <= MAX_MESSAGE_BYTES);
    assert!(!error.message.chars().any(char::is_control));
    let failure = TaskFailure::from(error.clone());
    assert_eq!(failure.message, error.message);
    assert!(serde_json::to_vec(&failure).unwrap().len() < 4096);
}

#[test]
fn quotations_of_servers_are_unescaped() {
    let error = object_store::Error::Generic {
        store: "S3",
        source: "<Code>AuthorizationHeaderMalformed</Code><Message>expecting &#34;eu&#34; &amp;lt;</Message>".into(),
    };
    let error = StoreError::of("write x", &error);
    assert!(error.message.contains("expecting \"eu\" &lt;"), "{error}");
}
