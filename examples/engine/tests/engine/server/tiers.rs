//! The server over a host tier: the answers without a cache, more tokens found, and nothing shared
//! that must not be.

use engine::serve::Options;
use engine::server::ServerOptions;
use serde_json::json;

use super::client::post;
use super::{COMPLETIONS, Running, bytes, expected, model, options, with_server};

const NEW_TOKENS: usize = 6;
/// Blocks of 8 tokens that a prompt fills.
const PROMPT_BLOCKS: usize = 9;

/// Prompts of which two or three fit a device of 32 blocks.
fn prompts() -> Vec<String> {
    let prompt = |number: usize| format!("question {number}: {}", "where do I find the maps? ".repeat(3));
    (0..6).map(|number| prompt(number)[..PROMPT_BLOCKS * 8 + 2].to_owned()).collect()
}

/// The text that follows a prompt, and how many of its tokens were found.
fn ask(server: &Running, prompt: &str, salt: Option<&str>) -> (String, u64) {
    let mut body = json!({ "prompt": prompt, "max_tokens": NEW_TOKENS });
    salt.into_iter().for_each(|salt| body["cache_salt"] = json!(salt));
    let answer = post(server.address, COMPLETIONS, &body).json();
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    (answer["choices"][0]["text"].as_str().expect("a text").to_owned(), cached.as_u64().expect("a number"))
}

// Holds: HT16.
#[test]
fn answers_are_the_same_and_more_of_a_prompt_is_found() {
    let model = model();
    let prompts: Vec<_> =
        prompts().into_iter().map(|prompt| (expected(&model, &bytes(&prompt), NEW_TOKENS), prompt)).collect();
    let [without, with] = [0, 256].map(|host_blocks| {
        let (options, mut found) = (Options { blocks: 32, host_blocks, ..options() }, [0; 3]);
        with_server(&model, options, ServerOptions::default(), |server| {
            for found in &mut found {
                for (expected, prompt) in &prompts {
                    let (text, cached) = ask(server, prompt, None);
                    assert_eq!(text, *expected, "{host_blocks} host blocks");
                    *found += cached as usize;
                }
            }
            let onboarded = server.tiers.as_ref().map_or(0, |tiers| tiers.stats().onboarded_tokens);
            assert_eq!(onboarded > 0, host_blocks > 0);
        });
        found
    });
    // Six prompts do not fit the device: what is found again comes from the host.
    let all = prompts.len() * PROMPT_BLOCKS * 8;
    assert!(with[1..].iter().all(|&found| found >= all * 9 / 10), "{with:?} of {all}");
    assert!(with[2] > without[2] && with[0] <= all / 10, "{without:?} and {with:?}");
}

#[test]
fn a_prompt_that_comes_from_the_host_is_one_lookup() {
    let (model, prompts) = (model(), prompts());
    let options = Options { blocks: 32, host_blocks: 256, ..options() };
    with_server(&model, options, ServerOptions::default(), |server| {
        let asked = (0..3).flat_map(|_| &prompts);
        // The last token is computed in any case, and not looked up.
        let tokens: u64 = asked.map(|prompt| (ask(server, prompt, None), prompt.len() as u64 - 1).1).sum();
        assert!(server.tiers.as_ref().is_some_and(|tiers| tiers.stats().onboarded_tokens > 0));
        let stats = server.cache.stats();
        assert_eq!((stats.lookups, stats.query_tokens), (3 * prompts.len() as u64, tokens));
    });
}

// Holds: HT16.
#[test]
fn what_one_salt_left_in_the_host_is_not_found_under_another() {
    let (model, prompts) = (model(), prompts());
    let options = Options { blocks: 32, host_blocks: 256, ..options() };
    with_server(&model, options, ServerOptions::default(), |server| {
        for salt in [Some("a"), None, Some("b")] {
            let found: Vec<u64> = prompts.iter().map(|prompt| ask(server, prompt, salt).1).collect();
            // Prompts share their first block at most, among those of one salt.
            assert!(found[0] == 0 && found.iter().all(|&found| found <= 8), "{salt:?}: {found:?}");
        }
        let again = ask(server, &prompts[0], Some("a")).1;
        assert_eq!(again, (PROMPT_BLOCKS * 8) as u64, "from the host");
    });
}
