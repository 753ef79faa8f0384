use super::*;

const LOGITS: [f32; 5] = [1.0, 3.0, 2.0, 3.0, -1.0];

#[test]
fn without_temperature_the_first_of_the_largest() {
    assert_eq!(Sampling::default().choose(&LOGITS, 1, 2), 1);
}

#[test]
fn draws_follow_the_probabilities() {
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    let mut counts = [0_u32; 5];
    (0..20_000).for_each(|position| counts[sampling.choose(&LOGITS, 7, position) as usize] += 1);
    let total: f32 = LOGITS.iter().map(|logit| logit.exp()).sum();
    for (count, logit) in counts.iter().zip(LOGITS) {
        let expected = 20_000.0 * logit.exp() / total;
        assert!((*count as f32 - expected).abs() < 5.0 * expected.sqrt() + 1.0, "{counts:?}");
    }
}

#[test]
fn draws_are_limited_to_the_top() {
    let all = |sampling: Sampling| {
        let mut seen: Vec<Token> = (0..500).map(|position| sampling.choose(&LOGITS, 0, position)).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    let hot = Sampling { temperature: 2.0, ..Sampling::default() };
    assert_eq!(all(hot), [0, 1, 2, 3, 4]);
    assert_eq!(all(Sampling { top_k: 3, ..hot }), [1, 2, 3]);
    assert_eq!(all(Sampling { top_p: 0.5, ..hot }), [1, 3]);
    assert_eq!(all(Sampling { top_p: 0.0, ..hot }), [1]);
}

/// The reference: candidates from sorting the whole vocabulary.
fn sorted(sampling: &Sampling, logits: &[f32]) -> Vec<(Token, f32)> {
    let mut all: Vec<(Token, f32)> = (0..).zip(logits.iter().copied()).collect();
    all.sort_by(descending);
    let top = all[0].1;
    all.truncate(if sampling.top_k == 0 { all.len() } else { sampling.top_k });
    all.iter_mut().for_each(|(_, logit)| *logit = ((*logit - top) / sampling.temperature).exp());
    let needed = f64::from(sampling.top_p) * all.iter().map(|(_, weight)| f64::from(*weight)).sum::<f64>();
    let mut sum = 0.0;
    let reached = all.iter().position(|(_, weight)| {
        sum += f64::from(*weight);
        sum >= needed
    });
    // With a `top_p` of 1, keeps all, in spite of rounding.
    let reached = reached.filter(|_| sampling.top_p < 1.0);
    all.truncate(reached.map_or(all.len(), |at| at + 1));
    all.sort_by_key(|(token, _)| *token);
    all
}

#[test]
fn candidates_are_those_of_a_sorted_vocabulary() {
    let dice = &mut Dice::new(9);
    for round in 0..400 {
        let logits: Vec<f32> = (0..1 + dice.below(300)).map(|_| (dice.normal() * 4.0).round() / 2.0).collect();
        let top_k = dice.below(2) * dice.below(logits.len() + 20);
        let top_p = if dice.below(3) == 0 { 1.0 } else { dice.unit() };
        let sampling = Sampling { temperature: 0.1 + 2.0 * dice.unit(), top_k, top_p, seed: 0 };
        assert_eq!(sampling.candidates(&logits), sorted(&sampling, &logits), "round {round}, {sampling:?}");
    }
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    for temperature in [f32::NAN, -0.1, f32::INFINITY, f32::NEG_INFINITY] {
        let refused = Sampling { temperature, ..Sampling::default() }.check().expect_err("no temperature");
        assert!(refused.to_string().starts_with("temperature is "), "{refused}");
    }
    for top_p in [f32::NAN, -0.1, 1.1, f32::INFINITY] {
        assert_eq!(Sampling { top_p, ..Sampling::default() }.check().map_err(|refused| refused.name), Err("top_p"));
    }
    assert_eq!(Sampling { temperature: 2.0, top_p: 0.0, top_k: 1, seed: 1 }.check(), Ok(()));
}

#[test]
fn draws_depend_on_seed_request_and_position() {
    let draws = |seed, request| -> Vec<Token> {
        let sampling = Sampling { temperature: 2.0, seed, ..Sampling::default() };
        (0..50).map(|position| sampling.choose(&LOGITS, request, position)).collect()
    };
    assert_eq!(draws(1, 1), draws(1, 1));
    assert_ne!(draws(1, 1), draws(2, 1));
    assert_ne!(draws(1, 1), draws(1, 2));
}
