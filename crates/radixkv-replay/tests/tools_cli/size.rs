use super::{LLAMA, Scratch, complaint, fed, json, printed, run_at};

#[test]
fn sixty_gigabytes_hold_the_published_number_of_tokens() {
    let scratch = Scratch::new("size");
    let model = scratch.file("config.json", LLAMA);
    let options = ["size", "--model-config", &model, "--gpu-memory", "60GB", "--utilization", "1", "--weights", "0"];
    let sized = json(&options);
    assert_eq!((&sized["kv_bytes_per_token"], &sized["tokens"]), (&327_680.into(), &183_104.into()));
    assert_eq!((&sized["blocks"], &sized["kv_dtype"]), (&11_444.into(), &"bf16".into()));
    let flops = sized["prefill_flops_per_token"].as_f64().expect("a number");
    assert!((flops / 140e9 - 1.0).abs() < 0.01, "{flops}");
    let halved = json(&[&options[..], &["--kv-dtype", "fp8"]].concat());
    assert_eq!((&halved["kv_bytes_per_token"], &halved["tokens"]), (&163_840.into(), &366_208.into()));
    let table = printed(&options);
    assert!(table.contains("327,680 (bf16)") && table.contains("183,104") && table.contains("139.0 GFLOP"), "{table}");
    let some = [&options[..5], &["--utilization", "0.29", "--weights", "0"]].concat();
    assert!(printed(&some).contains("(29 % of 55.9 GiB)"), "{}", printed(&some));
    let piped = fed(&["size", "--model-config", "-", "--gpu-memory", "640GiB", "--json"], LLAMA);
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
}

// Holds: RP12.
#[test]
fn what_does_not_fit_or_is_not_known_is_said() {
    let scratch = Scratch::new("size-faults");
    let of = |json: &str| scratch.file("config.json", json);
    let said = |json: &str, options: &[&str]| {
        complaint(&[&["size", "--model-config", &of(json), "--gpu-memory", "80GiB"], options].concat())
    };
    assert!(
        said(LLAMA, &[]).contains("the weights need 141104775168 bytes, 77309411328 are available; raise --gpu-memory")
    );
    assert!(
        said(&LLAMA.replace("vocab_size", "n_vocab"), &[]).contains("config.json: the field vocab_size is missing")
    );
    assert!(said("[]", &[]).contains("config.json: not a JSON object"));
    let quantized = LLAMA.replace("\"vocab", "\"quantization_config\": {}, \"vocab");
    assert!(said(&quantized, &[]).contains("quantization_config"), "{}", said(&quantized, &[]));
    for options in [["--utilization", "1.1"], ["--utilization", "0"], ["--weights", "much"], ["--kv-dtype", "fp3"]] {
        assert!(said(LLAMA, &options).contains(options[1]), "{options:?}");
    }
    assert!(
        complaint(&["size", "--model-config", "no/such", "--gpu-memory", "1GiB"]).contains("no/such: cannot be read")
    );
    let unknown = of(&LLAMA.replace("\"vocab", "\"expert_choice\": 3, \"vocab"));
    let warned = run_at(80, &["size", "--model-config", &unknown, "--gpu-memory", "640GiB"]);
    let said = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(warned.status.success() && said.contains("unknown fields are ignored: expert_choice"), "{said}");
}
