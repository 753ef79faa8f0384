//! `radixkv size`: computes how many tokens fit into the memory of a GPU.

use std::{error::Error, path::Path, path::PathBuf, process::ExitCode};

use clap::Args;
use radixkv_replay::model::{Fit, FitError, KvDtype, ModelConfig};
use serde::Serialize;

use crate::{
    bytes::{Bytes, shown},
    console,
    figures::grouped,
    grid::Grid,
    input::Input,
    output::OutputError,
    report::json,
    screen::Screen,
    serving::count,
    status::AT_FAULT,
};

/// Maximum number of bytes of a config.json.
const MAX_BYTES: u64 = 16 << 20;
/// Tokens per sequence if neither the command line nor the model gives a number.
const SEQUENCE: u64 = 8192;

/// Compute how many tokens of KV fit into a GPU's memory beside a model's weights.
///
/// The model is described by the config.json that model hubs publish. The computation covers
/// grouped heads, compressed keys and values (MLA), and sliding-window layers; weights are counted
/// from the shapes of the matrices.
///
/// Exit status: 0 on success, 2 if the command line or the file is at fault, or if the weights do
/// not fit.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The model's config.json, or - for standard input
    #[arg(long, value_name = "FILE")]
    model_config: PathBuf,
    /// Memory of the GPU, or of all GPUs that share the model: 80GiB, 640GiB
    #[arg(long, value_name = "BYTES")]
    gpu_memory: Bytes,
    /// Share of the memory that may be used
    #[arg(long, default_value = "0.9", value_name = "0-1", value_parser = share)]
    utilization: f64,
    /// Bytes of the weights [default: counted from the model's matrices and their type]
    #[arg(long, value_name = "BYTES")]
    weights: Option<Bytes>,
    /// Element type of the KV: fp32, fp16, bf16, fp8, int8 [default: the type of the weights, or
    /// fp16]
    #[arg(long, value_name = "TYPE")]
    kv_dtype: Option<KvDtype>,
    /// Tokens per block
    #[arg(long, default_value = "16", value_name = "TOKENS", value_parser = count)]
    block_size: usize,
    /// Tokens of a sequence, for models with sliding-window layers [default: the model's maximum,
    /// or 8192]
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    sequence: Option<usize>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// The result as JSON.
#[derive(Serialize)]
struct Sized {
    model_config: String,
    kv_dtype: &'static str,
    parameters: u64,
    layers: u64,
    sliding_layers: u64,
    window_tokens: u64,
    prefill_flops_per_token: u64,
    attention_flops_per_token_before: u64,
    #[serde(flatten)]
    fit: Fit,
}

fn share(text: &str) -> Result<f64, &'static str> {
    let share = text.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0);
    share.ok_or("not a number above 0 and up to 1")
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    match size(arguments, screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let remedy = match error.downcast_ref() {
                Some(FitError::UnknownWeights) => "; give them with --weights",
                Some(FitError::WeightsTooLarge { .. }) => "; raise --gpu-memory, or give the bytes with --weights",
                _ => "",
            };
            console::say(format_args!("radixkv: {error}{remedy}"));
            ExitCode::from(AT_FAULT)
        }
    }
}

/// Reads a model's config.json, and warns about unknown fields.
pub(crate) fn model(path: &Path) -> Result<ModelConfig, Box<dyn Error>> {
    let input = Input::new(path);
    let name = input.name();
    let text = input.bytes(MAX_BYTES).map_err(|error| format!("{name}: cannot be read: {error}"))?;
    let model = ModelConfig::from_json(&text).map_err(|error| format!("{name}: {error}"))?;
    if !model.unknown_fields().is_empty() {
        let unknown = model.unknown_fields().join(", ");
        console::say(format_args!("radixkv: warning: {name}: unknown fields are ignored: {unknown}"));
    }
    Ok(model)
}

fn size(arguments: &Arguments, screen: &Screen) -> Result<(), Box<dyn Error>> {
    let model = model(&arguments.model_config)?;
    let dtype = arguments.kv_dtype.or(model.dtype()).unwrap_or(KvDtype::Fp16);
    let memory = (arguments.gpu_memory.0 as f64 * arguments.utilization) as u64;
    let sequence = arguments.sequence.map(|tokens| tokens as u64).or(model.longest_sequence()).unwrap_or(SEQUENCE);
    let weights = arguments.weights.map(|Bytes(bytes)| bytes);
    let fit = Fit::new(&model, memory, weights, dtype, arguments.block_size as u64, sequence)?;
    let (sliding_layers, window_tokens) = model.window().unwrap_or((0, 0));
    let sized = Sized {
        model_config: console::printable(&arguments.model_config.display().to_string()),
        kv_dtype: dtype.name(),
        parameters: model.parameters(),
        layers: model.layers(),
        sliding_layers,
        window_tokens,
        prefill_flops_per_token: model.prefill_flops_per_token(),
        attention_flops_per_token_before: model.attention_flops_per_token_before(),
        fit,
    };
    let text = if arguments.json { json(&sized)? } else { table(&sized, arguments).text(screen) };
    Ok(console::print(&text).map_err(OutputError::stdout)?)
}

fn table(sized: &Sized, arguments: &Arguments) -> Grid {
    let Sized { fit, .. } = sized;
    let mut table = Grid::of_pairs();
    let mut row = |what: &str, value: String| table.row([what.into(), value.into()]);
    row("model", sized.model_config.clone());
    row("parameters", format!("{:.2} billion", sized.parameters as f64 / 1e9));
    if sized.sliding_layers > 0 {
        let (sliding, window) = (sized.sliding_layers, grouped(sized.window_tokens));
        row("layers", format!("{}, {sliding} of them keep the last {window} tokens", sized.layers));
    } else {
        row("layers", sized.layers.to_string());
    }
    row("KV bytes / token", format!("{} ({})", grouped(fit.kv_bytes_per_token), sized.kv_dtype));
    // Rounded: 100 times 0.29 is 28.999999999999996.
    let utilization = (1e8 * arguments.utilization).round() / 1e6;
    let memory = shown(arguments.gpu_memory.0);
    row("memory to use", format!("{} ({utilization} % of {memory})", shown(fit.memory_bytes)));
    row("weights", shown(fit.weight_bytes));
    row("left for KV", shown(fit.kv_bytes));
    row("blocks that fit", format!("{} of {} tokens", grouped(fit.blocks), grouped(fit.block_size)));
    let sequences = match sized.sliding_layers {
        0 => String::new(),
        _ => format!(", in sequences of {}", grouped(fit.sequence_tokens)),
    };
    row("tokens that fit", grouped(fit.tokens) + &sequences);
    row("prefill", format!("{:.1} GFLOP / token", sized.prefill_flops_per_token as f64 / 1e9));
    let attention = sized.attention_flops_per_token_before as f64 / 1e6;
    row("attention", format!("{attention:.2} MFLOP / token, for each token before it"));
    table
}
