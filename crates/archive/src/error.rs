//! Errors of stores: a machine-readable reason, and a message that says what to change.

use std::error::Error;
use std::io;

use crate::tasks::{FailureReason, TaskFailure};

/// The longest message in bytes: an outcome of the agent has at most 4,096 bytes of JSON.
const MAX_MESSAGE_BYTES: usize = 1000;
/// The longest quotation of a server's message in bytes.
const MAX_QUOTE_BYTES: usize = 200;

/// A failure of a store or of a backup in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// The machine-readable reason.
    pub reason: FailureReason,
    /// The problem and its remedy, for people.
    pub message: String,
}

impl StoreError {
    /// Returns an error. A long message is cut.
    pub fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: printable(&message.into(), MAX_MESSAGE_BYTES),
        }
    }

    pub(crate) fn damaged(message: impl Into<String>) -> Self {
        Self::new(FailureReason::BackupDamaged, message)
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(FailureReason::InvalidRequest, message)
    }

    /// Returns the error of a local file or directory.
    pub(crate) fn io(action: &str, error: &io::Error) -> Self {
        let (reason, remedy) = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (FailureReason::NoSpace, " Enlarge the volume.")
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (FailureReason::AccessDenied, " Make the volume writable.")
            }
            _ => (FailureReason::Other, ""),
        };
        Self::new(reason, format!("failed to {action}: {error}.{remedy}"))
    }

    /// Returns the error of an operation on a store. `action` completes the sentence "failed to …".
    pub(crate) fn of(action: &str, error: &object_store::Error) -> Self {
        if let Some(own) = find::<Self>(error) {
            return own.clone();
        }
        let classified = classify(error);
        Self::new(
            classified.reason,
            format!(
                "failed to {action}: {}. {}",
                classified.fact, classified.remedy
            ),
        )
    }
}

impl From<StoreError> for TaskFailure {
    fn from(error: StoreError) -> Self {
        Self {
            reason: error.reason,
            message: error.message,
        }
    }
}

/// Returns true if the store reports that it has no such object. A missing bucket is another error.
pub(crate) fn is_not_found(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
        && element(&chain(error), "Code").is_none_or(|code| code != "NoSuchBucket")
}

/// Returns true if a conditional write failed because the object exists.
pub(crate) fn is_already_there(error: &object_store::Error) -> bool {
    matches!(
        error,
        object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }
    ) && !is_conflict(error)
}

/// Returns true if a conditional write failed because another one for the same object was not finished: S3 answers 409 and
/// `ConditionalRequestConflict`. It answers 412 if the object exists. `object_store` reports both as an existing object.
pub(crate) fn is_conflict(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. }) && status(&chain(error)) == Some(409)
}

/// Returns true if the store does not implement conditional writes: servers answer 501, file systems without hard links
/// report that the operation is not supported.
pub(crate) fn is_not_implemented(error: &object_store::Error) -> bool {
    if matches!(
        error,
        object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }
    ) {
        return true;
    }
    let text = chain(error);
    if let Some(code) = element(&text, "Code") {
        return code == "NotImplemented";
    }
    find::<io::Error>(error).is_some_and(|error| {
        error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(1)
    })
}

/// Returns true if the store denies the operation, as it does for objects under a retention lock.
pub(crate) fn is_denied(error: &object_store::Error) -> bool {
    classify(error).reason == FailureReason::AccessDenied
}

/// Returns true if the request has certainly had no effect and will have none.
pub(crate) fn is_definite(error: &StoreError) -> bool {
    matches!(
        error.reason,
        FailureReason::AccessDenied
            | FailureReason::InvalidCredentials
            | FailureReason::BucketNotFound
            | FailureReason::WrongRegion
            | FailureReason::AddressNotAllowed
            | FailureReason::InvalidCertificate
    )
}

struct Classified {
    reason: FailureReason,
    fact: String,
    remedy: &'static str,
}

fn classify(error: &object_store::Error) -> Classified {
    let text = chain(error);
    if let Some(code) = element(&text, "Code") {
        return of_code(code, element(&text, "Message").unwrap_or_default());
    }
    if text.contains("redirect without LOCATION") || text.contains("status code: 30") {
        return Classified {
            reason: FailureReason::WrongRegion,
            fact: "the server redirects to another place, and redirects are not followed"
                .to_owned(),
            remedy: "Correct the region and the endpoint of the store.",
        };
    }
    if let Some(status) = status(&text) {
        return of_status(status);
    }
    if let Some(classified) = of_io(error) {
        return classified;
    }
    of_transport(error, &text)
}

/// Classifies an error code of S3, or of the security token service.
fn of_code(code: &str, message: &str) -> Classified {
    let (reason, remedy) = match code {
        "NoSuchBucket" => (
            FailureReason::BucketNotFound,
            "Create the bucket, or correct its name and the endpoint of the store.",
        ),
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "InvalidToken"
        | "ExpiredToken"
        | "TokenRefreshRequired"
        | "InvalidClientTokenId"
        | "InvalidIdentityToken"
        | "ExpiredTokenException"
        | "IDPRejectedClaim"
        | "InvalidSecurity"
        | "XAdminUserNotFound" => (
            FailureReason::InvalidCredentials,
            "Correct accessKeyID, secretAccessKey and sessionToken in the Secret, or the role and the token.",
        ),
        "RequestTimeTooSkewed" => (
            FailureReason::InvalidCredentials,
            "The clocks of the node and of the server differ by more than 15 minutes: synchronize them.",
        ),
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "IncorrectEndpoint"
        | "IllegalLocationConstraintException"
        | "AuthorizationHeaderMalformed" => (
            FailureReason::WrongRegion,
            "Set the region of the store to the region of the bucket.",
        ),
        "QuotaExceeded"
        | "StorageFull"
        | "XMinioStorageFull"
        | "InsufficientStorage"
        | "ServiceQuotaExceeded"
        | "NoSpaceLeft" => (
            FailureReason::StoreFull,
            "Free space in the store, or keep fewer backups.",
        ),
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" | "ObjectLocked"
        | "MethodNotAllowed" => (
            FailureReason::AccessDenied,
            "Allow s3:ListBucket, s3:GetObject, s3:PutObject, s3:AbortMultipartUpload and s3:DeleteObject for the bucket.",
        ),
        "NoSuchKey" => (
            FailureReason::BackupNotFound,
            "List the backups in the store.",
        ),
        "ConditionalRequestConflict" | "OperationAborted" => (
            FailureReason::StoreFailed,
            "Another request wrote the same object at the same time, and repetitions met it again. Try again.",
        ),
        code if code.starts_with("KMS.") => (
            FailureReason::AccessDenied,
            "Correct the key of the key management service, and allow its use.",
        ),
        _ => (
            FailureReason::StoreFailed,
            "Read the logs of the server if the problem remains.",
        ),
    };
    let message = printable(&unescaped(message), MAX_QUOTE_BYTES);
    Classified {
        reason,
        fact: format!(
            "the server answered {}: {}",
            printable(code, 64),
            message.trim_end_matches('.')
        ),
        remedy,
    }
}

/// Classifies a status without a body, as of answers to HEAD requests and of proxies.
fn of_status(status: u16) -> Classified {
    let (reason, remedy) = match status {
        401 => (
            FailureReason::InvalidCredentials,
            "Correct the credentials of the store.",
        ),
        403 => (
            FailureReason::AccessDenied,
            "Correct the credentials, or allow them to read and write the bucket.",
        ),
        404 => (
            FailureReason::BackupNotFound,
            "List the backups in the store.",
        ),
        507 => (
            FailureReason::StoreFull,
            "Free space in the store, or keep fewer backups.",
        ),
        409 => (
            FailureReason::StoreFailed,
            "Another request wrote the same object at the same time, and repetitions met it again. Try again.",
        ),
        400 => (
            FailureReason::StoreFailed,
            "Check the region and the endpoint of the store.",
        ),
        _ => (
            FailureReason::StoreFailed,
            "Read the logs of the server if the problem remains.",
        ),
    };
    Classified {
        reason,
        fact: format!("the server answered with status {status}"),
        remedy,
    }
}

/// Classifies the error of a file system.
fn of_io(error: &object_store::Error) -> Option<Classified> {
    if matches!(error, object_store::Error::NotFound { .. }) {
        return Some(Classified {
            reason: FailureReason::BackupNotFound,
            fact: "the object does not exist".to_owned(),
            remedy: "List the backups in the store.",
        });
    }
    if find::<object_store::client::HttpError>(error).is_some() {
        return None;
    }
    let source = find::<io::Error>(error)?;
    let (reason, remedy) = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
            FailureReason::StoreFull,
            "Enlarge the volume, or keep fewer backups.",
        ),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
            FailureReason::AccessDenied,
            "Make the volume writable for the group of the pod.",
        ),
        _ => (
            FailureReason::StoreFailed,
            "Check the volume if the problem remains.",
        ),
    };
    Some(Classified {
        reason,
        fact: source.to_string(),
        remedy,
    })
}

/// Classifies an error of the connection.
fn of_transport(error: &object_store::Error, text: &str) -> Classified {
    let quoted = || {
        let quoted = printable(deepest(error).trim(), MAX_QUOTE_BYTES);
        quoted.trim_end_matches('.').to_owned()
    };
    if text.contains("invalid peer certificate") || text.contains("UnknownIssuer") {
        return of_certificate(text, quoted());
    }
    if find::<object_store::client::HttpError>(error).is_some() {
        return Classified {
            reason: FailureReason::Unreachable,
            fact: format!("the server cannot be reached: {}", quoted()),
            remedy: "Check the endpoint, the DNS and the NetworkPolicies.",
        };
    }
    Classified {
        reason: FailureReason::StoreFailed,
        fact: printable(text, MAX_QUOTE_BYTES),
        remedy: "Read the logs of the server if the problem remains.",
    }
}

/// Classifies an error of the server's certificate.
fn of_certificate(text: &str, quoted: String) -> Classified {
    let remedy = if text.contains("CaUsedAsEndEntity") {
        "The server uses the certificate of a CA: give it a certificate that the CA has signed."
    } else if text.contains("NotValidForName") || text.contains("not valid for name") {
        "Use a host name of the certificate in spec.s3.endpoint."
    } else if text.contains("Expired") || text.contains("expired") {
        "Renew the certificate of the server."
    } else {
        "Set spec.s3.ca to the CA of the server."
    };
    Classified {
        reason: FailureReason::InvalidCertificate,
        fact: format!("the certificate of the server is not trusted: {quoted}"),
        remedy,
    }
}

/// Returns the first error of type `T` in the chain of sources.
pub(crate) fn find<T: Error + 'static>(error: &object_store::Error) -> Option<&T> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // The source of an io::Error is the source of its content, so the content is looked at itself.
        if let Some(found) = error
            .downcast_ref::<io::Error>()
            .and_then(|error| error.get_ref())
            .and_then(|error| error.downcast_ref::<T>())
        {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Returns the texts of the error and of all its sources.
fn chain(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push('\n');
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

/// Returns the text of the innermost source.
fn deepest(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = error.to_string();
        next = error.source();
    }
    text
}

/// Returns the content of the first XML element of this name.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
        .map(|(content, _)| content.trim())
}

/// Returns a text of XML without escapes.
fn unescaped(text: &str) -> String {
    [
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns the status code in the text of an error.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Returns the text on one line, without control characters, cut to a number of bytes.
pub(crate) fn printable(text: &str, max_bytes: usize) -> String {
    let mut result = String::with_capacity(text.len().min(max_bytes));
    for character in text.chars() {
        let character = if character.is_control() {
            ' '
        } else {
            character
        };
        if result.len() + character.len_utf8() > max_bytes {
            break;
        }
        result.push(character);
    }
    result
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
