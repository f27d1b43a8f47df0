//! HTTP side of the server: the key, limits, and the endpoints of the Tinker API. Handlers leave slow work to the engine's
//! thread.

use crate::catalogue::{LoraRequest, Source};
use crate::fields::Fields;
use crate::journal::Outcome;
use crate::ledger::{self, Found, Ledger};
use crate::listing;
use crate::metrics::{Count, Gauge};
use crate::openai;
use crate::page;
use crate::request::{self, CREATE_SAMPLING_SESSION, CREATE_SESSION, Incoming, SAMPLE};
use crate::server::{Handled, Message, Server, Shared, error, read_body, refusal, reply, unknown};
use crate::storage;
use crate::wire;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fgrpo_nn::LoraConfig;
use fgrpo_train::policy::Bounds;
use fgrpo_train::run::checkpoint::ADAPTER;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time for which a poll waits for a result. Clients give up after 45 seconds.
const POLL: Duration = Duration::from_secs(30);
/// Interval in seconds at which clients ask for their dynamic settings.
const REFRESH: u64 = 300;

/// Creates all routes of the server.
pub(crate) fn routes(server: Shared) -> Router {
    let mut api = Router::new()
        .route("/healthz", get(|| async { reply(json!({"status": "ok"})) }))
        .route("/get_server_capabilities", get(capabilities))
        .route("/client/config", post(|| async { reply(client_config()) }))
        .route(
            "/client/dynamic_config",
            post(|| async {
                reply(json!({"refresh_interval_sec": REFRESH, "sample_cancel_enabled": false}))
            }),
        )
        .route("/session_heartbeat", post(|| async { reply(json!({"type": "session_heartbeat"})) }))
        .route("/telemetry", post(|| async { reply(json!({"status": "accepted"})) }))
        .route("/sessions/{id}/finish", post(|| async { reply(json!({})) }))
        .route("/samplers/{id}", get(sampler))
        .route("/get_info", post(get_info))
        .route("/weights_info", post(weights_info))
        .route("/retrieve_future", post(retrieve_future));
    for name in request::endpoints() {
        let handler = move |State(server): State<Shared>, headers: HeaderMap, body: Body| async move {
            accept(server, name, &headers, body).await
        };
        api = api.route(&format!("/{name}"), post(handler));
    }
    Router::new()
        .nest("/api/v1", api.merge(listing::routes()))
        .merge(openai::routes())
        .route("/metrics", get(metrics))
        .route("/", get(status))
        .fallback(|request: Request| async move {
            let path = request.uri().path().to_owned();
            error(StatusCode::NOT_FOUND, &format!("{path}: unknown endpoint"))
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&server), check_key))
        .with_state(server)
}

/// Returns the API key in a request's headers, which is empty without such a header.
fn key_of(headers: &HeaderMap) -> &[u8] {
    let header = |name: &str| headers.get(name).map(|value| value.as_bytes());
    let bearer = header("authorization").and_then(|value| value.split_at_checked("Bearer ".len()));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")).map(|(_, key)| key);
    header("x-api-key").or(bearer).unwrap_or_default()
}

/// Rejects a request without the key before any other part of the request is read.
async fn check_key(State(server): State<Shared>, request: Request, next: Next) -> Response {
    server.metrics.add(Count::Requests, 1);
    // A browser can't set headers, so the page's address may contain the key.
    let query_key = request.uri().query().filter(|_| request.uri().path() == "/");
    let query_key = query_key.and_then(|query| query.strip_prefix("key="));
    let key = query_key.map_or_else(|| key_of(request.headers()), str::as_bytes);
    let is_openai = request.uri().path().starts_with("/v1/");
    let mut response = if server.key.is(key) {
        next.run(request).await
    } else {
        let why = "the server's key is missing or wrong; send it as X-API-Key or as a bearer token";
        // The rest of the connection may be an unread body.
        ([(header::CONNECTION, "close")], error(StatusCode::UNAUTHORIZED, why)).into_response()
    };
    if response.status().is_client_error() {
        server.metrics.add(Count::Refused, 1);
    }
    if let Some(Message(why)) = response.extensions_mut().remove().filter(|_| is_openai) {
        *response.body_mut() = openai::refused(response.status(), &why);
    }
    response
}

async fn accept(server: Shared, endpoint: &'static str, headers: &HeaderMap, body: Body) -> Handled {
    let body = read_body(&server, headers, body).await?;
    let ledger = Arc::clone(&server.ledger);
    let incoming = spawn_blocking(move || Incoming::new(endpoint, body, ledger.served()));
    let incoming = incoming.await.expect("no panic");
    let samples = incoming.samples();
    let key = headers.get("x-idempotency-key").and_then(|value| value.to_str().ok());
    let number = server.ledger.accept(key, incoming).await.map_err(IntoResponse::into_response)?;
    let id = ledger::request_id(number);
    Ok(match endpoint {
        CREATE_SESSION | CREATE_SAMPLING_SESSION => {
            result(&server.ledger, number).await.map_or_else(|| gone(&id), respond)
        }
        SAMPLE => {
            // Clients get the ids of the sequences before these are sampled.
            let ids: Vec<String> = (0..samples).map(|sample| format!("{id}:{sample}")).collect();
            reply(json!({"request_id": id, "sample_sequence_ids": ids}))
        }
        _ => reply(json!({"request_id": id})),
    })
}

fn client_config() -> Value {
    json!({
        "pjwt_auth_enabled": false,
        // Passes run in the order of their seq_id, so that a gradient's sum doesn't depend on timing.
        "parallel_fwdbwd_chunks": false,
        "proto_compress_fwdbwd": false,
        "sample_use_retrieve_futures": false,
        "sample_join_sampling_session": false,
        "custom_loss_server_side": false,
    })
}

async fn capabilities(State(server): State<Shared>) -> Response {
    let served = server.ledger.served();
    let model = |name: &str, bounds: Bounds, trainable: bool| {
        let positions = bounds.positions;
        json!({"model_name": name, "max_context_length": positions, "trainable": trainable, "sampleable": true})
    };
    let mut models = vec![model(&served.name, served.bounds, true)];
    models.extend(served.teacher.iter().map(|(name, bounds)| model(name, *bounds, false)));
    reply(json!({"supported_models": models}))
}

fn gone(id: &str) -> Response {
    error(StatusCode::GONE, &format!("request_id: the result of {id} has expired"))
}

async fn sampler(State(server): State<Shared>, Path(id): Path<String>) -> Response {
    let sampler = server.ledger.with(|registry| {
        let (name, path) = match (registry.sampler(&id).ok()?.0, &registry.served.teacher) {
            (Source::Saved(path), _) => (&registry.served.name, Some(path)),
            (Source::Teacher, Some((teacher, _))) => (teacher, None),
            _ => (&registry.served.name, None),
        };
        Some(json!({"sampler_id": id, "base_model": name, "model_path": path}))
    });
    sampler.map_or_else(|| unknown("sampler_id", &id, "a sampler of this server"), reply)
}

/// Reads `field` of a request and ignores other fields.
async fn named(server: &Server, headers: &HeaderMap, body: Body, field: &str) -> Result<String, Response> {
    let body = read_body(server, headers, body).await?;
    Fields::read(&body).and_then(|mut fields| Ok(fields.need(field)?)).map_err(refusal)
}

async fn get_info(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Handled {
    let id = named(&server, &headers, body, "model_id").await?;
    let info = server.ledger.with(|registry| {
        let served = registry.served;
        let lora = registry.model(&id).ok()?.lora.as_ref();
        Some(json!({
            "type": "get_info",
            "model_id": id,
            "model_name": served.name,
            "model_data": {"arch": served.architecture, "model_name": served.name, "tokenizer_id": server.tokenizer},
            "is_lora": !served.full,
            "lora_rank": lora.filter(|_| !served.full).map(|lora| lora.rank),
            "optimizer_config": {"type": "adamw"},
        }))
    });
    Ok(info.map_or_else(|| unknown("model_id", &id, "a model of this server"), reply))
}

async fn weights_info(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Handled {
    let path = named(&server, &headers, body, "tinker_path").await?;
    let served = server.ledger.served();
    let Some((folder, _)) = storage::saved(&served.folder, &path) else {
        return Ok(unknown("tinker_path", &path, "the path of saved weights"));
    };
    let lora = LoraConfig::read(&folder.join(ADAPTER)).ok().map(|(config, _)| LoraRequest::of(&config));
    let has = |part: fn(&LoraRequest) -> bool| lora.as_ref().map(part);
    Ok(reply(json!({
        "base_model": served.name,
        "optimizer_config": {"type": "adamw"},
        "is_lora": lora.is_some(),
        "lora_rank": lora.as_ref().map(|lora| lora.rank),
        "train_unembed": has(|lora| lora.train_unembed),
        "train_mlp": has(|lora| lora.train_mlp),
        "train_attn": has(|lora| lora.train_attn),
    })))
}

async fn retrieve_future(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Handled {
    let id = named(&server, &headers, body, "request_id").await?;
    let Some(number) = ledger::request_number(&id) else {
        return Ok(unknown("request_id", &id, "a request of this server"));
    };
    Ok(match timeout(POLL, result(&server.ledger, number)).await {
        Ok(Some(outcome)) => respond(outcome),
        Ok(None) => gone(&id),
        Err(_) => reply(json!({"type": "try_again", "request_id": id, "queue_state": "active"})),
    })
}

/// Encodes a result for its client.
fn respond(outcome: Outcome) -> Response {
    match outcome {
        Outcome::Json(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Outcome::Protobuf(bytes) => ([(header::CONTENT_TYPE, wire::CONTENT_TYPE)], bytes).into_response(),
        Outcome::Failed(failed) => {
            let category = if failed.by_request { "user" } else { "server" };
            reply(json!({"error": failed.message, "category": category}))
        }
    }
}

/// Waits for a request's result. Returns `None` if the request doesn't exist.
async fn result(ledger: &Ledger, number: u64) -> Option<Outcome> {
    while let Found::Waiting(notify) = ledger.find(number) {
        let notified = notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        // The result may have arrived before the notification was enabled.
        if !matches!(ledger.find(number), Found::Waiting(_)) {
            break;
        }
        notified.await;
    }
    if let Found::Done(outcome) = ledger.find(number) { Some(outcome) } else { None }
}

fn gauges(server: &Server) -> [Gauge; 3] {
    let resident = fgrpo_eval::io::machine::resident().unwrap_or(0) as f64;
    [
        ("requests_waiting", "Requests that wait or are being processed", server.ledger.waiting() as f64),
        ("result_bytes", "Bytes of stored results", server.ledger.result_bytes() as f64),
        ("resident_bytes", "Memory of the process", resident),
    ]
}

async fn metrics(State(server): State<Shared>) -> Response {
    let text = server.metrics.text(&gauges(&server));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn status(State(server): State<Shared>) -> Response {
    let gauges = gauges(&server);
    let page = server.ledger.with(|registry| page::page(registry, &server.metrics, &gauges));
    axum::response::Html(page).into_response()
}
