//! A server of S3 on this machine: moto, from PyPI.
#![allow(dead_code, reason = "each test program uses a part")]

use std::{
    env,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use object_store::aws::AmazonS3Builder;
use radixkv_tiers::{Layout, ObjectTier, OpenError, Tier};

use crate::common::PATIENCE;

/// Ends when it is dropped.
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub fn start() -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let server = Self { child: spawn(port), port };
        server.wait();
        server
    }

    /// Ends it, with everything that it holds.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it anew, at the same port and empty.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.port);
        self.wait();
    }

    /// Makes the bucket as soon as it answers.
    fn wait(&self) {
        let began = Instant::now();
        while !self.make_bucket().is_some_and(|answer| answer.contains(" 200 ")) {
            assert!(began.elapsed() < PATIENCE, "no server");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn make_bucket(&self) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        let head = "PUT /kv-blocks HTTP/1.1\r\nHost: 127.0.0.1\r\n";
        stream.write_all(format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn open(&self, layout: &Layout, timeout: Duration) -> Result<Tier<Vec<u8>>, OpenError> {
        open(self.port, layout, timeout)
    }
}

/// A tier in the bucket of the server that answers at this port.
pub fn open(port: u16, layout: &Layout, timeout: Duration) -> Result<Tier<Vec<u8>>, OpenError> {
    let store = AmazonS3Builder::new()
        .with_bucket_name("kv-blocks")
        .with_endpoint(format!("http://127.0.0.1:{port}"))
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id("x")
        .with_secret_access_key("x");
    ObjectTier::new(Arc::new(store.build().unwrap()), "a/b", layout.clone()).timeout(timeout).open()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16) -> Child {
    let program = env::var("MOTO_SERVER").expect("run.sh says where the server is");
    let mut command = Command::new(program);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
