//! Servers: a real one, where there is one, and one that answers what a test tells it to.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use super::common::PATIENCE;

/// A `redis-server` that ends with the test.
pub(crate) struct Real {
    child: Child,
    port: u16,
    program: PathBuf,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
}

impl Real {
    /// `None` where there is no `redis-server`: then the test says that it was skipped.
    pub(crate) fn start(arguments: &[&str]) -> Option<Self> {
        static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
        let find = || {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../radixkv-tiers/peers/redis-server.sh");
            let output = Command::new("bash").arg(script).output().ok().filter(|output| output.status.success())?;
            Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
        };
        let Some(program) = PROGRAM.get_or_init(find).clone() else {
            println!("skipped: no redis-server here");
            return None;
        };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let arguments: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let child = spawn(&program, port, &arguments, folder.path());
        let real = Self { child, port, program, arguments, folder };
        real.wait();
        Some(real)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    #[allow(dead_code, reason = "clusters ask for it alone")]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, at the same port and empty.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.program, self.port, &self.arguments, self.folder.path());
        self.wait();
    }

    fn wait(&self) {
        let began = Instant::now();
        while !self.say("PING").contains("PONG") && !self.say("PING").contains("NOAUTH") {
            assert!(began.elapsed() < PATIENCE, "no server");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The first bytes of what it answers to a command.
    pub(crate) fn say(&self, command: &str) -> String {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else { return String::new() };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = [0; 256];
        let length = stream.write_all(format!("{command}\r\n").as_bytes()).and_then(|()| stream.read(&mut bytes));
        String::from_utf8_lossy(&bytes[..length.unwrap_or(0)]).into_owned()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &PathBuf, port: u16, arguments: &[String], folder: &std::path::Path) -> Child {
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(arguments).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// What a strange server does with a command.
pub(crate) enum Act {
    Say(Vec<u8>),
    /// These bytes, one after another with a pause before each.
    Dribble(Vec<u8>, Duration),
    /// These bytes, and then the end of the connection.
    SayAndClose(Vec<u8>),
    /// Nothing, for ever.
    BeSilent,
}

/// Serves `answer` on a port of its own, each connection on a thread of its own. The test's end
/// ends it.
pub(crate) fn strange(answer: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(1000) {
            let (stream, answer) = (stream.unwrap(), answer.clone());
            thread::spawn(move || serve(&stream, &answer));
        }
    });
    address
}

fn serve(stream: &TcpStream, answer: &dyn Fn(&[Vec<u8>]) -> Act) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let command = command(&mut reader)?;
        match answer(&command) {
            Act::Say(bytes) => writer.write_all(&bytes).ok()?,
            Act::SayAndClose(bytes) => {
                let _ = writer.write_all(&bytes);
                return stream.shutdown(std::net::Shutdown::Both).ok();
            }
            Act::Dribble(bytes, pause) => {
                for byte in bytes {
                    thread::sleep(pause);
                    writer.write_all(&[byte]).ok()?;
                }
            }
            // Reads on, so that nothing breaks.
            Act::BeSilent => drop(std::io::copy(&mut reader, &mut std::io::sink())),
        }
    }
}

/// An array of strings, as clients send it.
fn command(reader: &mut BufReader<&TcpStream>) -> Option<Vec<Vec<u8>>> {
    let number = |reader: &mut BufReader<&TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.get(1..)?.trim_end().parse::<usize>().ok()
    };
    let count = number(reader)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; number(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}
