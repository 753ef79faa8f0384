//! The baseline of every run: the whole sequence is computed again for each token, alone, in one
//! block.

use engine::model::Model;
use engine::sampling::Sampling;
use radixkv::Token;
use radixkv_attention::cpu::Cpu;
use radixkv_attention::{Backend, Dtype};
use radixkv_scheduler::{Batch, SequenceId};

/// A prompt's greedy continuation, and the bits of the logits of each of its tokens.
pub struct Continuation {
    pub prompt: Vec<Token>,
    pub output: Vec<Token>,
    pub logits: Vec<Vec<u32>>,
}

pub fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// The logits after `tokens`.
pub fn logits(model: &Model, dtype: Dtype, tokens: &[Token]) -> Vec<f32> {
    let layout = model.layout(tokens.len(), 1, dtype);
    let kv = Cpu.allocate(layout).expect("a block");
    let mut batch = Batch::new(tokens.len());
    batch.push(SequenceId::from(0), 0, 0, tokens, &[0], true);
    model.forward(&Cpu, &kv, &layout, &batch, false).expect("a good batch")
}

/// Continues a prompt by `new_tokens`, or up to an end token.
pub fn continuation(model: &Model, dtype: Dtype, prompt: &[Token], new_tokens: usize) -> Continuation {
    let mut tokens = prompt.to_vec();
    let mut all = Vec::new();
    while all.len() < new_tokens {
        let logits = logits(model, dtype, &tokens);
        let token = Sampling::default().choose(&logits, 0, 0);
        all.push(bits(&logits));
        tokens.push(token);
        if model.config().end_tokens.contains(&token) {
            break;
        }
    }
    Continuation { prompt: prompt.to_vec(), output: tokens.split_off(prompt.len()), logits: all }
}
