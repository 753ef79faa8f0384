//! An acceptance test that counts the tokens which the cache saves for one request, and checks that
//! it changes no bit of the result.
//!
//! A first request leaves its prompt in the cache. A second request shares 97 tokens with it, has 5
//! other tokens, and generates 20 tokens. Without the cache, the prompt's 102 tokens and 19 of the
//! 20 sampled tokens are computed, 121 in all. With blocks of 16 tokens, the cache finds six blocks
//! (96 tokens), so 25 tokens are computed. The 97th token is in a block that agrees with the first
//! request's block only in this token: if partial hits are copied, 24 tokens are computed.

use radixkv::Token;
use radixkv_attention::Dtype;
use radixkv_attention::cpu::Cpu;
use radixkv_scheduler::{Finished, SchedulerConfig};

use crate::config::Config;
use crate::dice::Dice;
use crate::model::{Model, RandomWeights};
use crate::serve::{Engine, Options, ServeError, Stepped};

const SHARED: usize = 97;
const OWN: usize = 5;
const NEW_TOKENS: usize = 20;

/// The result of serving a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// The number of tokens that were found in the cache.
    pub matched: usize,
    /// The number of tokens that the model computed.
    pub computed: usize,
    /// The sampled tokens.
    pub output: Vec<Token>,
    /// The logits of each sampled token, as bits.
    pub logits: Vec<Vec<u32>>,
}

/// The results of the test: the second request served in three ways, and an unrelated request.
#[derive(Debug, Clone, PartialEq)]
pub struct Acceptance {
    /// The second request with the cache.
    pub with: Served,
    /// The second request with the cache and with partial hits copied.
    pub copied: Served,
    /// The second request without the cache.
    pub without: Served,
    /// A request that shares no prefix with the others, with the cache.
    pub unrelated: Served,
    /// The number of blocks that were still in use after all requests had ended.
    pub leaked: usize,
}

impl Acceptance {
    /// Serves the requests.
    ///
    /// # Errors
    ///
    /// If there is no memory for the engines.
    pub fn run() -> Result<Self, ServeError> {
        // Without end tokens, the output always has 20 tokens.
        let config = Config { end_tokens: Vec::new(), ..Config::small() };
        let Ok(model) = Model::load(config, &RandomWeights::new(8), |_| {});
        let dice = &mut Dice::new(97);
        let mut draw = |tokens: usize| -> Vec<Token> { (0..tokens).map(|_| dice.below(256) as Token).collect() };
        let shared = draw(SHARED);
        let [first, second] = [draw(OWN), draw(OWN)].map(|own| [shared.clone(), own].concat());
        let unrelated = [vec![(shared[0] + 1) % 256], draw(SHARED + OWN - 1)].concat();

        let cached = engine(&model, true, None)?;
        serve(&cached, first.clone())?;
        let with = serve(&cached, second.clone())?;
        let unrelated = serve(&cached, unrelated)?;
        let copying = engine(&model, true, Some(1))?;
        serve(&copying, first)?;
        let copied = serve(&copying, second.clone())?;
        let plain = engine(&model, false, None)?;
        let without = serve(&plain, second)?;
        let leaked = [cached, copying, plain].iter().map(Engine::blocks_in_use).sum();
        Ok(Self { with, copied, without, unrelated, leaked })
    }

    /// The number of tokens that the cache saved.
    pub fn saved(&self) -> usize {
        self.without.computed - self.with.computed
    }

    /// Whether the counts and the outputs are as expected.
    pub fn holds(&self) -> bool {
        let Self { with, copied, without, unrelated, leaked } = self;
        let same = |served: &Served| served.output == without.output && served.logits == without.logits;
        let lengths = without.output.len() == NEW_TOKENS && without.logits.len() == NEW_TOKENS;
        let counts = [without.computed, with.computed, self.saved(), copied.computed, unrelated.matched];
        same(with) && same(copied) && lengths && counts == [121, 25, 96, 24, 0] && *leaked == 0
    }
}

fn engine(model: &Model, publish: bool, min_copied_tokens: Option<usize>) -> Result<Engine<'_, Cpu>, ServeError> {
    let scheduler = SchedulerConfig::default().min_copied_tokens(min_copied_tokens);
    Engine::new(model, Cpu, Options { blocks: 64, dtype: Dtype::Bf16, publish, scheduler, ..Options::default() })
}

fn serve(engine: &Engine<'_, Cpu>, prompt: Vec<Token>) -> Result<Served, ServeError> {
    engine.submit(1, prompt, NEW_TOKENS)?;
    let logits = std::cell::RefCell::new(Vec::new());
    let mut scheduler = engine.scheduler()?;
    let mut computed = 0;
    loop {
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect();
        match engine.step(&mut scheduler, &|seen| logits.borrow_mut().push(bits(seen.logits)))? {
            Stepped::Idle => {}
            Stepped::Computed { tokens, finished, .. } => {
                computed += tokens;
                if let Some(Finished { tokens, prompt_len, cached_len, .. }) = finished.into_iter().next() {
                    let output = tokens[prompt_len..].to_vec();
                    return Ok(Served { matched: cached_len, computed, output, logits: logits.into_inner() });
                }
            }
        }
    }
}
