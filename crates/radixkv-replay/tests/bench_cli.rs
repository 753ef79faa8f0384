//! The command `radixkv bench`: the rows that it prints, and its error messages.
#![cfg(feature = "cli")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_radixkv")).arg("bench").args(arguments).output().expect("the command runs")
}

fn table(arguments: &[&str]) -> String {
    let output = run(arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert_eq!(err, "", "nothing is said beside the table");
    out.into_owned()
}

/// The cells of every line of the table; a cell that equals the one above it is empty.
fn cells(table: &str) -> Vec<Vec<&str>> {
    let lines = table.lines().filter(|line| line.starts_with('│'));
    lines.map(|line| line.trim_matches('│').split('┆').map(str::trim).collect()).collect()
}

#[test]
fn a_quick_table_has_every_row_of_every_contender() {
    let table = table(&["--quick", "--rounds", "1", "--threads", "3", "--wide"]);
    let lines = cells(&table);
    assert_eq!(lines[0], ["row", "figure", "", "median", "quartiles", "/ limit", "/ strawman", "does not"]);
    let named =
        |column: usize| lines[1..].iter().map(|line| line[column]).filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
    let rows = [&["match"][..], &["contention"; 3], &["turnover"; 5]].concat();
    assert_eq!(named(0), rows);
    let figures = "ns|M/s, 1 thread|M/s, 2 threads|M/s, 3 threads|M/s, 1 thread|M/s, 2 threads|M/s, 3 threads|\
                   reserve p99, us, 3 thr.|reserve p99.9, us, 3 thr.";
    assert_eq!(named(1).join("|"), figures);
    let of = |name: &str| lines.iter().filter(|line| line[2] == name).collect::<Vec<_>>();
    // The limit of turnover has no figures of reservations.
    let limits = [of("memcmp"), of("malloc + copy")].concat();
    assert_eq!((of("radixkv").len(), of("strawman, Mutex").len(), limits.len()), (9, 9, 7));
    for line in &lines[1..] {
        assert!(line[3].parse::<f64>().is_ok_and(|median| median > 0.0), "{line:?}");
    }
    for line in &of("radixkv")[..4] {
        assert!(!line[5].is_empty() && !line[6].is_empty(), "{line:?} stands beside its limit and the strawman");
    }
    for row in ["match: ", "contention: ", "turnover: "] {
        assert!(table.lines().any(|line| line.starts_with(row)), "the table says what {row} is");
    }
}

#[test]
fn rows_are_chosen_by_name() {
    let table = table(&["match", "--quick", "--rounds", "1"]);
    assert!(table.contains("match: ") && !table.contains("contention") && !table.contains("turnover"), "{table}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let refused: [(&[&str], &str); 11] = [
        (&["--threads", "0"], "must be more than zero"),
        (&["--threads", "257"], "more than 256"),
        (&["--threads", "99999999999999999999"], "not a number"),
        (&["--threads", "two"], "not a number"),
        (&["--threads"], "a value is required"),
        (&["--rounds", "0"], "must be more than zero"),
        (&["--rounds", "10001"], "more than 10000"),
        (&["--rounds=-1"], "not a number"),
        (&["--quick=yes"], "unexpected value"),
        (&["trace.jsonl"], "[possible values: match, contention, turnover]"),
        (&["--json"], "unexpected argument"),
    ];
    for (arguments, reason) in refused {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_said() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    let output = command.args(["bench", "match", "--quick", "--rounds", "1"]).stdout(full).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output: cannot be written"));
}
