//! A tier in S3, over HTTP to a server on this machine: contract, layouts, and an end in the middle of the work.

#[path = "../../../tests/common/mod.rs"]
mod common;

use std::{
    env,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{ABSENT, Bytes, PATIENCE, blocks, checked, completions, does_what_a_tier_does, get, layout, put, put_all};
use object_store::aws::AmazonS3Builder;
use radixkv_tiers::{Layout, NotGot, ObjectTier, OpenError, Outcome, RemoteTier, Tier};

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let server = Self { child: spawn(port), port };
        server.wait();
        server
    }

    fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
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

    fn open(&self, layout: &Layout, timeout: Duration) -> Result<Tier<Bytes>, OpenError> {
        let store = AmazonS3Builder::new()
            .with_bucket_name("kv-blocks")
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_access_key_id("x")
            .with_secret_access_key("x");
        ObjectTier::new(Arc::new(store.build().unwrap()), "a/b", layout.clone()).timeout(timeout).open()
    }
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

#[test]
fn a_tier_in_s3_does_what_a_tier_does() {
    let server = Server::start();
    let small = layout(16, 5000);
    does_what_a_tier_does(&server.open(&small, PATIENCE).unwrap());
    let error = server.open(&layout(32, 5000), PATIENCE).unwrap_err().to_string();
    assert!(error.contains("holds blocks of block size \"16\", this layout has \"32\""), "{error}");
    // Found again.
    let all = blocks(&small, 3);
    put_all(&server.open(&small, PATIENCE).unwrap(), &all, None);
    assert_eq!(common::get_all(&server.open(&small, PATIENCE).unwrap(), &all), vec![Ok(()); 3]);
}

/// The server is killed in the middle of the work, and forgets everything: failures, then misses, then hits; no wrong byte.
#[test]
fn a_server_that_is_killed_and_restarted() {
    let mut server = Server::start();
    let layout = layout(16, 100_000);
    let tier = server.open(&layout, Duration::from_secs(2)).unwrap();
    let all = blocks(&layout, 16);
    put_all(&tier, &all, None);
    tier.get_into(all.iter().map(|block| get(block, &layout)).collect()).unwrap();
    server.child.kill().unwrap();
    tier.get_into(all.iter().map(|block| get(block, &layout)).collect()).unwrap();
    tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
    let mut failed = 0;
    for end in completions(&tier, 48) {
        match &end.outcome {
            Outcome::Got(..) => match checked(end, &layout) {
                Ok(()) => {}
                Err(NotGot::Failed(_)) => failed += 1,
                other => panic!("{other:?}"),
            },
            Outcome::Put(_, Err(_)) => failed += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(failed >= 32, "{failed}");
    server.restart();
    // A put that was on its way may have arrived.
    assert!(common::get_all(&tier, &all).iter().all(|end| matches!(*end, Ok(()) | ABSENT)));
    put_all(&tier, &all, None);
    assert_eq!(common::get_all(&tier, &all), vec![Ok(()); 16]);
    println!("{:?}", tier.stats());
}
