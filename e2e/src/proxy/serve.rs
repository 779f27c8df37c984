//! The server and the client of the proxy, and the effect of each verdict.

use std::error::Error;
use std::sync::{Arc, Mutex, mpsc};

use evenkeel_lab::Lab;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::api::{Access, HttpsClient};

use super::record::{self, Record, Write};
use super::{HeldWrite, Rule, Verdict, lock};

/// An error without an answer: the sender's connection is closed.
type NoAnswer = Box<dyn Error + Send + Sync>;

/// An answer: our own, or the stream from the API server.
type Answer = Response<Either<Full<Bytes>, Incoming>>;

pub(super) struct Shared {
    pub(super) rule: Mutex<Rule>,
    pub(super) record: Mutex<Record>,
    pub(super) open: watch::Sender<bool>,
    held_writes: mpsc::Sender<HeldWrite>,
    server: String,
    client: HttpsClient,
    default_token: Option<HeaderValue>,
}

impl Shared {
    pub(super) fn new(
        lab: &Lab,
        token: Option<&str>,
        held_writes: mpsc::Sender<HeldWrite>,
    ) -> Self {
        let access = Access::to(lab);
        Self {
            rule: Mutex::new(Arc::new(|_| Verdict::Pass)),
            record: Mutex::default(),
            open: watch::Sender::new(true),
            held_writes,
            client: access.anonymous(),
            server: access.server,
            default_token: token.map(|token| {
                format!("Bearer {token}")
                    .parse()
                    .expect("a token is a valid header value")
            }),
        }
    }

    /// Returns the request for the API server.
    fn outgoing(&self, request: Request<Bytes>) -> Result<Request<Full<Bytes>>, NoAnswer> {
        let (mut head, body) = request.into_parts();
        head.uri = format!("{}{}", self.server, head.uri).parse()?;
        remove_hop_by_hop(&mut head.headers);
        head.headers.remove(HOST);
        if let Some(token) = &self.default_token
            && !head.headers.contains_key(AUTHORIZATION)
        {
            head.headers.insert(AUTHORIZATION, token.clone());
        }
        Ok(Request::from_parts(head, Full::new(body)))
    }

    /// Sends a write and reads the whole answer.
    async fn apply(
        &self,
        write: &Write,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, NoAnswer> {
        let (mut head, body) = self.client.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        lock(&self.record).answered(write.number, head.status.as_u16(), &body);
        remove_hop_by_hop(&mut head.headers);
        Ok(Response::from_parts(head, body))
    }

    /// Hands a held write to the story, and waits until it is resumed.
    async fn hold(&self, write: &Write, answered: Option<StatusCode>) -> Result<(), NoAnswer> {
        let (resume, resumed) = oneshot::channel();
        let answered = answered.map(|code| code.as_u16());
        self.held_writes.send(HeldWrite {
            write: write.clone(),
            answered,
            resume,
        })?;
        Ok(resumed.await?)
    }

    async fn handle_write(
        &self,
        write: &Write,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, NoAnswer> {
        let rule = Arc::clone(&lock(&self.rule));
        match rule(write) {
            Verdict::Pass => self.apply(write, request).await,
            Verdict::Delay(time) => {
                tokio::time::sleep(time).await;
                self.apply(write, request).await
            }
            Verdict::Fail(code) => error_response(write, code),
            Verdict::FailAfter(code) => {
                self.apply(write, request).await?;
                error_response(write, code)
            }
            Verdict::HoldBefore => {
                self.hold(write, None).await?;
                self.apply(write, request).await
            }
            Verdict::HoldAfter => {
                let answer = self.apply(write, request).await?;
                self.hold(write, Some(answer.status())).await?;
                Ok(answer)
            }
        }
    }
}

/// Accepts connections until the proxy is dropped.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let mut open = shared.open.subscribe();
        if !*open.borrow_and_update() {
            continue;
        }
        // Without it small answers wait for acknowledgements. An error is ignored: the connection works without it.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&shared), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                // The sender handles a closed connection.
                _ = connection => {}
                _ = open.wait_for(|open| !open) => {}
            }
        });
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answer, NoAnswer> {
    let verb = request.method().as_str().to_owned();
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    lock(&shared.record).request(&verb, &path);
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let request = shared.outgoing(Request::from_parts(head, body))?;
    if !record::changes(&verb, &path) {
        let mut answer = shared.client.request(request).await?;
        remove_hop_by_hop(answer.headers_mut());
        return Ok(answer.map(Either::Right));
    }
    let write = lock(&shared.record).write(&verb, &path, json);
    let number = write.number;
    // In a task of its own: this task ends when the sender dies, but a write that was sent is executed.
    let handled = {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { shared.handle_write(&write, request).await })
    };
    let answer = handled.await??;
    lock(&shared.record).returned(number, answer.status().as_u16());
    Ok(answer.map(|body| Either::Left(Full::new(body))))
}

/// Removes hop-by-hop headers.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

/// Returns an error in the API server's format.
fn error_response(write: &Write, code: u16) -> Result<Response<Bytes>, NoAnswer> {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 if write.verb == "POST" && write.subresource().is_none() => "AlreadyExists",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the story answers {} {} with {code}", write.verb, write.path),
        "reason": reason, "code": code,
    });
    let answer = Response::builder()
        .status(code)
        .header(CONTENT_TYPE, "application/json");
    Ok(answer.body(Bytes::from(status.to_string()))?)
}
