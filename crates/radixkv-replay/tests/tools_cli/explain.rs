use super::{Scratch, complaint, fed, json, printed};

#[test]
fn prompts_are_compared_token_by_token() {
    let scratch = Scratch::new("explain");
    let list = |numbers: std::ops::Range<u32>| format!("{:?}", numbers.collect::<Vec<_>>());
    let (a, b) = (scratch.file("a", list(0..40)), scratch.file("b", list(0..37).replace(']', ", 90]")));
    let explained = json(&["explain", &a, &b]);
    for (key, value) in [("shared_tokens", 37), ("whole_blocks", 2), ("mid_block_tokens", 5), ("block_hash_tokens", 32)]
    {
        assert_eq!(explained[key], value, "{key}");
    }
    let table = printed(&["explain", &a, &b]);
    assert!(table.contains("The prompts diverge at token 37 (block 2, token 5 of it; counted from 0)."), "{table}");
    assert!(table.lines().any(|line| line.contains("37") && line.contains("90") && line.contains("parts")), "{table}");
    let piped = fed(&["explain", &a, "-"], "0 1 2");
    assert!(String::from_utf8_lossy(&piped.stdout).contains("B ends at token 3"), "{piped:?}");
    assert!(printed(&["explain", &a, &a]).contains("The prompts are the same."));
}

#[test]
fn texts_need_a_tokenizer() {
    let scratch = Scratch::new("explain-texts");
    let (a, b) = (scratch.file("a", "Today is Sunday."), scratch.file("b", "Today is Monday."));
    assert!(complaint(&["explain", &a, &b]).contains("\"Today\" is not a token"));
    let explained = json(&["explain", &a, &b, "--tokenizer", "bytes", "--block-size", "4"]);
    assert_eq!((&explained["shared_tokens"], &explained["whole_blocks"]), (&9.into(), &2.into()));
    assert!(printed(&["explain", &a, &b, "--tokenizer", "bytes"]).contains("83 \"S\""));
    assert!(complaint(&["explain", &a, &b, "--tokenizer", "no/such.json"]).contains("no/such.json"));
    assert!(complaint(&["explain", "-", "-"]).contains("both prompts are standard input"));
    assert!(complaint(&["explain", &a, "no/such", "--tokenizer", "bytes"]).contains("no/such: cannot be read"));
}

/// A tokenizer that makes one token of each word.
#[cfg(feature = "tokenizers")]
const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"?": 0, "Today": 1, "is": 2, "Sunday": 3, "Monday": 4, ".": 5}, "unk_token": "?"}}"#;

#[cfg(feature = "tokenizers")]
#[test]
fn a_tokenizer_of_a_model_makes_tokens_of_texts() {
    let scratch = Scratch::new("explain-tokenizer");
    let tokenizer = scratch.file("tokenizer.json", WORDS);
    let (a, b) = (scratch.file("a", "Today is Sunday."), scratch.file("b", "Today is Monday."));
    let explained = json(&["explain", &a, &b, "--tokenizer", &tokenizer, "--block-size", "2"]);
    assert_eq!((&explained["tokens"], &explained["shared_tokens"]), (&vec![4, 4].into(), &2.into()));
    assert!(printed(&["explain", &a, &b, "--tokenizer", &tokenizer]).contains("4 \"Monday\""));
    let broken = scratch.file("broken.json", "{}");
    assert!(
        complaint(&["explain", &a, &b, "--tokenizer", &broken]).contains("broken.json: cannot be read as a tokenizer")
    );
}
