use std::io::Cursor;

use super::*;
use crate::request::Trace;

fn converted(log: &str, config: &ConvertConfig<'_>) -> Result<(Converted, Vec<serde_json::Value>), String> {
    let mut trace = Vec::new();
    let converted = convert(Cursor::new(log.to_owned()), config, &mut trace).map_err(|error| error.to_string())?;
    let rows = String::from_utf8(trace.clone()).expect("text");
    let rows: Vec<serde_json::Value> = rows.lines().map(|row| serde_json::from_str(row).expect("a row")).collect();
    let read = Trace::from_reader(Cursor::new(trace), "converted", Some(config.unit as u32)).expect("a trace");
    assert_eq!((read.requests().len(), read.prompt_tokens()), (converted.requests, converted.prompt_tokens));
    Ok((converted, rows))
}

fn lists(rows: &[serde_json::Value], key: &str) -> Vec<String> {
    rows.iter().map(|row| row[key].to_string()).collect()
}

// Holds: RP13.
#[test]
fn a_log_of_vllm_is_a_trace() {
    let log = "\
INFO 12-31 23:59:59 logger.py:36] Received request cmpl-a: prompt: 'it\\'s, prompt_token_ids: [9]', params: \
SamplingParams(n=1, stop=[]), prompt_token_ids: [1, 2, 3, 4, 5], lora_request: None.
INFO:     10.0.0.1:5 - \"POST /v1/completions HTTP/1.1\" 200 OK
(APIServer pid=9) DEBUG 01-01 00:00:01 [logger.py:49] Request chat-b details: prompt: None, prompt_token_ids: [1, 2, 3, 9], \
prompt_embeds shape: None.
(APIServer pid=9) INFO 01-01 00:00:01 [logger.py:49] Received request chat-b: params: SamplingParams(n=1), lora_request: None.
INFO 01-01 00:00:02 [logger.py:80] Generated response chat-b (streaming delta): output: 'x', output_token_ids: [7], finish_reason: None
INFO 01-01 00:00:02 [logger.py:80] Generated response chat-b (streaming complete): output: \"[it's]\", output_token_ids: [7, 8], finish_reason: stop
";
    let config = ConvertConfig { unit: 2, ..ConvertConfig::new(LogFormat::Vllm) };
    let (converted, rows) = converted(log, &config).expect("a trace");
    assert_eq!((converted.requests, converted.prompt_tokens, converted.hash_ids, converted.other_lines), (2, 9, 4, 3));
    assert_eq!(lists(&rows, "timestamp"), ["0.0", "2000.0"]);
    assert_eq!(lists(&rows, "hash_ids"), ["[0,1,2]", "[0,3]"]);
    assert_eq!(lists(&rows, "output_length"), ["0", "2"]);
}

#[test]
fn prompts_of_vllm_may_contain_the_words_of_its_log() {
    let log = "\
DEBUG 01-01 00:00:01 [logger.py:49] Request a details: prompt: 'INFO Generated response x: output: y', prompt_token_ids: [1, 2]
DEBUG 01-01 00:00:02 [logger.py:49] Request b details: prompt: 'Received request x: prompt: y', prompt_token_ids: [1, 3]
INFO 01-01 00:00:03 [logger.py:80] Generated response b: output: 'Request x details: prompt: y', output_token_ids: [7]
";
    let (converted, rows) = converted(log, &ConvertConfig::new(LogFormat::Vllm)).expect("a trace");
    assert_eq!((converted.requests, converted.other_lines), (2, 0));
    assert_eq!(lists(&rows, "timestamp"), ["0.0", "1000.0"]);
    assert_eq!(lists(&rows, "output_length"), ["0", "1"]);
}

#[test]
fn texts_of_sglang_may_contain_the_words_of_its_log() {
    let log = "\
[2025-03-03 17:53:04] Receive: obj=GenerateReqInput(text='Finish: obj=', input_ids=[5, 6], rid='a')
[2025-03-03 17:53:05] Finish: obj=GenerateReqInput(text='Receive: obj=GenerateReqInput(', rid='a'), \
out={'meta_info': {'id': 'a', 'completion_tokens': 9}}
";
    let (converted, rows) = converted(log, &ConvertConfig::new(LogFormat::Sglang)).expect("a trace");
    assert_eq!((converted.requests, lists(&rows, "output_length")), (1, vec!["9".to_owned()]));
}

// Holds: RP13.
#[test]
fn a_log_of_sglang_is_a_trace() {
    let log = "\
[2025-03-03 17:53:04] INFO:     10.27.1.1:65179 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK
[2025-03-03 17:53:04] Receive: obj=GenerateReqInput(text=None, input_ids=[5, 6, 7], input_embeds=None, rid='ced0', stream=True)
[2025-03-03 17:53:05 TP0] Prefill batch. #new-seq: 1
[2025-03-03 17:53:06] Receive: obj=GenerateReqInput(rid='beef', text='input_ids=[1], rid=\\'no\\'', input_ids=[5, 6], x=1)
[2025-03-03 17:53:07] Finish: obj=GenerateReqInput(text=None, rid='ced0'), out={'text': 'a', 'meta_info': {'id': 'ced0', \
'finish_reason': {'type': 'stop'}, 'prompt_tokens': 3, 'completion_tokens': 41, 'cached_tokens': 0}}
";
    let config = ConvertConfig { unit: 2, ..ConvertConfig::new(LogFormat::Sglang) };
    let (_, rows) = converted(log, &config).expect("a trace");
    assert_eq!(lists(&rows, "hash_ids"), ["[0,1]", "[0]"]);
    assert_eq!(lists(&rows, "output_length"), ["41", "0"]);
    assert_eq!(lists(&rows, "timestamp"), ["0.0", "2000.0"]);
    let short =
        "[2025-03-03 17:53:04] Receive: obj=GenerateReqInput(text=None, input_ids=[5, 6] ... [8, 9], rid='ced0')";
    assert!(converted(short, &config).expect_err("refused").starts_with("line 1: the log has a truncated prompt"));
}

#[test]
fn requests_without_a_time_follow_the_one_before() {
    let log = "{\"prompt\": [1], \"timestamp\": 1700000000}\n{\"prompt\": [1]}\n{\"prompt\": [1]}\n\
        {\"prompt\": [1], \"timestamp\": 1700000001}\n";
    let (_, rows) = converted(log, &ConvertConfig::new(LogFormat::OpenAi)).expect("a trace");
    assert_eq!(lists(&rows, "timestamp"), ["0.0", "1.0", "2.0", "1000.0"]);
    let (_, rows) =
        converted(&"{\"prompt\": [1]}\n".repeat(3), &ConvertConfig::new(LogFormat::OpenAi)).expect("a trace");
    assert_eq!(lists(&rows, "timestamp"), ["0.0", "1.0", "2.0"]);
}

#[test]
fn chats_share_what_their_messages_share() {
    let row = |question: &str, more: &str| {
        format!(
            "{{\"messages\": [{{\"role\": \"system\", \"content\": \"Be brief.\"}}, {{\"role\": \"user\", \"content\": {question}}}]{more}}}"
        )
    };
    let log = [
        row("\"Why?\"", ", \"timestamp\": 10.5, \"usage\": {\"completion_tokens\": 4}"),
        format!(
            "{{\"custom_id\": \"x\", \"created\": 11, \"body\": {}}}",
            row("[{\"type\": \"text\", \"text\": \"Why not?\"}]", "")
        ),
        "{\"prompt\": [1, 2, 3], \"timestamp\": \"1970-01-01 00:00:12\"}".to_owned(),
    ]
    .join("\n");
    let config = ConvertConfig { unit: 8, tokenizer: Some(&ByteTokens), ..ConvertConfig::new(LogFormat::OpenAi) };
    let (_, rows) = converted(&log, &config).expect("a trace");
    assert_eq!(lists(&rows, "timestamp"), ["0.0", "500.0", "1500.0"]);
    assert_eq!(lists(&rows, "output_length"), ["4", "0", "0"]);
    let ids = |row: usize| rows[row]["hash_ids"].as_array().expect("ids").clone();
    let shared = ids(0).iter().zip(&ids(1)).take_while(|(a, b)| a == b).count();
    let same = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy";
    assert_eq!(shared, same.len() / 8);
    let silent = ConvertConfig { tokenizer: None, ..config };
    assert!(converted(&log, &silent).expect_err("refused").starts_with("line 1: the prompt is text"));
    for (wrong, said) in [
        ("[]", "line 1: not a JSON object"),
        ("{}", "line 1: the field messages is missing"),
        ("{\"messages\": 3}", "line 1: the field messages is not a list"),
        ("{\"prompt\": [-1]}", "line 1: the field prompt is not a text or a list"),
        ("{\"prompt\": \"a\", \"created\": 1e300}", "line 1: the field timestamp is not a time"),
        ("{\"prompt\": \"a\", \"created\": []}", "line 1: the field timestamp is not a number"),
    ] {
        assert!(converted(wrong, &config).expect_err("refused").starts_with(said), "{wrong}");
    }
}

#[test]
fn public_traces_keep_their_lengths_and_what_they_share() {
    let mooncake = "{\"timestamp\": 27482, \"input_length\": 700, \"output_length\": 52, \"hash_ids\": [46, 57]}
{\"timestamp\": 30535, \"input_length\": 800, \"output_length\": 26, \"hash_ids\": [46, 2]}\n";
    let config = ConvertConfig { unit: 512, ..ConvertConfig::new(LogFormat::Mooncake) };
    let (_, rows) = converted(mooncake, &config).expect("a trace");
    assert_eq!(lists(&rows, "hash_ids"), ["[0,1]", "[0,2]"]);
    assert_eq!(lists(&rows, "timestamp"), ["0.0", "3053.0"]);
    assert_eq!(converted("{}", &config), Err("line 1: the field input_length is missing".to_owned()));
    let config = ConvertConfig::new(LogFormat::Azure);
    assert_eq!(
        converted("2023-11-16 18:15:46,3", &config),
        Err("line 1: the field GeneratedTokens is missing".to_owned())
    );
    assert!(converted("noon,3,4", &config).expect_err("refused").contains("TIMESTAMP is not a date"));
}

/// Valid lines of every format, which the test mutates.
const LINES: [&str; 6] = [
    "INFO 10-01 18:43:27 logger.py:36] Received request cmpl-1: prompt: 'H\\n\\xe9', params: x, prompt_token_ids: [1, 2], y",
    "INFO 02-13 11:33:39 [logger.py:80] Generated response cmpl-1: output: 'é', output_token_ids: [5], finish_reason: stop",
    "[2025-03-03 17:53:04] Receive: obj=GenerateReqInput(text='\\u00e9', input_ids=[5, 6], rid='ced0', stream=True)",
    "[2025-03-03 17:53:05] Finish: obj=x, out={'meta_info': {'id': 'ced0', 'completion_tokens': 41}}",
    "{\"messages\": [{\"role\": \"user\", \"content\": [{\"text\": \"é\"}]}], \"created\": 5, \"tools\": [1]}",
    "2023-11-16 18:15:46.6805900,374,44",
];

#[test]
fn whatever_a_log_holds_it_is_converted_or_refused() {
    let mut random = fastrand::Rng::with_seed(3);
    let pieces: [&[u8]; 10] =
        [b"'", b"\"", b"\\", b"\\u12", b"[", b"]", b"...", "é".as_bytes(), b"\xff", b"99999999999999999999"];
    let mut converted = 0;
    for _ in 0..20_000 {
        let mut line = random.choice(LINES).expect("a line").as_bytes().to_vec();
        for _ in 0..random.usize(0..6) {
            let at = random.usize(0..=line.len());
            let end = (at + random.usize(0..6)).min(line.len());
            line.splice(at..end, random.choice(pieces).expect("a piece").iter().copied());
        }
        for format in LogFormat::ALL {
            let config = ConvertConfig { unit: 2, tokenizer: Some(&ByteTokens), ..ConvertConfig::new(format) };
            let mut trace = Vec::new();
            if convert(Cursor::new(line.clone()), &config, &mut trace).is_ok() {
                Trace::from_reader(Cursor::new(trace), "converted", Some(2)).expect("what was converted can be read");
                converted += 1;
            }
        }
    }
    assert!(converted > 4_000, "{converted} lines were whole enough");
}
