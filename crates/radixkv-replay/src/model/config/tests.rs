use super::*;

/// Published files, without what changes no figure.
const LLAMA_3_70B: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192,
    "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}"#;
const DEEPSEEK_V3: &str = r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "vocab_size": 129280, "quantization_config": {"quant_method": "fp8"}, "torch_dtype": "bfloat16"}"#;
const GEMMA_3_27B: &str = r#"{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 5376,
    "intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16,
    "head_dim": 128, "sliding_window": 1024, "sliding_window_pattern": 6, "vocab_size": 262208, "torch_dtype": "bfloat16"}}"#;
const MIXTRAL_8X7B: &str = r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": null, "vocab_size": 32000, "torch_dtype": "bfloat16"}"#;
const QWEN_2_7B: &str = r#"{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "max_window_layers": 28,
    "sliding_window": 131072, "use_sliding_window": false, "vocab_size": 152064, "torch_dtype": "bfloat16"}"#;

fn model(json: &str) -> ModelConfig {
    ModelConfig::from_json(json.as_bytes()).expect("a model")
}

fn refused(json: &str) -> String {
    ModelConfig::from_json(json.as_bytes()).expect_err("a fault").to_string()
}

/// Billions, rounded.
fn billions(number: u64) -> u64 {
    (number + 500_000_000) / 1_000_000_000
}

// Holds: RP12.
#[test]
fn published_models_have_their_published_sizes() {
    let fp16 = KvDtype::Fp16;
    let llama = model(LLAMA_3_70B);
    assert_eq!((llama.kv_bytes_per_token(fp16), llama.kv_bytes_per_token(KvDtype::Fp8)), (327_680, 163_840));
    assert_eq!((billions(llama.parameters()), billions(llama.prefill_flops_per_token())), (71, 139));
    assert_eq!(llama.weight_bytes(), Some(2 * llama.parameters()));
    let deepseek = model(DEEPSEEK_V3);
    assert_eq!(deepseek.kv_bytes_per_token(fp16), (512 + 64) * 61 * 2);
    assert_eq!((billions(deepseek.parameters()), billions(deepseek.prefill_flops_per_token() / 2)), (671, 37));
    assert_eq!(deepseek.weight_bytes(), None, "quantized");
    let mixtral = model(MIXTRAL_8X7B);
    assert_eq!((billions(mixtral.parameters()), billions(mixtral.prefill_flops_per_token() / 2)), (47, 13));
    assert_eq!(mixtral.window(), None);
    let qwen = model(QWEN_2_7B);
    assert_eq!((qwen.kv_bytes_per_token(fp16), billions(qwen.parameters()), qwen.window()), (57_344, 8, None));
}

// Holds: RP12.
#[test]
fn windows_are_counted_as_they_are() {
    let gemma = model(GEMMA_3_27B);
    assert_eq!(gemma.window(), Some((52, 1024)), "every sixth of 62 layers sees all");
    let layer = 2 * 16 * 128 * 2;
    assert_eq!(gemma.kv_bytes_per_token(KvDtype::Bf16), 62 * layer);
    assert_eq!(gemma.kv_bytes(100_000, KvDtype::Bf16), (10 * 100_000 + 52 * 1024) * layer);
    assert_eq!(billions(gemma.parameters()), 27);
    let all = LLAMA_3_70B.replace("\"vocab_size\"", "\"sliding_window\": 4096, \"vocab_size\"");
    assert_eq!(model(&all).window(), Some((80, 4096)));
    assert_eq!(model(&all.replace("\"llama\"", "\"gemma2\"")).window(), Some((40, 4096)));
}

#[test]
fn what_is_wrong_with_a_file_is_said_by_the_name_of_the_field() {
    let with = |field: &str| format!("{}, {field}}}", LLAMA_3_70B.trim_end_matches('}'));
    assert_eq!(refused(&LLAMA_3_70B.replace("vocab_size", "n_vocab")), "the field vocab_size is missing");
    assert_eq!(
        refused(&LLAMA_3_70B.replace("\"num_hidden_layers\": 80", "\"num_hidden_layers\": \"many\"")),
        "the field num_hidden_layers is \"many\", not a whole number from 1 to 2^24"
    );
    assert!(refused(&with("\"ssm_cfg\": {}")).starts_with("the field ssm_cfg is {}: layers of state spaces"));
    assert!(refused(&with("\"layer_types\": [\"full_attention\"]")).starts_with("the field layer_types is [\"full"));
    let linear = format!("\"layer_types\": [{}]", ["\"linear_attention\""; 80].join(","));
    assert!(
        refused(&with(&linear)).starts_with("the field layer_types is \"linear_attention\": what such a layer keeps")
    );
    assert_eq!(
        refused(&GEMMA_3_27B.replace("\"hidden_size\"", "\"hidden\"").replace("\"head_dim\"", "\"x\"")),
        "the field text_config.hidden_size is missing"
    );
    assert!(refused("[1]").starts_with("not a JSON object"));
    assert!(refused("{").starts_with("not a JSON object"));
    assert_eq!(model(LLAMA_3_70B).unknown_fields(), <[&str; 0]>::default());
    assert_eq!(model(&with("\"expert_choice\": 3")).unknown_fields(), ["expert_choice"]);
}

#[test]
fn no_number_is_too_large() {
    let mut largest: Value = serde_json::from_str(DEEPSEEK_V3).expect("JSON");
    for number in largest.as_object_mut().expect("an object").values_mut().filter(|value| value.is_number()) {
        *number = (1 << 24).into();
    }
    let largest = model(&largest.to_string());
    // 2^24 layers keep 2^25 numbers of 4 bytes.
    assert_eq!((largest.kv_bytes_per_token(KvDtype::Fp32), largest.parameters()), (1 << 51, u64::MAX));
    assert_eq!(largest.kv_bytes(u64::MAX, KvDtype::Fp32), u64::MAX);
}
