//! Listings of training runs, checkpoints and sessions, and the expiry of saved weights.

use crate::catalogue::{ModelEntry, Served, session_id, session_of};
use crate::fields::{Fields, Refusal, check};
use crate::request::time_to_live;
use crate::server::{Handled, Server, Shared, error, read_body, refusal, reply, unknown};
use crate::storage::{self, Kind};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use chrono::DateTime;
use serde_json::{Value, json};

/// Model, kind and name of saved weights.
type Place = (String, String, String);

pub(crate) fn routes() -> Router<Shared> {
    let one = "/training_runs/{id}/checkpoints/{kind}/{name}";
    Router::new()
        .route("/training_runs", get(training_runs))
        .route("/training_runs/{id}", get(training_run))
        .route("/training_runs/{id}/checkpoints", get(checkpoints_of))
        .route(one, axum::routing::delete(delete))
        .route(&format!("{one}/ttl"), put(set_ttl))
        .route("/checkpoints", get(checkpoints))
        .route("/sessions", get(sessions))
        .route("/sessions/{id}", get(session))
}

/// Answers with one page of a list, as the field `name`, and with a cursor. `limit` (20 by default) and `offset` in the
/// request's address select the page.
fn part(uri: &Uri, name: &str, all: Vec<Value>) -> Response {
    let number = |field: &str, default: usize| -> Result<usize, String> {
        let mut pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        let Some((_, value)) = pairs.rfind(|(key, _)| *key == field) else {
            return Ok(default);
        };
        value.parse().map_err(|_| format!("{field}: expected a whole number, found {value}"))
    };
    let (limit, offset) = match number("limit", 20).and_then(|limit| Ok((limit, number("offset", 0)?))) {
        Ok(place) => place,
        Err(why) => return refusal(why.into()),
    };
    let total = all.len();
    let part: Vec<Value> = all.into_iter().skip(offset).take(limit).collect();
    reply(json!({name: part, "cursor": {"offset": offset, "limit": limit, "total_count": total}}))
}

/// Formats a time by RFC 3339.
fn time(seconds: u64) -> Option<String> {
    Some(DateTime::from_timestamp(seconds.try_into().ok()?, 0)?.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn size(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Lists the saved weights of a model, or of all models, newest first. Each item has the time of saving, the kind, and the
/// entry of the listing.
fn saved(served: &Served, model: Option<&str>) -> Vec<(u64, Kind, Value)> {
    let mut all: Vec<(u64, Kind, Value)> = Vec::new();
    for (path, kind, folder) in storage::all_saved(&served.folder) {
        let mut parts = path.trim_start_matches("tinker://").splitn(2, '/');
        let (owner, id) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let Some(about) = storage::about(&folder).filter(|_| model.is_none_or(|model| model == owner)) else {
            continue;
        };
        let entry = json!({
            "checkpoint_id": id,
            "checkpoint_type": if kind == Kind::Checkpoint { "training" } else { "sampler" },
            "time": time(about.saved),
            "tinker_path": path,
            "size_bytes": size(&folder),
            "public": false,
            "user_metadata": about.user_metadata,
            "expires_at": about.expires.and_then(time),
        });
        all.push((about.saved, kind, entry));
    }
    all.sort_by_key(|(saved, ..)| std::cmp::Reverse(*saved));
    all
}

fn run(served: &Served, id: &str, model: &ModelEntry) -> Value {
    let saved = saved(served, Some(id));
    let last =
        |requested: Kind| saved.iter().find(|(_, kind, _)| *kind == requested).map(|(.., entry)| entry);
    let lora = model.lora.as_ref().filter(|_| !served.full);
    json!({
        "training_run_id": id,
        "base_model": served.name,
        "model_owner": "owner",
        "is_lora": !served.full,
        "lora_rank": lora.map(|lora| lora.rank),
        "corrupted": false,
        "last_request_time": time(model.last_request),
        "last_checkpoint": last(Kind::Checkpoint),
        "last_sampler_checkpoint": last(Kind::Sampler),
        "user_metadata": model.user_metadata,
    })
}

/// Copies a model's entry, so that callers can read files without the ledger's lock. Rejects an unknown id.
fn model(server: &Server, id: &str) -> Result<ModelEntry, Refusal> {
    server.ledger.with(|registry| registry.model(id).cloned())
}

/// Lists training runs. The run with the latest request comes first.
async fn training_runs(State(server): State<Shared>, uri: Uri) -> Response {
    let models = server.ledger.with(|registry| registry.catalogue.models.clone());
    let mut models: Vec<_> = models.iter().collect();
    models.sort_by_key(|(_, model)| std::cmp::Reverse(model.last_request));
    let runs = models.into_iter().map(|(id, model)| run(server.ledger.served(), id, model));
    part(&uri, "training_runs", runs.collect())
}

async fn training_run(State(server): State<Shared>, Path(id): Path<String>) -> Handled {
    let model = model(&server, &id).map_err(refusal)?;
    Ok(reply(run(server.ledger.served(), &id, &model)))
}

async fn checkpoints_of(State(server): State<Shared>, Path(id): Path<String>) -> Handled {
    model(&server, &id).map_err(refusal)?;
    let all = saved(server.ledger.served(), Some(&id)).into_iter().map(|(.., entry)| entry);
    Ok(reply(json!({"checkpoints": all.collect::<Vec<_>>()})))
}

async fn checkpoints(State(server): State<Shared>, uri: Uri) -> Response {
    let all = saved(server.ledger.served(), None).into_iter().map(|(.., entry)| entry);
    part(&uri, "checkpoints", all.collect())
}

/// Sets when saved weights expire.
fn expire(server: &Server, (model, kind, name): &Place, expires: Option<u64>) -> Response {
    let path = format!("tinker://{model}/{kind}/{name}");
    let Some((folder, _)) = storage::saved(&server.ledger.served().folder, &path) else {
        return unknown("path", &path, "the path of saved weights");
    };
    match storage::set_expiry(&folder, expires) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(why) => error(StatusCode::INTERNAL_SERVER_ERROR, &format!("{why:#}")),
    }
}

async fn delete(State(server): State<Shared>, Path(place): Path<Place>) -> Response {
    // The weights count as removed from now on. The engine's thread deletes the files.
    expire(&server, &place, Some(0))
}

async fn set_ttl(
    State(server): State<Shared>,
    Path(place): Path<Place>,
    headers: HeaderMap,
    body: Body,
) -> Handled {
    let body = read_body(&server, &headers, body).await?;
    let read = || {
        let mut fields = Fields::read(&body)?;
        check(
            fields.rest.contains_key("ttl_seconds"),
            "ttl_seconds",
            "none",
            "seconds, or null to keep the weights",
        )?;
        let ttl = time_to_live(&mut fields)?;
        fields.end()?;
        Ok(ttl)
    };
    let ttl = read().map_err(refusal)?;
    Ok(expire(&server, &place, ttl.map(|ttl| storage::now().saturating_add(ttl))))
}

/// Lists sessions, newest first.
async fn sessions(State(server): State<Shared>, uri: Uri) -> Response {
    let count = server.ledger.with(|registry| registry.catalogue.sessions.len() as u64);
    part(&uri, "sessions", (1..=count).rev().map(|number| json!(session_id(number))).collect())
}

async fn session(State(server): State<Shared>, Path(id): Path<String>) -> Handled {
    let session = server.ledger.with(|registry| {
        let about = &registry.catalogue.sessions[registry.session(&id)? as usize - 1];
        let models = registry.catalogue.models.keys().filter(|model| session_of(model) == id);
        let samplers = registry.catalogue.samplers.keys();
        let samplers = samplers.filter(|sampler| sampler.split(":sample:").next() == Some(id.as_str()));
        Ok(json!({
            "training_run_ids": models.collect::<Vec<_>>(),
            "sampler_ids": samplers.collect::<Vec<_>>(),
            "user_metadata": about.user_metadata,
            "display_name": about.display_name,
        }))
    });
    session.map(reply).map_err(refusal)
}
