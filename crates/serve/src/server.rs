//! Shared parts of both APIs' handlers: the server, request bodies with limits, and JSON answers.

use crate::fields::Refusal;
use crate::key::Key;
use crate::ledger::{Ledger, Rejection};
use crate::metrics::Metrics;
use axum::Extension;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fgrpo_train::language::Language;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum number of large request bodies that are read at the same time.
pub(crate) const READING: usize = 64;
/// Maximum size of a body that is read without waiting for others, so that stalled clients hold up only large bodies.
const SMALL: usize = 1 << 16;
/// Time limit for receiving a request body.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Time limit for discarding the rest of a body that is too large.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// State that all handlers share.
pub(crate) struct Server {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) key: Key,
    pub(crate) language: Arc<Language>,
    pub(crate) metrics: Arc<Metrics>,
    /// Name under which clients find the tokenizer: a hub name or a folder.
    pub(crate) tokenizer: String,
    /// Maximum size of a request body in bytes.
    pub(crate) most_body: usize,
    pub(crate) reading: Semaphore,
}

/// Handlers' reference to the server.
pub(crate) type Shared = Arc<Server>;

/// Result of a handler. `Err` is the answer to a rejected request.
pub(crate) type Handled = Result<Response, Response>;

/// Creates a JSON answer.
pub(crate) fn reply(value: Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Message of an error answer, by which the answer is converted to OpenAI's form.
#[derive(Clone)]
pub(crate) struct Message(pub(crate) String);

/// Creates a JSON answer that reports an error, in the form of the Tinker API.
pub(crate) fn error(status: StatusCode, message: &str) -> Response {
    let body = reply(json!({"error": message, "detail": message}));
    (status, Extension(Message(message.to_owned())), body).into_response()
}

/// Creates the answer for an object that doesn't exist. `kind` describes the object.
pub(crate) fn unknown(field: &str, name: &str, kind: &str) -> Response {
    refusal(Refusal::unknown(field, name, kind))
}

/// Creates the answer for a rejected request.
pub(crate) fn refusal(refusal: Refusal) -> Response {
    Rejection::Refused(refusal).into_response()
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(Refusal::Bad(why)) => error(StatusCode::BAD_REQUEST, &why),
            Self::Refused(Refusal::Unknown(why)) => error(StatusCode::NOT_FOUND, &why),
            Self::Busy => error(StatusCode::TOO_MANY_REQUESTS, "too many requests are waiting"),
            Self::Stopped => error(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"),
        }
    }
}

/// Reads a request body within the server's limits.
pub(crate) async fn read_body(server: &Server, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Response> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING) {
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
        return Err(error(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            &format!("Content-Encoding: {encoding} isn't supported"),
        ));
    }
    let limit = server.most_body;
    let too_large =
        || error(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is larger than {limit} bytes"));
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        // If the connection closed while the client is still sending, the client might never see the answer.
        let mut rest = Limited::new(body, limit.saturating_mul(4));
        let _ = timeout(DRAIN_TIME, async { while let Some(Ok(_)) = rest.frame().await {} }).await;
        return Err(too_large());
    }
    let _turn = match length {
        Some(..=SMALL) => None,
        _ => Some(server.reading.acquire().await.map_err(|_| Rejection::Stopped.into_response())?),
    };
    match timeout(BODY_TIME, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes().into()),
        Ok(Err(why)) if why.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(error(StatusCode::BAD_REQUEST, "the body ended early")),
        Err(_) => Err(error(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}
