//! kv-index 2, `TokenTree`: a radix tree of tokens that says which tenant holds a prefix.

use std::sync::Arc;

use kv_index::{TenantId, TokenTree};

use crate::{
    arena::{
        BLOCK,
        contender::{Client, Clock, Contender},
        tokens::Tokens,
    },
    writer::Writer,
};

const TENANT: &str = "engine";

pub(crate) struct Tenants(TokenTree);

pub(crate) struct TenantsClient {
    cache: Arc<Tenants>,
    tenant: TenantId,
}

impl Contender for Tenants {
    const NAME: &'static str = "kv-index TokenTree";
    const LACKS: &'static str = "blocks, ids, lease; eviction but by a sweep over all leaves";
    type Prompt = Tokens;
    type Client = TenantsClient;

    fn new(_blocks: usize) -> Self {
        Self(TokenTree::new())
    }

    fn prompt(tokens: &Tokens) -> Tokens {
        tokens.clone()
    }

    fn client(cache: &Arc<Self>) -> TenantsClient {
        TenantsClient { cache: cache.clone(), tenant: TENANT.into() }
    }
}

impl Client for TenantsClient {
    type Prompt = Tokens;

    fn look_up(&mut self, prompt: &Tokens) -> usize {
        self.cache.0.match_prefix_with_counts(prompt).matched_token_count
    }

    fn insert(&mut self, prompt: &Tokens, _clock: &mut Clock) -> usize {
        let found = self.look_up(prompt);
        self.cache.0.insert_tokens(prompt, TENANT);
        found
    }
}

impl Writer for TenantsClient {
    type Held = ();

    fn hold(&mut self, prompt: &Tokens) {
        self.cache.0.insert_tokens(prompt, TENANT);
    }

    fn append(&mut self, (): &(), prompt: &Tokens) {
        self.cache.0.insert_tokens(prompt, TENANT);
    }

    fn evict(&mut self, blocks: usize) -> usize {
        let before = self.cache.0.tenant_token_size(&self.tenant);
        self.cache.0.evict_tenant(&self.tenant, before.saturating_sub(blocks * BLOCK));
        (before - self.cache.0.tenant_token_size(&self.tenant)) / BLOCK
    }
}
