use super::{Scratch, complaint, fed, json, run_at};

const AZURE: &str =
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,374,44\n2023-11-16 18:15:50.6,396,109\n";

// Holds: RP13.
#[test]
fn a_converted_log_is_a_trace() {
    let scratch = Scratch::new("convert");
    let chat = |question: &str| {
        format!(
            "{{\"messages\": [{{\"role\": \"system\", \"content\": \"Be brief, and kind.\"}}, {{\"role\": \"user\", \"content\": \"{question}\"}}]}}\n"
        )
    };
    let log = scratch.file("chats.jsonl", chat("Why?") + &chat("Why not?") + &chat("Why?"));
    let trace = scratch.path("trace.jsonl");
    let output = run_at(80, &["convert", &log, "--format", "openai", "--tokenizer", "bytes", "--output", &trace]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("3 requests"), "{said}");
    assert!(output.stdout.is_empty() && !scratch.text("trace.jsonl").contains("brief"), "ids alone");
    let report = json(&["replay", &trace, "--capacity", "100", "--unit", "16"]);
    assert!(report["hit_rate"].as_f64().expect("a rate") > 0.4, "{report}");
    let piped = fed(&["convert", "-", "--format", "azure"], AZURE);
    assert!(piped.status.success() && String::from_utf8_lossy(&piped.stdout).lines().count() == 2, "{piped:?}");
}

// Holds: RP16.
#[test]
fn what_cannot_be_converted_leaves_an_older_file_as_it_is() {
    let scratch = Scratch::new("convert-faults");
    let older = scratch.file("trace.jsonl", "older\n");
    let log = scratch.file("log", format!("{AZURE}2023-11-16 18:15:51,many,1\n"));
    let said = complaint(&["convert", &log, "--format", "azure", "--output", &older]);
    assert!(said.contains("log: line 4: the field ContextTokens is not an integer"), "{said}");
    assert_eq!(scratch.text("trace.jsonl"), "older\n");
    let said = complaint(&["convert", &log, "--format", "azure", "--output", &log]);
    assert!(said.contains("not written"), "{said}");
    let tokenizer = scratch.file("tokenizer.json", "{}");
    let said = complaint(&["convert", &log, "--format", "azure", "--tokenizer", &tokenizer, "--output", &tokenizer]);
    assert!(said.contains("not written: another option reads it") && scratch.text("tokenizer.json") == "{}", "{said}");
    assert!(
        complaint(&["convert", &log, "--format", "vllm"])
            .contains("none of the 4 lines is a request in the format vllm")
    );
    assert!(complaint(&["convert", &log, "--format", "morse"]).contains("none of openai, vllm"));
    assert!(complaint(&["convert", "no/such", "--format", "vllm"]).contains("no/such: cannot be opened"));
    let missing = scratch.path("no/such/folder.jsonl");
    // The error is reported before the work: the log is not even opened.
    assert!(
        complaint(&["convert", "no/such", "--format", "vllm", "-o", &missing])
            .contains("folder.jsonl: cannot be written")
    );
    let chat = scratch.file("chat", "{\"prompt\": \"Why?\"}");
    assert!(complaint(&["convert", &chat, "--format", "openai"]).contains("; give a --tokenizer"));
}
