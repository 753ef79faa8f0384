//! The output fits the screen, and is plain text if there is no terminal.

use std::process::{Command, Output};

use super::{ROWS, Scratch};

/// Runs the command with lines of this many columns.
fn shown(columns: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.env("COLUMNS", columns).args(arguments).output().expect("the command runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

// Holds: RP14.
#[test]
fn tables_fit_eighty_columns_and_have_all_columns_at_two_hundred() {
    let scratch = Scratch::new("screen");
    let trace = scratch.file("a-trace-with-a-name-of-more-columns-than-a-narrow-screen-has-and-then-some.jsonl", ROWS);
    let trace = trace.to_str().expect("a name");
    let tables: [&[&str]; 3] = [&["replay"], &["replay", trace], &["bench", "--quick", "--rounds", "1", "match"]];
    for arguments in tables {
        for columns in ["60", "80", "120", "200"] {
            let table = text(&shown(columns, arguments));
            let most = columns.parse().expect("a number");
            assert!(widest(&table) <= most, "{arguments:?} at {columns}:\n{table}");
            assert!(!table.contains('\u{1b}'), "colours without a terminal: {table:?}");
        }
    }
    let named = ["strains", "prompt tokens", "Mtok/s", "evicted"];
    let missing =
        |table: &str| named.iter().filter(|name| !table.lines().nth(1).unwrap_or("").contains(**name)).count();
    let narrow = text(&shown("80", &["replay"]));
    assert!(missing(&narrow) > 0 && narrow.contains("--wide shows more columns: strains"), "{narrow}");
    for wide in [shown("200", &["replay"]), shown("80", &["replay", "--wide"]), shown("80", &["--wide", "replay"])] {
        assert_eq!(missing(&text(&wide)), 0, "{}", text(&wide));
    }
}

#[test]
fn without_a_terminal_and_a_width_there_are_eighty_columns() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    let table = command.env_remove("COLUMNS").arg("replay").output().expect("the command runs");
    assert!((60..=80).contains(&widest(&text(&table))), "{}", text(&table));
}

// Holds: RP14.
#[test]
fn help_is_wrapped_at_words() {
    for command in ["replay", "bench"] {
        let long = text(&shown("200", &[command, "--help"]));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for columns in [60, 80] {
            let help = text(&shown(&columns.to_string(), &[command, "--help"]));
            assert!(widest(&help) <= columns, "{help}");
            assert_eq!(words(&help), words(&long), "no word is broken");
        }
        assert!(widest(&long) <= 100, "lines are short enough to read");
    }
}

#[test]
fn shells_complete_the_options() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = text(&shown("80", &["completions", shell]));
        assert!(script.contains("block-size") && script.contains("radixkv"), "{shell}: {script}");
    }
}
