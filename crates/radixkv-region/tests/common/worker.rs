//! Workers of a test: processes of the same test program, each with a place and a task, that go on
//! until they are killed. Their program has a test of the name `worker`, which does what [`task`]
//! says.
#![allow(dead_code, reason = "each test program uses a part")]

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

const PLACE: &str = "RADIXKV_WORKER_PLACE";
const TASK: &str = "RADIXKV_WORKER_TASK";
/// A worker whose parent has gone ends by itself after this time. What a test waits for takes less
/// than a quarter of it.
pub const LIFE: Duration = Duration::from_secs(60);

/// What this process is to do, if it is a worker.
pub fn task() -> Option<(PathBuf, String)> {
    Some((env::var_os(PLACE)?.into(), env::var(TASK).ok()?))
}

/// Starts a worker.
pub fn start(task: &str, place: &Path) -> Child {
    command(task, place).spawn().expect("a worker")
}

/// What starts a worker.
pub fn command(task: &str, place: &Path) -> Command {
    let program = env::current_exe().expect("this program");
    let arguments = ["--exact", "worker", "--nocapture", "--test-threads=1"];
    let mut command = Command::new(program);
    command.args(arguments).env(PLACE, place).env(TASK, task).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Waits until a worker says that it is where it was sent to: the line that ends with `there`.
pub fn until_there(worker: &mut Child) -> String {
    let lines = BufReader::new(worker.stdout.as_mut().expect("piped")).lines();
    let mut said = lines.map_while(Result::ok).filter(|line| line.ends_with("there"));
    said.next().expect("the worker is there")
}

/// Kills a worker, which had not ended by itself.
pub fn kill(mut worker: Child) {
    worker.kill().expect("killed");
    assert!(!worker.wait().expect("waited for").success());
}
