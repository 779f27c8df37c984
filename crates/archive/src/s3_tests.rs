use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use crate::check::check;
use crate::store::ArchiveStore;
use crate::tasks::StoreConfig;

const STRICT: AddressPolicy = AddressPolicy {
    allow_private: false,
    allow_loopback: false,
};
const DEADLINE: Duration = Duration::from_secs(6);
const SECRET: &str = "canarySecretAccessKey";

fn config(endpoint: &str, credentials: &Path) -> S3Config {
    S3Config {
        bucket: "backups".to_owned(),
        prefix: String::new(),
        region: "eu-central-1".to_owned(),
        endpoint: Some(endpoint.to_owned()),
        path_style: true,
        credentials: CredentialSource::Directory(credentials.to_owned()),
        ca_file: None,
        encryption: None,
        allow_http: true,
        allow_private_addresses: true,
    }
}

fn credentials() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("accessKeyID"), "AKIAEXAMPLE\n").unwrap();
    fs::write(directory.path().join("secretAccessKey"), SECRET).unwrap();
    directory
}

/// Answers each connection on loopback with one text, and returns the URL and the requests.
fn server(answer: &'static str) -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = vec![0; 64 << 10];
            let read = stream.read(&mut buffer).unwrap_or_default();
            seen.lock()
                .unwrap()
                .push(String::from_utf8_lossy(&buffer[..read]).into_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, requests)
}

async fn check_on_loopback(config: S3Config) -> StoreError {
    let store = ArchiveStore::open_on_loopback(&StoreConfig::S3(config), DEADLINE).unwrap();
    check(&store).await.unwrap_err()
}

#[test]
fn addresses_in_endpoints_are_checked() {
    let credentials = credentials();
    for endpoint in [
        "http://127.0.0.1:9000",
        "http://2130706433",
        "http://0x7f.1",
        "http://[::1]:9000",
        "http://[::ffff:127.0.0.1]",
        "http://169.254.169.254",
        "http://0.0.0.0",
    ] {
        for path_style in [true, false] {
            let mut config = config(endpoint, credentials.path());
            config.path_style = path_style;
            let error = ArchiveStore::open(&StoreConfig::S3(config), DEADLINE).unwrap_err();
            assert_eq!(
                error.reason,
                FailureReason::AddressNotAllowed,
                "{endpoint}: {error}"
            );
        }
    }
    let mut private = config("http://10.0.0.1", credentials.path());
    assert!(ArchiveStore::open(&StoreConfig::S3(private.clone()), DEADLINE).is_ok());
    private.allow_private_addresses = false;
    let error = ArchiveStore::open(&StoreConfig::S3(private), DEADLINE).unwrap_err();
    assert_eq!(error.reason, FailureReason::AddressNotAllowed);
}

#[tokio::test]
async fn a_name_that_resolves_to_loopback_is_rejected() {
    let credentials = credentials();
    let (url, requests) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let url = url.replace("127.0.0.1", "localhost");
    let config = config(&url, credentials.path());
    let store = ArchiveStore::open(&StoreConfig::S3(config), Duration::from_secs(600)).unwrap();
    let error = check(&store).await.unwrap_err();
    assert_eq!(error.reason, FailureReason::AddressNotAllowed, "{error}");
    assert!(error.message.contains("localhost"), "{error}");
    assert_eq!(requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let credentials = credentials();
    let (elsewhere, requests) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {elsewhere}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let (url, _) = server(answer.leak());
    let error = check_on_loopback(config(&url, credentials.path())).await;
    assert_eq!(error.reason, FailureReason::WrongRegion, "{error}");
    assert_eq!(requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn answers_of_a_server_become_reasons_and_no_secret_leaks() {
    let credentials = credentials();
    for (status, code, reason) in [
        (
            "403 Forbidden",
            "SignatureDoesNotMatch",
            FailureReason::InvalidCredentials,
        ),
        ("403 Forbidden", "AccessDenied", FailureReason::AccessDenied),
        (
            "404 Not Found",
            "NoSuchBucket",
            FailureReason::BucketNotFound,
        ),
        (
            "400 Bad Request",
            "AuthorizationHeaderMalformed",
            FailureReason::WrongRegion,
        ),
    ] {
        let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let (url, requests) = server(answer.leak());
        let error = check_on_loopback(config(&url, credentials.path())).await;
        assert_eq!(error.reason, reason, "{error}");
        assert!(!error.message.contains(SECRET), "{error}");
        let requests = requests.lock().unwrap();
        assert!(requests[0].contains("AKIAEXAMPLE/"), "{}", requests[0]);
        assert!(requests.iter().all(|request| !request.contains(SECRET)));
    }
}

#[tokio::test]
async fn a_conflict_that_lasts_is_reported_as_one() {
    let credentials = credentials();
    let body =
        "<Error><Code>ConditionalRequestConflict</Code><Message>Conflicting.</Message></Error>";
    let answer = format!(
        "HTTP/1.1 409 Conflict\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let (url, requests) = server(answer.leak());
    let config = StoreConfig::S3(config(&url, credentials.path()));
    let store = ArchiveStore::open_on_loopback(&config, DEADLINE).unwrap();
    let error = store.create("x", "1".into()).await.unwrap_err();
    assert_eq!(error.reason, FailureReason::StoreFailed);
    assert!(
        error.message.contains(
            "the server answered ConditionalRequestConflict: Conflicting. Another request"
        ),
        "{error}"
    );
    assert_eq!(requests.lock().unwrap().len(), 5);
    assert!(!crate::error::is_definite(&error), "the data stays");
}

#[tokio::test]
async fn the_end_of_a_retention_lock_is_read() {
    let credentials = credentials();
    let headers = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\nlast-modified: Wed, 18 Nov 2026 10:00:00 GMT\r\n\
                   etag: \"x\"\r\n";
    for (lock, until) in [
        (
            "x-amz-object-lock-retain-until-date: 2026-12-01T10:00:00.000Z\r\n",
            Some("2026-12-01T10:00:00Z"),
        ),
        ("x-amz-object-lock-retain-until-date: soon\r\n", None),
        ("", None),
    ] {
        let (url, _) = server(format!("{headers}{lock}\r\n").leak());
        let config = StoreConfig::S3(config(&url, credentials.path()));
        let store = ArchiveStore::open_on_loopback(&config, DEADLINE).unwrap();
        let found = store.locked_until("x").await.map(|until| until.to_string());
        assert_eq!(found.as_deref(), until, "{lock}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_listen_is_unreachable() {
    let credentials = credentials();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = check_on_loopback(config(&url, credentials.path())).await;
    assert_eq!(error.reason, FailureReason::Unreachable, "{error}");
}

#[tokio::test]
async fn credentials_are_read_again_and_missing_ones_are_named() {
    let credentials = credentials();
    let source = FileCredentials::new(credentials.path());
    assert_eq!(source.get_credential().await.unwrap().key_id, "AKIAEXAMPLE");
    fs::write(credentials.path().join("accessKeyID"), "AKIASECOND").unwrap();
    fs::write(credentials.path().join("sessionToken"), "token").unwrap();
    let read = source.get_credential().await.unwrap();
    assert_eq!(
        (read.key_id.as_str(), read.token.as_deref()),
        ("AKIASECOND", Some("token"))
    );
    assert!(!format!("{read:?}").contains(SECRET));

    fs::write(credentials.path().join("secretAccessKey"), "two\nlines").unwrap();
    let error = StoreError::of("x", &source.get_credential().await.unwrap_err());
    assert_eq!(error.reason, FailureReason::InvalidCredentials);
    assert!(!error.message.contains("two"), "{error}");

    fs::write(credentials.path().join("secretAccessKey"), " \n").unwrap();
    let error = StoreError::of("x", &source.get_credential().await.unwrap_err());
    assert!(error.message.contains("no key secretAccessKey"), "{error}");
    fs::remove_file(credentials.path().join("accessKeyID")).unwrap();
    let error = check_on_loopback(config("http://127.0.0.1:1", credentials.path())).await;
    assert_eq!(error.reason, FailureReason::InvalidCredentials);
    assert!(error.message.contains("no key accessKeyID"), "{error}");
}

#[tokio::test]
async fn credentials_of_a_mounted_secret_are_read_through_its_link() {
    let directory = tempfile::tempdir().unwrap();
    for (version, id) in [("..1", "FIRST"), ("..2", "SECOND")] {
        let version = directory.path().join(version);
        fs::create_dir(&version).unwrap();
        fs::write(version.join("accessKeyID"), id).unwrap();
        fs::write(version.join("secretAccessKey"), id).unwrap();
    }
    let link = directory.path().join("..data");
    let source = FileCredentials::new(directory.path());
    for (target, id) in [("..1", "FIRST"), ("..2", "SECOND")] {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(target, &link).unwrap();
        let read = source.get_credential().await.unwrap();
        assert_eq!((read.key_id.as_str(), read.secret_key.as_str()), (id, id));
    }
}

#[test]
fn the_bucket_is_in_the_host_or_in_the_path() {
    let text = |endpoint: Option<&str>, bucket: &str, path_style| {
        let address = Address::new(endpoint, "eu-central-1", bucket, path_style).unwrap();
        (address.text(), address.is_virtual)
    };
    assert_eq!(
        text(None, "backups", false),
        (
            "https://backups.s3.eu-central-1.amazonaws.com".to_owned(),
            true
        )
    );
    assert_eq!(
        text(None, "backups", true),
        ("https://s3.eu-central-1.amazonaws.com".to_owned(), false)
    );
    assert_eq!(
        text(None, "my.backups", false),
        ("https://s3.eu-central-1.amazonaws.com".to_owned(), false)
    );
    assert_eq!(
        text(Some("https://s3.example:9000/"), "backups", false),
        ("https://backups.s3.example:9000".to_owned(), true)
    );
    assert_eq!(
        text(Some("https://10.1.2.3:9000"), "backups", false),
        ("https://10.1.2.3:9000".to_owned(), false)
    );
    let china = Address::new(None, "cn-north-1", "backups", true).unwrap();
    assert_eq!(china.text(), "https://s3.cn-north-1.amazonaws.com.cn");
}

#[test]
fn invalid_endpoints_are_rejected() {
    for endpoint in [
        "s3.example",
        "ftp://s3.example",
        "https://user:canary@s3.example",
        "https://s3.example/path",
        "https://s3.example?x=1",
        "https://",
        "unix:/run/x",
    ] {
        let error = parse_url(endpoint).unwrap_err();
        assert_eq!(error.reason, FailureReason::InvalidRequest, "{endpoint}");
        assert!(!error.message.contains("canary"), "{error}");
    }
    let credentials = credentials();
    let mut plain = config("http://s3.example", credentials.path());
    plain.allow_http = false;
    let error = open(&plain, STRICT, DEADLINE).unwrap_err();
    assert!(error.message.contains("allowHTTP"), "{error}");
    for (bucket, region) in [
        ("ab", "eu"),
        ("Backups", "eu"),
        ("a/../b", "eu"),
        ("abc", "eu/x"),
        ("abc", ""),
    ] {
        let mut config = config("http://s3.example", credentials.path());
        config.bucket = bucket.to_owned();
        config.region = region.to_owned();
        assert!(
            open(&config, STRICT, DEADLINE).is_err(),
            "{bucket} {region}"
        );
    }
}

#[test]
fn an_unusable_ca_is_an_invalid_certificate() {
    let credentials = credentials();
    let file = credentials.path().join("ca.crt");
    for content in [
        "",
        "no certificate",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        fs::write(&file, content).unwrap();
        let mut config = config("https://s3.example", credentials.path());
        config.ca_file = Some(file.clone());
        let error = open(&config, STRICT, DEADLINE).unwrap_err();
        assert_eq!(error.reason, FailureReason::InvalidCertificate, "{content}");
    }
    let mut config = config("https://s3.example", credentials.path());
    config.ca_file = Some(credentials.path().join("missing"));
    let error = open(&config, STRICT, DEADLINE).unwrap_err();
    assert_eq!(error.reason, FailureReason::InvalidCertificate);
}

#[tokio::test]
async fn a_token_is_exchanged_for_credentials() {
    let directory = credentials();
    let token_file = directory.path().join("token");
    fs::write(&token_file, "canaryToken").unwrap();
    let body = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                <AccessKeyId>ASIATEMPORARY</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
                <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
                </AssumeRoleWithWebIdentityResponse>";
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let (service, service_requests) = server(answer.leak());
    let (url, requests) =
        server("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let mut config = config(&url, directory.path());
    config.credentials = CredentialSource::WebIdentity {
        role_arn: "arn:aws:iam::123456789012:role/backup".to_owned(),
        token_file,
        endpoint: Some(service.clone()),
    };
    let error = check_on_loopback(config.clone()).await;
    assert_eq!(error.reason, FailureReason::AccessDenied, "{error}");
    let seen = service_requests.lock().unwrap();
    assert!(seen[0].contains("AssumeRoleWithWebIdentity"), "{}", seen[0]);
    assert!(requests.lock().unwrap()[0].contains("ASIATEMPORARY/"));
    // Outside of tests, the token is not sent over http, nor to loopback.
    let error = ArchiveStore::open(&StoreConfig::S3(config), DEADLINE).unwrap_err();
    assert!(!error.message.contains("canaryToken"), "{error}");
}
