use object_store::client::HttpRequestBody;

use super::*;

/// Requests a host of this machine on a port where no server listens.
async fn failure(allow_loopback: bool) -> HttpError {
    let connector = Connector::new(&HttpOptions {
        policy: AddressPolicy {
            allow_private: true,
            allow_loopback,
        },
        allow_http: true,
        ca: None,
        idle_timeout: Duration::from_secs(5),
    })
    .unwrap();
    let client = connector.connect(&ClientOptions::default()).unwrap();
    let request = ::http::Request::get("http://localhost:1/")
        .body(HttpRequestBody::empty())
        .unwrap();
    client.execute(request).await.unwrap_err()
}

#[tokio::test]
async fn a_rejected_address_is_not_tried_again() {
    let error = failure(false).await;
    assert!(is_permanent(&error));
    assert_eq!(error.kind(), HttpErrorKind::Unknown);
}

#[tokio::test]
async fn a_refused_connection_is_tried_again() {
    let error = failure(true).await;
    assert!(!is_permanent(&error));
    assert_eq!(error.kind(), HttpErrorKind::Connect);
}
