//! The HTTP routes, and the handler of completions.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use radixkv_metrics::TextFormat;
use serde_json::json;

use super::Service;
use super::answer::{Head, Kind, now};
use super::error::{ApiError, json_response};
use super::fields::Fields;
use super::generation::Generation;
use super::open::Connection;
use super::parameters::Parameters;
use super::prepare;
use super::prompt::Prompt;
use super::requests::Refused;

/// The router of all paths.
pub(super) fn router(service: Arc<Service>) -> Router {
    let completions = |kind| {
        post(move |State(service): State<Arc<Service>>, request: Request| async move {
            complete(service, request, kind).await.unwrap_or_else(IntoResponse::into_response)
        })
    };
    Router::new()
        .route("/v1/completions", completions(Kind::Completion))
        .route("/v1/chat/completions", completions(Kind::Chat))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .route("/metrics", get(measured))
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "there is no such path") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this path has another method")
        })
        .with_state(service)
}

async fn complete(service: Arc<Service>, request: Request, kind: Kind) -> Result<Response, ApiError> {
    let connection = request.extensions().get::<Arc<Connection>>().cloned().expect("a request has a connection");
    let (body, share) = service.bodies.read(request.into_body()).await?;
    let mut fields = Fields::parse(&body)?;
    drop(body);
    let model = &service.options.model;
    if let Some(other) = fields.take::<String>("model")?.filter(|name| name != model) {
        let error = ApiError::new(StatusCode::NOT_FOUND, format!("there is no model {other:?}, only {model:?}"));
        return Err(error.code("model_not_found"));
    }
    let prompt = if kind == Kind::Chat { Prompt::chat(&mut fields)? } else { Prompt::text(&mut fields)? };
    let parameters = Parameters::take(&mut fields, service.sampling)?;
    fields.finish()?;
    let new_tokens = prepare::new_tokens(&service, &prompt, &parameters)?;
    let place = service.requests.enter(&service.intake).map_err(|refused| {
        if matches!(refused, Refused::Full { .. }) {
            service.metrics.refused();
        }
        ApiError::refused(prompt.field(), refused)
    })?;
    let in_use = connection.in_use();
    let prepared = prepare::prepare(&service, prompt, new_tokens, &parameters).await?;
    drop(share);
    let generation = Generation::start(Arc::clone(&service), place, prepared, &parameters, in_use)?;
    let head = Head::new(kind, &generation, &service.options.model);
    match parameters.stream {
        true => Ok(head.stream(generation, parameters.include_usage)),
        false => head.whole(generation).await,
    }
}

async fn models(State(service): State<Arc<Service>>) -> Response {
    let model = json!({
        "id": service.options.model,
        "object": "model",
        "created": now(),
        "owned_by": "radixkv",
        "max_model_len": service.intake.max_positions(),
    });
    json_response(&json!({ "object": "list", "data": [model] }))
}

async fn health(State(service): State<Arc<Service>>) -> Response {
    match service.requests.is_open() {
        true => json_response(&json!({ "status": "ok" })),
        false => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down").into_response(),
    }
}

async fn measured(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = TextFormat::negotiate(accept);
    let text = service.metrics.text(format, &service.requests, service.intake.queue());
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}
