//! Makes a request that can be submitted from a prompt. All checks that can refuse a prompt run
//! before it changes any state.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use radixkv_scheduler::Request;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Service;
use super::error::ApiError;
use super::parameters::Parameters;
use super::prompt::{Prompt, Tokenized};
use super::requests::Refused;
use super::salts::Salt;
use crate::host_tier;

/// Texts with more bytes than this count as long: they take long to tokenize.
pub(super) const LONG: usize = 64 << 10;

/// A request in its namespace, ready for the queue.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) request: Request,
    /// The number of first tokens to retain, and the time for which to retain them.
    pub(super) retain: Option<(usize, Duration)>,
    pub(super) salt: Salt,
    /// The field that has the prompt.
    pub(super) field: &'static str,
}

/// A prompt and the settings that the tokenizing thread needs.
struct Preparation {
    service: Arc<Service>,
    prompt: Prompt,
    new_tokens: usize,
    /// `cache_salt`.
    salt: Option<String>,
    /// `cache_control` of the whole prompt.
    retain: Option<Duration>,
    store_nothing: bool,
}

/// The number of tokens to generate. Refuses marks that cannot be honoured, and prompts that are
/// too long, before they are tokenized.
pub(super) fn new_tokens(service: &Service, prompt: &Prompt, parameters: &Parameters) -> Result<usize, ApiError> {
    let new_tokens = parameters.new_tokens.unwrap_or(service.options.new_tokens);
    prompt.check_marks(parameters.store_nothing)?;
    if new_tokens == 0 {
        return Err(ApiError::field("max_tokens", "max_tokens is 0: at least one token is generated"));
    }
    let most_tokens = service.most_tokens().saturating_sub(new_tokens);
    let (bytes, most) = (prompt.bytes(), service.tokenizer.longest_text(most_tokens));
    if bytes > most {
        let message =
            format!("the text has {bytes} bytes, {most} are the most that fit beside {new_tokens} new tokens");
        return Err(ApiError::field(prompt.field(), message).code("context_length_exceeded"));
    }
    Ok(new_tokens)
}

/// Tokenizes a prompt on one of a few threads, which also copies the prompt's blocks from a host
/// tier. Long texts can use only some of these threads. If the client disconnects, a prompt that
/// waits for a thread is dropped, and a prompt on a thread stops after its current text.
pub(super) async fn prepare(
    service: &Arc<Service>,
    prompt: Prompt,
    new_tokens: usize,
    parameters: &Parameters,
) -> Result<Prepared, ApiError> {
    let is_long = prompt.bytes() > LONG;
    let preparation = Preparation {
        service: Arc::clone(service),
        prompt,
        new_tokens,
        salt: parameters.salt.clone(),
        retain: parameters.retain,
        store_nothing: parameters.store_nothing,
    };
    let turn = if is_long { Some(acquire(&service.long_texts).await) } else { None };
    let thread = acquire(&service.tokenizers).await;
    let (answer, answered) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let prepared = preparation.run(&|| answer.is_closed());
        drop((thread, turn));
        // If the client has disconnected, nobody receives the result.
        _ = answer.send(prepared);
    });
    answered.await.unwrap_or_else(|_| Err(not_prepared()))
}

async fn acquire(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(semaphore).acquire_owned().await.expect("the semaphore is not closed")
}

fn not_prepared() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the prompt was not tokenized")
}

impl Preparation {
    /// Tokenizes the prompt and makes the request. `has_left` returns whether the client has
    /// disconnected; then it stops early.
    fn run(self, has_left: &dyn Fn() -> bool) -> Result<Prepared, ApiError> {
        let Self { service, prompt, new_tokens, salt, retain, store_nothing } = self;
        let field = prompt.field();
        let Tokenized { tokens, retain: marked } = prompt.tokenize(&service.tokenizer, has_left)?;
        let retain = retain.map(|ttl| (tokens.len(), ttl)).or(marked).filter(|_| !store_nothing);
        fits(&service, tokens.len(), new_tokens, field)?;
        let mut request = Request::new(service.cache.default_namespace(), tokens, new_tokens);
        let refused = |refusal| ApiError::refused(field, Refused::Request(refusal));
        service.intake.check(&request).map_err(refused)?;
        if has_left() {
            return Err(not_prepared());
        }
        let salt = service.salts.salt(salt.as_deref());
        request.namespace = salt.namespace.clone();
        if let Some(tiers) = &service.tiers {
            host_tier::bring_up(tiers, &request.namespace, &request.tokens);
        }
        Ok(Prepared { request, retain, salt, field })
    }
}

/// Refuses a request that does not fit into the blocks that are not reserved for retained prefixes.
fn fits(service: &Service, prompt_tokens: usize, new_tokens: usize, field: &str) -> Result<(), ApiError> {
    let capacity = service.cache.capacity_blocks();
    let most = capacity.saturating_sub(service.retention.budget_blocks());
    // The last token is sampled but never computed, so it needs no slot.
    let needed = (prompt_tokens.saturating_add(new_tokens) - 1).div_ceil(service.cache.block_size());
    // The queue refuses requests that are larger than the pool.
    if needed <= most || needed > capacity {
        return Ok(());
    }
    let message =
        format!("prompt and output need {needed} blocks, {most} of {capacity} are not kept for retained prefixes");
    Err(ApiError::field(field, message).code("context_length_exceeded"))
}
