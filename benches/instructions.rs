//! Makes a given number of calls of one operation, under a tool that counts instructions.
//! `benches/instructions/count.sh` compares the counts with `benches/instructions/ceilings.txt`.
//!
//! `instructions` prints the names of the operations; `instructions NAME CALLS` makes that many
//! calls of one. `instructions lines` is for `benches/instructions/lines.sh`.

#[allow(dead_code)]
mod common;
#[path = "instructions/lines.rs"]
mod lines;
#[path = "instructions/operations.rs"]
mod operations;

use std::process::ExitCode;

use operations::{MOST, ROWS};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [name, calls] = &arguments[..] else {
        ROWS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    if name == "lines" {
        return lines::run(calls);
    }
    let row = ROWS.iter().find(|(known, _)| known == name);
    let Some(((_, prepare), calls)) = row.zip(calls.parse().ok().filter(|calls| *calls <= MOST)) else {
        eprintln!("instructions: no such operation, or no number of calls up to {MOST}");
        return ExitCode::FAILURE;
    };
    let mut operation = prepare();
    (0..calls).for_each(|_| operation());
    // Exits without dropping the prepared state: the cost of a drop would depend on the calls.
    std::process::exit(0)
}
