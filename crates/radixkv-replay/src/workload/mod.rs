//! Workloads made from a seed: the classes of load that prefix caches meet, in the parameters in which the field's
//! own benchmarks state them.
//!
//! Every class has a [`Band`]: the hit rate that its parameters predict for a cache that never evicts. The bands are
//! arithmetic on the parameters, not measurements. Their lower end allows for whole-block matching, which loses up to
//! a block less a token of each request, and for generated tokens not being cached where later prompts repeat them.
//!
//! | class | parameters after |
//! |---|---|
//! | `shared-system`, `shared-system-zipf` | SGLang's generated-shared-prefix |
//! | `prefix-repetition` | vLLM's prefix repetition |
//! | `multi-turn` | SGLang's multi-turn benchmark |
//! | `long-qa` | LMCache's multi-round QA |
//! | `agents` | what Mooncake measured of tools and agents |
//! | `few-shot` | SGLang's GSM8K |
//! | `tree-of-thought` | SGLang's tree of thought |
//! | `rag` | Preble and RAGPulse |
//! | `diverse` | Azure's lengths of 2023 |
//! | `adversarial` | the cache's own weak points |

mod adversarial;
mod dice;
mod documents;
mod prefixes;
mod reasoning;
mod turns;

use super::{Trace, request::Segment};

/// Block size that the bands are computed for.
pub const BAND_BLOCK_SIZE: usize = 16;

/// The hit rates that a class's parameters predict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Band {
    /// Whether a hit rate is as predicted.
    #[must_use]
    pub fn contains(&self, hit_rate: f64) -> bool {
        // Reports round to six decimals.
        (self.low - 1e-6..=self.high + 1e-6).contains(&hit_rate)
    }

    /// From the hit tokens that matching token by token would give: whole blocks lose up to a block less a token of
    /// each request that hits.
    fn of_tokens(hit_tokens: f64, prompt_tokens: f64, hitting_requests: f64) -> Self {
        let lost = hitting_requests * (BAND_BLOCK_SIZE - 1) as f64;
        Self { low: (hit_tokens - lost).max(0.0) / prompt_tokens, high: hit_tokens / prompt_tokens }
    }

    /// Wider by a share of itself on both sides, for what is drawn by lot.
    fn widened(self, share: f64) -> Self {
        Self { low: self.low * (1.0 - share), high: (self.high * (1.0 + share)).min(1.0) }
    }
}

/// A class of load.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// What it strains.
    pub strains: &'static str,
    make: fn(u64) -> Trace,
    band: fn() -> Band,
}

impl Class {
    /// Makes the requests; equal seeds give equal traces.
    #[must_use]
    pub fn trace(&self, seed: u64) -> Trace {
        let mut trace = (self.make)(seed);
        trace.sort();
        trace
    }

    /// The hit rate that the parameters predict for an infinite cache with blocks of [`BAND_BLOCK_SIZE`].
    #[must_use]
    pub fn band(&self) -> Band {
        (self.band)()
    }
}

/// All classes.
pub const CLASSES: [Class; 11] = [
    Class {
        name: "shared-system",
        strains: "few hot points, many readers",
        make: prefixes::shared_system,
        band: prefixes::shared_system_band,
    },
    Class {
        name: "shared-system-zipf",
        strains: "one point hotter than all others",
        make: prefixes::shared_system_zipf,
        band: prefixes::shared_system_zipf_band,
    },
    Class {
        name: "prefix-repetition",
        strains: "hot points, constant insert and evict",
        make: prefixes::prefix_repetition,
        band: prefixes::prefix_repetition_band,
    },
    Class {
        name: "multi-turn",
        strains: "paths grow at the tip",
        make: turns::multi_turn,
        band: turns::multi_turn_band,
    },
    Class { name: "long-qa", strains: "long leases", make: turns::long_qa, band: turns::long_qa_band },
    Class {
        name: "agents",
        strains: "three roots, fan-out in the thousands",
        make: prefixes::agents,
        band: prefixes::agents_band,
    },
    Class {
        name: "few-shot",
        strains: "one hot point, pure read",
        make: prefixes::few_shot,
        band: prefixes::few_shot_band,
    },
    Class {
        name: "tree-of-thought",
        strains: "sibling inserts race",
        make: reasoning::tree_of_thought,
        band: reasoning::tree_of_thought_band,
    },
    Class { name: "rag", strains: "medium fan-out", make: documents::rag, band: documents::rag_band },
    Class { name: "diverse", strains: "pool and evictor alone", make: prefixes::diverse, band: prefixes::diverse_band },
    Class {
        name: "adversarial",
        strains: "duplicates, races, starvation",
        make: adversarial::adversarial,
        band: adversarial::adversarial_band,
    },
];

/// A trace in the making, with hash ids that were not used before.
#[derive(Default)]
struct Maker {
    trace: Trace,
    used_ids: u64,
}

impl Maker {
    fn fresh_id(&mut self) -> u64 {
        self.used_ids += 1;
        self.used_ids
    }

    /// `len` tokens that nothing else shares, unless the segment is used again.
    fn fresh(&mut self, len: u32) -> Segment {
        Segment::Hashed { id: self.fresh_id(), len }
    }

    /// Adds a request that generates tokens of its own.
    fn request(&mut self, timestamp: f64, prompt: &[Segment], output_tokens: u32) {
        self.push(timestamp, prompt, None, output_tokens);
    }

    /// Adds a request whose answer other prompts may repeat.
    fn answered(&mut self, timestamp: f64, prompt: &[Segment], answer: Segment) {
        self.push(timestamp, prompt, Some(answer), answer.len() as u32);
    }

    fn push(&mut self, timestamp: f64, prompt: &[Segment], answer: Option<Segment>, output_tokens: u32) {
        let length: usize = prompt.iter().map(|segment| segment.len()).sum();
        self.trace.push(timestamp, prompt.iter().copied(), length as u32, answer, output_tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an infinite cache hits: every whole block but the first sight of it.
    fn infinite_hit_rate(trace: &Trace) -> f64 {
        let blocks: usize = trace.requests().iter().map(|r| r.prompt_tokens() / BAND_BLOCK_SIZE).sum();
        let hits = blocks - trace.working_set(BAND_BLOCK_SIZE);
        (hits * BAND_BLOCK_SIZE) as f64 / trace.prompt_tokens() as f64
    }

    #[test]
    fn every_class_hits_what_its_parameters_predict() {
        for class in CLASSES {
            for seed in [0, 1, 2] {
                let (rate, band) = (infinite_hit_rate(&class.trace(seed)), class.band());
                assert!(band.contains(rate), "{} with seed {seed}: {rate} is outside of {band:?}", class.name);
                assert!(band.high - band.low < 0.12, "{}: {band:?} says little", class.name);
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_traces() {
        for class in CLASSES {
            let tokens = |seed| {
                let trace = class.trace(seed);
                let request = &trace.requests()[trace.requests().len() / 2];
                let mut tokens = vec![0; request.key_tokens(true)];
                trace.fill(request, &mut tokens);
                (trace.requests().len(), trace.prompt_tokens(), tokens)
            };
            assert_eq!(tokens(7), tokens(7), "{}", class.name);
        }
    }

    #[test]
    fn names_are_unique() {
        for (at, class) in CLASSES.iter().enumerate() {
            assert!(CLASSES[..at].iter().all(|other| other.name != class.name));
        }
    }
}
