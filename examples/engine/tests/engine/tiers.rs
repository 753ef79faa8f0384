//! Over a host tier the engine computes the same bits as without any cache: keys and values are
//! copied out and back.

use std::cell::RefCell;

use engine::command::run;
use engine::dice::Dice;
use engine::serve::{Engine, Options, Stepped};
use radixkv::Token;
use radixkv_attention::Dtype;
use radixkv_attention::cpu::Cpu;

use crate::{assert_at_rest, random, tiny};

const NEW_TOKENS: usize = 6;

/// What a request is answered with: tokens that were found, the sampled tokens, and the bits of
/// their logits.
type Answer = (usize, Vec<Token>, Vec<Vec<u32>>);

fn answer(engine: &Engine<'_, Cpu>, prompt: &[Token]) -> Answer {
    engine.submit(1, prompt.to_vec(), NEW_TOKENS).expect("a good request");
    let (mut scheduler, logits) = (engine.scheduler().expect("good options"), RefCell::new(Vec::new()));
    loop {
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect();
        let stepped = engine.step(&mut scheduler, &|seen| logits.borrow_mut().push(bits(seen.logits)));
        if let Stepped::Computed { finished, .. } = stepped.expect("a good step") {
            if let Some(finished) = finished.into_iter().next() {
                let output = finished.tokens[finished.prompt_len..].to_vec();
                return (finished.cached_len, output, logits.into_inner());
            }
        }
    }
}

// Holds: HT15.
#[test]
fn a_host_tier_changes_no_bit() {
    let model = random(tiny(), 5);
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let options = Options { block_size: 8, blocks: 24, host_blocks: 128, dtype, ..Options::default() };
        let tiered = Engine::new(&model, Cpu, options.clone()).expect("good options");
        let tiered = tiered.over_host_tier().expect("they go together");
        let plain = Engine::new(&model, Cpu, Options { publish: false, ..options }).expect("good options");
        let mut dice = Dice::new(11);
        let prompts: Vec<Vec<Token>> =
            (0..8).map(|at| (0..60 + at).map(|_| dice.below(64) as Token).collect()).collect();
        let mut found = 0;
        for round in 0..3 {
            for prompt in &prompts {
                let ((cached, output, logits), without) = (answer(&tiered, prompt), answer(&plain, prompt));
                assert_eq!((&output, &logits), (&without.1, &without.2), "round {round}, {dtype:?}");
                found += cached;
            }
        }
        let tiers = tiered.tiers().expect("it was put over one");
        // Eight prompts of eight blocks do not fit the device: in the later rounds they come from
        // the host.
        assert!(found >= 2 * 8 * 48, "{found} tokens were found");
        assert!(tiers.stats().onboarded_tokens >= 2 * 8 * 40, "{:?}", tiers.stats());
        assert_at_rest(tiered.cache(), "over a host tier");
        tiers.host().validate().expect("a valid tier");
    }
}

#[test]
fn the_command_takes_host_blocks_and_finds_the_same_outputs() {
    let mut out = Vec::new();
    let options = [
        "engine",
        "--requests",
        "6",
        "--new-tokens",
        "3",
        "--block-size",
        "8",
        "--blocks",
        "64",
        "--host-blocks",
        "200",
    ];
    run(options.map(Into::into), &mut out).expect("the same outputs");
    assert!(String::from_utf8(out).expect("text").contains("outputs are the same"));
}
