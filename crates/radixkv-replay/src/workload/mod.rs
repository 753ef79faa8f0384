//! Workload classes generated from a seed: typical loads of prefix caches, with the parameters of
//! published benchmarks.
//!
//! Every class has a [`Band`]: the hit rates that its parameters predict for a cache that never
//! evicts. The bands are computed from the parameters, not measured. Their lower end allows for two
//! losses: matching whole blocks loses up to a block less one token for each request, and generated
//! tokens that later prompts repeat may not be cached.
//!
//! | class | source of the parameters |
//! |---|---|
//! | `shared-system`, `shared-system-zipf` | SGLang's generated-shared-prefix |
//! | `prefix-repetition` | vLLM's prefix repetition |
//! | `multi-turn` | SGLang's multi-turn benchmark |
//! | `long-qa` | LMCache's multi-round QA |
//! | `agents` | Mooncake's measurements of tools and agents |
//! | `few-shot` | SGLang's GSM8K |
//! | `tree-of-thought` | SGLang's tree of thought |
//! | `rag` | Preble and RAGPulse |
//! | `diverse` | the lengths in Azure's traces of 2023 |
//! | `adversarial` | the weak points of a cache |

mod adversarial;
mod band;
mod documents;
mod prefixes;
mod reasoning;
mod rng;
mod trace_builder;
mod turns;

pub use band::{BAND_BLOCK_SIZE, Band};

use crate::request::Trace;

/// A workload class: generated from a seed, with a hit rate that its parameters predict.
///
/// # Examples
///
/// ```
/// use radixkv_replay::workload::CLASSES;
///
/// let class = CLASSES.iter().find(|class| class.name == "multi-turn").expect("a class");
/// assert_eq!(class.trace(0).requests().len(), 1280);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Class {
    /// The name of the class.
    pub name: &'static str,
    /// The part of a cache that it stresses.
    pub strains: &'static str,
    make: fn(u64) -> Trace,
    band: fn() -> Band,
}

impl Class {
    /// Generates the requests; equal seeds give equal traces.
    ///
    /// # Examples
    ///
    /// ```
    /// let class = &radixkv_replay::workload::CLASSES[0];
    /// assert_eq!(class.trace(7).prompt_tokens(), class.trace(7).prompt_tokens());
    /// ```
    #[must_use]
    pub fn trace(&self, seed: u64) -> Trace {
        let mut trace = (self.make)(seed);
        trace.sort();
        trace
    }

    /// The hit rates that the parameters predict for a cache that never evicts, with blocks of
    /// [`BAND_BLOCK_SIZE`].
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, replay, replay::Capacity, workload::CLASSES};
    ///
    /// let class = &CLASSES[2];
    /// let config = ReplayConfig::default().capacity(Capacity::Percent(100.0));
    /// let report = replay(&class.trace(0), &config, &|| {})?.report;
    /// assert!(class.band().contains(report.hit_rate));
    /// # Ok::<_, radixkv_replay::ReplayError>(())
    /// ```
    #[must_use]
    pub fn band(&self) -> Band {
        (self.band)()
    }
}

/// All classes, in the order of the report; later versions may add some.
pub const CLASSES: &[Class] = &[
    Class {
        name: "shared-system",
        strains: "few hot prefixes, many readers",
        make: prefixes::shared_system,
        band: prefixes::shared_system_band,
    },
    Class {
        name: "shared-system-zipf",
        strains: "one prefix hotter than all others",
        make: prefixes::shared_system_zipf,
        band: prefixes::shared_system_zipf_band,
    },
    Class {
        name: "prefix-repetition",
        strains: "hot prefixes, constant insert and evict",
        make: prefixes::prefix_repetition,
        band: prefixes::prefix_repetition_band,
    },
    Class {
        name: "multi-turn",
        strains: "prefixes grow at their end",
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
        strains: "one hot prefix, pure read",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The hit rate of a cache that never evicts: every whole block is hit, except the first time.
    fn infinite_hit_rate(trace: &Trace) -> f64 {
        let blocks: usize = trace.requests().iter().map(|r| r.prompt_tokens() / BAND_BLOCK_SIZE).sum();
        let hits = blocks - trace.working_set_blocks(BAND_BLOCK_SIZE);
        (hits * BAND_BLOCK_SIZE) as f64 / trace.prompt_tokens() as f64
    }

    // Holds: RP2.
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
