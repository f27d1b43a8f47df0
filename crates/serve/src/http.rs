//! The server's HTTP side: the key, limits, and the Tinker API's endpoints. Handlers are thin: what takes time is a request for the engine's thread.

use crate::journal::Outcome;
use crate::ledger::{self, Found, Ledger, Rejection};
use crate::openai;
use crate::page;
use crate::request::{Endpoint, LoraRequest, Source};
use crate::server::{Server, error, read_body, reply};
use crate::storage;
use crate::wire;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fgrpo_eval::io::json;
use fgrpo_nn::LoraConfig;
use fgrpo_train::run::checkpoint::ADAPTER;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a client waits for a result at a time; it gives up after 45 seconds.
const POLL: Duration = Duration::from_secs(30);
/// Seconds between a client's looks at its dynamic settings.
const REFRESH: u64 = 300;

type Shared = Arc<Server>;

/// All routes.
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
        .route("/session_heartbeat", post(heartbeat))
        .route("/telemetry", post(|| async { reply(json!({"status": "accepted"})) }))
        .route("/sessions/{id}/finish", post(|| async { reply(json!({})) }))
        .route("/create_session", post(create_session))
        .route("/create_sampling_session", post(create_sampling_session))
        .route("/samplers/{id}", get(sampler))
        .route("/get_info", post(get_info))
        .route("/weights_info", post(weights_info))
        .route("/retrieve_future", post(retrieve_future));
    for endpoint in Endpoint::ALL {
        let handler = move |State(server): State<Shared>, headers: HeaderMap, body: Body| async move {
            accept(&server, endpoint, &headers, body).await
        };
        api = api.route(&format!("/{}", endpoint.name()), post(handler));
    }
    Router::new()
        .nest("/api/v1", api)
        .merge(openai::routes())
        .route("/metrics", get(metrics))
        .route("/", get(status))
        .fallback(|request: Request| async move {
            let found = request.uri().path().to_owned();
            error(StatusCode::NOT_FOUND, &format!("{found}: this server doesn't offer it"))
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&server), check_key))
        .with_state(server)
}

/// The key of a request.
fn shown_key(headers: &HeaderMap) -> &[u8] {
    let header = |name: &str| headers.get(name).map(|value| value.as_bytes());
    let bearer = header("authorization").and_then(|value| value.strip_prefix(b"Bearer "));
    header("x-api-key").or(bearer).unwrap_or_default()
}

/// Refuses whoever doesn't show the key, before anything else of the request is read.
async fn check_key(State(server): State<Shared>, request: Request, next: Next) -> Response {
    server.metrics.requests.add(1);
    // A browser can't send headers: the page's address may have the key.
    let in_address = request.uri().query().filter(|_| request.uri().path() == "/");
    let in_address = in_address.and_then(|query| query.strip_prefix("key="));
    let shown = in_address.map_or_else(|| shown_key(request.headers()), str::as_bytes);
    let allowed = server.key.is(shown);
    let response = match allowed {
        true => next.run(request).await,
        false => {
            // The rest of the connection may be a body that nobody reads.
            let mut refused =
                error(StatusCode::UNAUTHORIZED, "wanted the server's key as X-API-Key or as a bearer token");
            refused.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            refused
        }
    };
    if response.status().is_client_error() {
        server.metrics.refused.add(1);
    }
    response
}

/// The client's key for repetitions.
fn idempotency_key(headers: &HeaderMap) -> &str {
    headers.get("x-idempotency-key").and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn accept(server: &Server, endpoint: Endpoint, headers: &HeaderMap, body: Body) -> Response {
    let body = match read_body(server, headers, body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    // A sample's sequences are known before they are there.
    let samples = match endpoint {
        Endpoint::Sample => sample_count(&body),
        _ => 0,
    };
    match server.ledger.accept(endpoint, idempotency_key(headers), body).await {
        Ok(number) => {
            let id = ledger::request_id(number);
            match endpoint {
                Endpoint::Sample => {
                    let ids: Vec<String> = (0..samples).map(|sample| format!("{id}:{sample}")).collect();
                    reply(json!({"request_id": id, "sample_sequence_ids": ids}))
                }
                _ => reply(json!({"request_id": id})),
            }
        }
        Err(rejection) => rejection.into_response(),
    }
}

fn sample_count(body: &[u8]) -> usize {
    #[derive(Deserialize)]
    struct Count {
        #[serde(default = "one")]
        num_samples: usize,
    }
    fn one() -> usize {
        1
    }
    serde_json::from_slice::<Count>(body).map_or(0, |count| count.num_samples)
}

fn client_config() -> Value {
    json!({
        "pjwt_auth_enabled": false,
        // In the order of their seq_id, so that a gradient's sum doesn't depend on timing.
        "parallel_fwdbwd_chunks": false,
        "proto_compress_fwdbwd": false,
        "sample_use_retrieve_futures": false,
        "sample_join_sampling_session": false,
        "custom_loss_server_side": false,
    })
}

async fn capabilities(State(server): State<Shared>) -> Response {
    let served = server.ledger.served();
    reply(json!({"supported_models": [{
        "model_name": served.name,
        "max_context_length": served.bounds.positions,
        "trainable": true,
        "sampleable": true,
    }]}))
}

async fn heartbeat() -> Response {
    reply(json!({"type": "session_heartbeat"}))
}

async fn create_session(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Response {
    let body = match read_body(&server, &headers, body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    if let Err(misfit) = json::parse::<serde_json::Map<String, Value>>(&body) {
        return error(StatusCode::BAD_REQUEST, &misfit.to_string());
    }
    let warning = (!server.ledger.served().full).then_some(
        "LoRA here adapts the matrices of attention and MLP. train_unembed is accepted, but the vocabulary head stays as it is.",
    );
    let made =
        server.ledger.accept_now(ledger::CREATE_SESSION, idempotency_key(&headers), body, |_, catalogue| {
            let id = ledger::create_session(catalogue);
            let answer = json!({"session_id": id, "warning_message": warning, "type": "create_session"});
            Ok((String::new(), answer.to_string().into_bytes()))
        });
    now(made.await)
}

async fn create_sampling_session(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Response {
    let body = match read_body(&server, &headers, body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let asked = body.clone();
    let key = idempotency_key(&headers);
    let made = server.ledger.accept_now(ledger::CREATE_SAMPLING_SESSION, key, body, |served, catalogue| {
        let (slot, id) = ledger::create_sampling_session(&asked, served, catalogue)?;
        let answer = json!({"sampling_session_id": id, "type": "create_sampling_session"});
        Ok((slot, answer.to_string().into_bytes()))
    });
    now(made.await)
}

fn now(made: Result<Vec<u8>, Rejection>) -> Response {
    match made {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(rejection) => rejection.into_response(),
    }
}

async fn sampler(
    State(server): State<Shared>,
    axum::extract::Path(id): axum::extract::Path<String>,
) -> Response {
    let found = server.ledger.with(|served, catalogue| {
        let sampler = catalogue.sampler(&id)?;
        let path = match &sampler.source {
            Source::Saved(path) => Some(path.clone()),
            _ => sampler.path.clone(),
        };
        Some(json!({"sampler_id": id, "base_model": served.name, "model_path": path}))
    });
    found.map_or_else(
        || error(StatusCode::NOT_FOUND, &format!("found {id:?}, wanted a sampler of this server")),
        reply,
    )
}

#[derive(Deserialize)]
struct ModelInfo {
    model_id: String,
}

async fn get_info(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Response {
    let asked: ModelInfo = match parsed(&server, &headers, body).await {
        Ok(asked) => asked,
        Err(response) => return response,
    };
    let id = asked.model_id;
    let found = server.ledger.with(|served, catalogue| {
        let model = catalogue.model(&id)?;
        Some(json!({
            "type": "get_info",
            "model_id": id,
            "model_name": served.name,
            "model_data": {"arch": served.architecture, "model_name": served.name, "tokenizer_id": server.tokenizer},
            "is_lora": !served.full,
            "lora_rank": model.lora.as_ref().filter(|_| !served.full).map(|lora| lora.rank),
            "optimizer_config": {"type": "adamw"},
        }))
    });
    found.map_or_else(
        || error(StatusCode::NOT_FOUND, &format!("model_id: found {id:?}, wanted a model of this server")),
        reply,
    )
}

#[derive(Deserialize)]
struct WeightsInfo {
    tinker_path: String,
}

async fn weights_info(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Response {
    let asked: WeightsInfo = match parsed(&server, &headers, body).await {
        Ok(asked) => asked,
        Err(response) => return response,
    };
    let served = server.ledger.served();
    let Some((folder, _)) = storage::saved(&served.folder, &asked.tinker_path) else {
        return error(
            StatusCode::NOT_FOUND,
            &format!("tinker_path: found {}, wanted saved weights", asked.tinker_path),
        );
    };
    let lora = LoraConfig::read(&folder.join(ADAPTER)).ok().map(|(config, _)| LoraRequest::of(&config));
    let has = |part: fn(&LoraRequest) -> bool| lora.as_ref().map(part);
    reply(json!({
        "base_model": served.name,
        "optimizer_config": {"type": "adamw"},
        "is_lora": lora.is_some(),
        "lora_rank": lora.as_ref().map(|lora| lora.rank),
        "train_unembed": has(|lora| lora.train_unembed),
        "train_mlp": has(|lora| lora.train_mlp),
        "train_attn": has(|lora| lora.train_attn),
    }))
}

async fn parsed<T: serde::de::DeserializeOwned>(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Response> {
    let body = read_body(server, headers, body).await?;
    json::parse(&body).map_err(|misfit| error(StatusCode::BAD_REQUEST, &misfit.to_string()))
}

#[derive(Deserialize)]
struct RetrieveFuture {
    request_id: String,
}

async fn retrieve_future(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Response {
    let asked: RetrieveFuture = match parsed(&server, &headers, body).await {
        Ok(asked) => asked,
        Err(response) => return response,
    };
    let id = asked.request_id;
    let Some(number) = ledger::request_number(&id) else {
        return error(StatusCode::NOT_FOUND, &format!("request_id: found {id:?}, wanted one of this server"));
    };
    match timeout(POLL, result(&server.ledger, number)).await {
        Ok(Some(outcome)) => match outcome {
            Outcome::Json(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
            Outcome::Protobuf(bytes) => ([(header::CONTENT_TYPE, wire::CONTENT_TYPE)], bytes).into_response(),
            Outcome::Failed(failed) => {
                let category = if failed.by_request { "user" } else { "server" };
                reply(json!({"error": failed.message, "category": category}))
            }
        },
        Ok(None) => error(StatusCode::GONE, &format!("request_id: the result of {id} is no longer kept")),
        Err(_) => reply(json!({"type": "try_again", "request_id": id, "queue_state": "active"})),
    }
}

/// A request's result once it is there; `None` if there is no such request.
pub(crate) async fn result(ledger: &Ledger, number: u64) -> Option<Outcome> {
    while let Found::Waiting(notify) = ledger.find(number) {
        let notified = notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        // It may have come before this was heard.
        if !matches!(ledger.find(number), Found::Waiting(_)) {
            break;
        }
        notified.await;
    }
    match ledger.find(number) {
        Found::Done(outcome) => Some(outcome),
        _ => None,
    }
}

async fn metrics(State(server): State<Shared>) -> Response {
    let now = [
        ("requests_waiting", "Requests that wait or are being done.", server.ledger.waiting() as f64),
        ("result_bytes", "Bytes of results that are kept.", server.ledger.result_bytes() as f64),
        ("resident_bytes", "Memory of the process.", fgrpo_eval::io::machine::resident().unwrap_or(0) as f64),
    ];
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], server.metrics.text(&now)).into_response()
}

async fn status(State(server): State<Shared>) -> Response {
    axum::response::Html(page::page(&server.ledger, &server.metrics)).into_response()
}
