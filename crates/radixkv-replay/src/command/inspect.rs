//! `radixkv inspect`: draws the content of the cache in the middle of a trace.

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Args;
use radixkv_replay::{
    Request, Trace,
    picture::{CacheTree, Icicle},
    replay::Capacity,
};

use crate::{
    console,
    failure::fail,
    input::Input,
    output::{Output, OutputError, check_distinct},
    progress,
    screen::Screen,
    serving::{Serving, natural},
};

/// The default capacity.
const CAPACITY: Capacity = Capacity::Percent(10.0);
/// Width of the text if the screen does not limit it.
const USUAL: usize = 120;

/// Draw the content of the cache after the first requests of a trace: an icicle of runs by blocks.
///
/// A run is as wide as the blocks of it and all its descendants, and is drawn below its parent run.
/// Its colour, or its bar in text, shows how recent its last use is, and a mark shows that it is
/// leased (--hold, --service). Runs that are too small to be seen are drawn together, and the
/// picture says how many.
///
/// Exit status: 0 on success, 1 if a bug of the cache was found, 2 if the command line, the trace
/// or the system is at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// File of the trace, or - for standard input
    trace: PathBuf,
    /// Number of requests to serve before the picture is drawn [default: all]
    #[arg(long, value_name = "N", value_parser = natural)]
    at: Option<usize>,
    /// Write an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Write a graph for Graphviz
    #[arg(long, value_name = "FILE.dot")]
    dot: Option<PathBuf>,
    /// Print the icicle as text even if a picture is written; without a picture it is always
    /// printed
    #[arg(long)]
    text: bool,
    #[command(flatten)]
    serving: Serving,
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    inspect(arguments, screen).map_or_else(|error| fail(&*error), |()| ExitCode::SUCCESS)
}

fn inspect(arguments: &Arguments, screen: &Screen) -> Result<(), Box<dyn Error>> {
    let input = Input::new(&arguments.trace);
    input.check_stdout()?;
    let output = |path: &Option<PathBuf>| path.as_deref().map(|path| Output::new(path, &input)).transpose();
    let (svg, dot) = (output(&arguments.svg)?, output(&arguments.dot)?);
    check_distinct([&arguments.svg, &arguments.dot])?;
    let serving = &arguments.serving;
    let trace = input.trace(serving.unit, serving.priority_from.as_deref(), &serving.limits())?;
    let at = arguments.at.unwrap_or(trace.requests().len());
    let bar = progress::requests(at, "inspect");
    let tree = CacheTree::after(&trace, at, &serving.config(CAPACITY), &|| bar.inc(1));
    bar.finish_and_clear();
    let tree = tree?;
    warn_of_nothing(&trace, at, &tree);
    let is_drawn = svg.is_some() || dot.is_some();
    let mut written = Vec::new();
    if let Some(svg) = svg {
        let picture = Icicle::for_svg(&tree).svg()?;
        written.push(svg.write(|file| file.write_all(picture.as_bytes()))?);
    }
    if let Some(dot) = dot {
        let graph = Icicle::for_dot(&tree).dot();
        written.push(dot.write(|file| file.write_all(graph.as_bytes()))?);
    }
    if arguments.text || !is_drawn {
        let text = Icicle::for_text(&tree).text(screen.width().unwrap_or(USUAL));
        console::print(text.trim_end()).map_err(OutputError::stdout)?;
    }
    written.into_iter().try_for_each(|written| written.publish())?;
    Ok(())
}

/// Warns if a cache that served requests is empty.
fn warn_of_nothing(trace: &Trace, at: usize, tree: &CacheTree) {
    let has_block = |request: &Request| request.prompt_tokens() >= tree.block_size();
    if tree.blocks() == 0 && trace.requests().iter().take(at).any(has_block) {
        console::say(
            "radixkv: warning: nothing is cached: each request was larger than the cache, or than --longest allows, or is still \
             being computed",
        );
    }
}
