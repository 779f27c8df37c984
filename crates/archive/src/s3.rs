//! Buckets of S3: the client, and credentials that come from files and from nowhere else.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, Checksum};
use object_store::{BackoffConfig, CredentialProvider, RetryConfig};
use reqwest::Url;

use crate::addresses::AddressPolicy;
use crate::error::StoreError;
use crate::http::{Connector, HttpOptions};
use crate::tasks::{CredentialSource, FailureReason, S3Config, ServerEncryption};

/// The largest number of attempts of one request.
const MAX_RETRIES: usize = 8;
/// The longest time in which a request is repeated.
const MAX_RETRY_TIME: Duration = Duration::from_secs(180);
/// The longest time in which the server may send nothing: a part of 8 MiB at 70 kB/s.
const MAX_IDLE_TIME: Duration = Duration::from_secs(120);
/// The largest file with a credential in bytes.
const MAX_CREDENTIAL_BYTES: u64 = 64 << 10;
/// The largest file with CA certificates in bytes.
const MAX_CA_BYTES: u64 = 4 << 20;

/// Opens a bucket. No request is sent.
pub(crate) fn open(
    config: &S3Config,
    policy: AddressPolicy,
    deadline: Duration,
) -> Result<AmazonS3, StoreError> {
    let S3Config {
        bucket,
        prefix: _,
        region,
        endpoint,
        path_style,
        credentials,
        ca_file,
        encryption,
        allow_http,
        allow_private_addresses: _,
    } = config;
    require_bucket(bucket)?;
    require_region(region)?;
    let ca = ca_file.as_deref().map(read_ca).transpose()?;
    let connector = Connector::new(&HttpOptions {
        policy,
        allow_http: *allow_http,
        ca,
        idle_timeout: share(deadline, 4, MAX_IDLE_TIME),
    })?;
    let address = Address::new(endpoint.as_deref(), region, bucket, *path_style)?;
    address.require(policy, *allow_http)?;

    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(region)
        .with_endpoint(address.text())
        .with_virtual_hosted_style_request(address.is_virtual)
        .with_allow_http(*allow_http)
        .with_http_connector(connector)
        .with_checksum_algorithm(Checksum::SHA256)
        .with_disable_tagging(true)
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: MAX_RETRIES,
            retry_timeout: share(deadline, 3, MAX_RETRY_TIME),
        });
    builder = match encryption {
        None => builder,
        Some(ServerEncryption::Server) => {
            let key: AmazonS3ConfigKey = "aws_server_side_encryption"
                .parse()
                .map_err(|error| StoreError::of("encrypt objects", &error))?;
            builder.with_config(key, "AES256")
        }
        Some(ServerEncryption::Kms(key)) => builder.with_sse_kms_encryption(key),
    };
    builder = match credentials {
        CredentialSource::Directory(directory) => {
            builder.with_credentials(Arc::new(FileCredentials::new(directory)))
        }
        CredentialSource::WebIdentity {
            role_arn,
            token_file,
            endpoint,
        } => {
            let service = token_service(endpoint.as_deref(), region, policy)?;
            builder
                .with_config(
                    AmazonS3ConfigKey::WebIdentityTokenFile,
                    path_text(token_file)?,
                )
                .with_config(AmazonS3ConfigKey::RoleArn, role_arn)
                .with_config(AmazonS3ConfigKey::RoleSessionName, "evenkeel-backup")
                .with_config(AmazonS3ConfigKey::StsEndpoint, service)
        }
    };
    builder
        .build()
        .map_err(|error| StoreError::of("open the bucket", &error))
}

/// Returns a share of the deadline, between one second and a limit.
fn share(deadline: Duration, part: u32, limit: Duration) -> Duration {
    (deadline / part).clamp(Duration::from_secs(1), limit)
}

fn require_bucket(bucket: &str) -> Result<(), StoreError> {
    let is_valid = (3..=63).contains(&bucket.len())
        && bucket.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-')
        })
        && !bucket.starts_with(['.', '-'])
        && !bucket.ends_with(['.', '-'])
        && !bucket.contains("..");
    if is_valid {
        return Ok(());
    }
    Err(StoreError::request(format!(
        "{bucket:?} is not the name of a bucket: 3 to 63 lower-case letters, digits, dots and dashes"
    )))
}

fn require_region(region: &str) -> Result<(), StoreError> {
    let is_valid = (1..=64).contains(&region.len())
        && region
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if is_valid {
        return Ok(());
    }
    Err(StoreError::request(format!(
        "{region:?} is not a region such as eu-central-1"
    )))
}

/// The URL of a bucket's server.
struct Address {
    url: Url,
    /// Whether the bucket is a part of the host name.
    is_virtual: bool,
}

impl Address {
    fn new(
        endpoint: Option<&str>,
        region: &str,
        bucket: &str,
        path_style: bool,
    ) -> Result<Self, StoreError> {
        let url = match endpoint {
            Some(endpoint) => parse_url(endpoint)?,
            None => parse_url(&format!("https://s3.{region}.{}", amazon(region)))?,
        };
        // A certificate for *.s3.example does not match a bucket with dots, and an address has no subdomains.
        let is_virtual = !path_style && !bucket.contains('.') && literal(&url).is_none();
        if !is_virtual {
            return Ok(Self { url, is_virtual });
        }
        let mut url = url;
        let host = format!("{bucket}.{}", url.host_str().unwrap_or_default());
        url.set_host(Some(&host))
            .map_err(|error| StoreError::request(format!("{host} is not a host name: {error}")))?;
        Ok(Self { url, is_virtual })
    }

    fn require(&self, policy: AddressPolicy, allow_http: bool) -> Result<(), StoreError> {
        if self.url.scheme() == "http" && !allow_http {
            return Err(StoreError::request(format!(
                "the endpoint {} begins with http://, and allowHTTP is not set",
                self.url
            )));
        }
        require_host(&self.url, policy)
    }

    fn text(&self) -> String {
        self.url.as_str().trim_end_matches('/').to_owned()
    }
}

fn amazon(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    }
}

/// Parses the URL of a server. The parser is that of the client, so that both see the same host: it turns `0x7f.1` and
/// `2130706433` into 127.0.0.1.
fn parse_url(text: &str) -> Result<Url, StoreError> {
    let invalid = |problem: &str| {
        StoreError::request(format!(
            "the endpoint {text:?} {problem}. It must be a URL such as https://s3.example:9000"
        ))
    };
    let url = Url::parse(text).map_err(|error| invalid(&format!("is not valid: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("does not begin with https:// or http://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(StoreError::request(
            "the endpoint contains a user or a password. Put credentials into the Secret",
        ));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("has a path, a query or a fragment"));
    }
    Ok(url)
}

/// Returns the address if the host is one.
fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

fn require_host(url: &Url, policy: AddressPolicy) -> Result<(), StoreError> {
    match literal(url) {
        Some(address) => policy.require_literal(url.host_str().unwrap_or_default(), address),
        None => Ok(()),
    }
}

/// Returns the URL of the security token service.
fn token_service(
    endpoint: Option<&str>,
    region: &str,
    policy: AddressPolicy,
) -> Result<String, StoreError> {
    let url = match endpoint {
        Some(endpoint) => parse_url(endpoint)?,
        None => parse_url(&format!("https://sts.{region}.{}", amazon(region)))?,
    };
    if url.scheme() != "https" && !policy.allow_loopback {
        return Err(StoreError::request(
            "the URL of the security token service must begin with https://",
        ));
    }
    require_host(&url, policy)?;
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn path_text(path: &Path) -> Result<&str, StoreError> {
    path.to_str()
        .ok_or_else(|| StoreError::request(format!("the path {} is not UTF-8", path.display())))
}

fn read_ca(path: &Path) -> Result<Vec<u8>, StoreError> {
    let missing = |problem: String| {
        StoreError::new(
            FailureReason::InvalidCertificate,
            format!(
                "the CA of the store cannot be read: {problem}. Check the key ca.crt of its ConfigMap"
            ),
        )
    };
    let metadata = fs::metadata(path).map_err(|error| missing(error.to_string()))?;
    if metadata.len() > MAX_CA_BYTES {
        return Err(missing(format!("it has {} bytes", metadata.len())));
    }
    fs::read(path).map_err(|error| missing(error.to_string()))
}

/// Credentials in the files of a directory. They are read for each request, so that changed ones are used at once.
#[derive(Debug)]
struct FileCredentials {
    directory: PathBuf,
}

impl FileCredentials {
    fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    fn read(&self) -> Result<AwsCredential, StoreError> {
        // The kubelet replaces all files at once by replacing the link `..data`. Reading through its target never mixes old
        // and new files.
        let directory = fs::read_link(self.directory.join("..data"))
            .map(|target| self.directory.join(target))
            .unwrap_or_else(|_| self.directory.clone());
        let required = |name: &str| {
            read_credential(&directory, name)?.ok_or_else(|| {
                StoreError::new(
                    FailureReason::InvalidCredentials,
                    format!("the Secret with the credentials of the store has no key {name}, or it is empty. Add the key"),
                )
            })
        };
        Ok(AwsCredential {
            key_id: required("accessKeyID")?,
            secret_key: required("secretAccessKey")?,
            token: read_credential(&directory, "sessionToken")?,
        })
    }
}

#[async_trait]
impl CredentialProvider for FileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        // The kubelet may replace the files during the first reading.
        self.read()
            .or_else(|_| self.read())
            .map(Arc::new)
            .map_err(|error| object_store::Error::Generic {
                store: "S3",
                source: Box::new(error),
            })
    }
}

/// Reads one credential. The error never quotes the content.
fn read_credential(directory: &Path, name: &str) -> Result<Option<String>, StoreError> {
    let failed = |problem: String| {
        StoreError::new(
            FailureReason::InvalidCredentials,
            format!("the key {name} of the Secret with the credentials cannot be used: {problem}"),
        )
    };
    let path = directory.join(name);
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    if metadata.len() > MAX_CREDENTIAL_BYTES {
        return Err(failed("it is too long".to_owned()));
    }
    let text = fs::read_to_string(&path).map_err(|error| failed(error.kind().to_string()))?;
    let text = text.trim();
    if text
        .chars()
        .any(|character| character.is_control() || !character.is_ascii())
    {
        return Err(failed(
            "it contains a line break or a character that no credential has".to_owned(),
        ));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
#[path = "s3_tests.rs"]
mod tests;
