//! The proxy's inside: connections in, connections out, and what the verdicts do.

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
use super::{Rule, Stopped, Verdict, lock};

/// Why there is no answer. Whatever it is, the sender sees its connection end.
type Unanswered = Box<dyn Error + Send + Sync>;

/// An answer: of our own, or the API server's as it streams.
type Answer = Response<Either<Full<Bytes>, Incoming>>;

pub(super) struct Shared {
    pub(super) rule: Mutex<Rule>,
    pub(super) record: Mutex<Record>,
    pub(super) open: watch::Sender<bool>,
    stops: mpsc::Sender<Stopped>,
    server: String,
    client: HttpsClient,
    stand_in: Option<HeaderValue>,
}

impl Shared {
    pub(super) fn new(lab: &Lab, token: Option<&str>, stops: mpsc::Sender<Stopped>) -> Self {
        let access = Access::to(lab);
        Self {
            rule: Mutex::new(Arc::new(|_| Verdict::Pass)),
            record: Mutex::default(),
            open: watch::Sender::new(true),
            stops,
            client: access.anonymous(),
            server: access.server,
            stand_in: token.map(|token| {
                format!("Bearer {token}")
                    .parse()
                    .expect("a token fits into a header")
            }),
        }
    }

    /// The request as it goes out.
    fn outward(&self, request: Request<Bytes>) -> Result<Request<Full<Bytes>>, Unanswered> {
        let (mut head, body) = request.into_parts();
        head.uri = format!("{}{}", self.server, head.uri).parse()?;
        of_this_connection(&mut head.headers);
        head.headers.remove(HOST);
        if let Some(token) = &self.stand_in
            && !head.headers.contains_key(AUTHORIZATION)
        {
            head.headers.insert(AUTHORIZATION, token.clone());
        }
        Ok(Request::from_parts(head, Full::new(body)))
    }

    /// Does a write, and reads the whole answer.
    async fn apply(
        &self,
        write: &Write,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, Unanswered> {
        let (mut head, body) = self.client.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        lock(&self.record).answered(write.number, head.status.as_u16(), &body);
        of_this_connection(&mut head.headers);
        Ok(Response::from_parts(head, body))
    }

    /// Tells the story that a write is stopped, and waits for its word.
    async fn hold(&self, write: &Write, answered: Option<StatusCode>) -> Result<(), Unanswered> {
        let (go_on, word) = oneshot::channel();
        let answered = answered.map(|code| code.as_u16());
        self.stops.send(Stopped {
            write: write.clone(),
            answered,
            go_on,
        })?;
        Ok(word.await?)
    }

    async fn judge(
        &self,
        write: &Write,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, Unanswered> {
        let rule = Arc::clone(&lock(&self.rule));
        match rule(write) {
            Verdict::Pass => self.apply(write, request).await,
            Verdict::Hang(time) => {
                tokio::time::sleep(time).await;
                self.apply(write, request).await
            }
            Verdict::Fail(code) => failure(write, code),
            Verdict::FailAfter(code) => {
                self.apply(write, request).await?;
                failure(write, code)
            }
            Verdict::StopBefore => {
                self.hold(write, None).await?;
                self.apply(write, request).await
            }
            Verdict::StopAfter => {
                let answer = self.apply(write, request).await?;
                self.hold(write, Some(answer.status())).await?;
                Ok(answer)
            }
        }
    }
}

/// Takes connections for as long as the proxy lives.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let mut open = shared.open.subscribe();
        if !*open.borrow_and_update() {
            continue;
        }
        // Without it small answers wait for each other's acknowledgements; not worth a connection.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&shared), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                // How a connection ended is the sender's affair.
                _ = connection => {}
                _ = open.wait_for(|open| !open) => {}
            }
        });
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answer, Unanswered> {
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
    let request = shared.outward(Request::from_parts(head, body))?;
    if !record::changes(&verb, &path) {
        let mut answer = shared.client.request(request).await?;
        of_this_connection(answer.headers_mut());
        return Ok(answer.map(Either::Right));
    }
    let write = lock(&shared.record).write(&verb, &path, json);
    let number = write.number;
    // In a task of its own: this one ends when the sender dies, and what was sent is not unsent by that.
    let judged = {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { shared.judge(&write, request).await })
    };
    let answer = judged.await??;
    lock(&shared.record).told(number, answer.status().as_u16());
    Ok(answer.map(|body| Either::Left(Full::new(body))))
}

/// Removes what is between two neighbours only.
fn of_this_connection(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

/// An error as the API server would tell it.
fn failure(write: &Write, code: u16) -> Result<Response<Bytes>, Unanswered> {
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
