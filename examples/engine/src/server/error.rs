//! Error responses in the format of OpenAI's interface.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::requests::Refused;
use crate::intake::Refusal;
use crate::tokenizer::{TemplateError, TokenizerError};
use radixkv_scheduler::SubmitErrorKind;

/// An error response to a request.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    message: String,
    /// The field that caused the error.
    param: Option<String>,
    code: Option<&'static str>,
    /// Seconds after which the client may retry.
    retry_after: Option<u64>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None, retry_after: None }
    }

    /// An error for a server without room: the client may retry after `seconds`.
    pub(super) fn later(seconds: u64, message: impl Into<String>) -> Self {
        Self { retry_after: Some(seconds), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// An error for a field that cannot be honoured.
    pub(super) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    pub(super) fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(super) fn tokenizer(param: &str, error: &TokenizerError) -> Self {
        let refused = Self::field(param, error.to_string());
        match error {
            // The error's own text contains a path of this machine, so it is not sent.
            TokenizerError::Template(TemplateError::Invalid { .. }) => {
                Self::field(param, "the model's chat template cannot be used: send a prompt to /v1/completions")
            }
            TokenizerError::TooLong { .. } => refused.code("context_length_exceeded"),
            _ => refused,
        }
    }

    pub(super) fn refused(param: &str, refused: Refused) -> Self {
        match refused {
            Refused::Full { retry_after, waiting } => Self {
                code: Some("rate_limit_exceeded"),
                retry_after: Some(retry_after),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, format!("{waiting} requests wait already"))
            },
            Refused::Closed => Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down"),
            Refused::Request(refusal) => {
                let error = Self::field(param, refusal.to_string());
                match refusal {
                    Refusal::TooLong { .. }
                    | Refusal::Queue(SubmitErrorKind::ExceedsPool { .. } | SubmitErrorKind::ExceedsSlot { .. }) => {
                        error.code("context_length_exceeded")
                    }
                    _ => error,
                }
            }
        }
    }

    /// The body.
    pub(super) fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(&self.json());
        *response.status_mut() = self.status;
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A response with a JSON body.
pub(super) fn json_response(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
