//! One request that shares 97 tokens with an earlier one.

use engine::acceptance::Acceptance;

#[test]
fn what_is_cached_is_not_computed_and_nothing_else_changes() {
    let acceptance = Acceptance::run().expect("a small engine");
    let Acceptance { with, copied, without, unrelated, leaked } = &acceptance;
    assert_eq!((without.matched, without.computed), (0, 121));
    assert_eq!((with.matched, with.computed, acceptance.saved()), (96, 25, 96));
    assert_eq!((with.output.len(), with.logits.len()), (20, 20));
    assert_eq!(with.output, without.output);
    assert!(with.logits == without.logits, "logits differ in a bit");
    assert_eq!((copied.matched, copied.computed), (97, 24));
    assert!(copied.output == without.output && copied.logits == without.logits, "copied keys and values differ");
    assert_eq!((unrelated.matched, unrelated.computed), (0, 121));
    assert_eq!(*leaked, 0);
    assert!(acceptance.holds());
}

#[test]
fn the_command_prints_the_figures() {
    let mut out = Vec::new();
    let arguments = ["engine", "--acceptance"].map(Into::into);
    engine::command::run(arguments, &mut out).expect("the case holds");
    let text = String::from_utf8(out).expect("text");
    let cells = |name: &str| {
        let row = text.lines().find(|line| line.contains(name)).expect("a row");
        row.split(['│', '┆']).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(cells("97 of them shared")[2..7], ["96", "25", "96 (79.3 %)", "the same", "the same"], "{text}");
    assert_eq!(cells("partial hits copied")[2..7], ["97", "24", "97 (80.2 %)", "the same", "the same"], "{text}");
    assert_eq!(cells("nothing shared")[2..5], ["0", "121", "0 (0.0 %)"], "{text}");
}
