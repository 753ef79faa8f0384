//! Between a client and a server: passes bytes on, or does with the answers what a test says.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    thread,
};

/// Connections that are served at most.
const CONNECTIONS: usize = 20_000;

/// What becomes of the server's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    None,
    /// Connections end at once.
    Refuses,
    /// Half of an answer comes, and then the end.
    BreaksOff,
    /// The last byte of an answer is another one.
    Garbles,
    /// Nothing comes.
    IsSilent,
    /// A server's error comes instead.
    Errs,
}

pub const FAULTS: [Fault; 6] =
    [Fault::None, Fault::Refuses, Fault::BreaksOff, Fault::Garbles, Fault::IsSilent, Fault::Errs];

#[derive(Clone)]
pub struct Proxy {
    fault: Arc<AtomicU8>,
    port: u16,
}

impl Proxy {
    /// Before the server at this port. The test's end ends it.
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Self { fault: Arc::default(), port: listener.local_addr().unwrap().port() };
        let own = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().take(CONNECTIONS) {
                let (own, Ok(client)) = (own.clone(), client) else { continue };
                thread::spawn(move || own.serve(client, server));
            }
        });
        proxy
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Relaxed);
    }

    fn fault(&self) -> Fault {
        FAULTS[usize::from(self.fault.load(Relaxed))]
    }

    fn serve(&self, client: TcpStream, server: u16) -> Option<()> {
        if self.fault() == Fault::Refuses {
            return None;
        }
        let upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).ok()?;
        let (mut from, mut to) = (client.try_clone().ok()?, upstream.try_clone().ok()?);
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            to.shutdown(Shutdown::Write)
        });
        let _ = self.answer(&upstream, &client);
        let _ = client.shutdown(Shutdown::Both);
        upstream.shutdown(Shutdown::Both).ok()
    }

    fn answer(&self, mut upstream: &TcpStream, mut client: &TcpStream) -> Option<()> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let length = upstream.read(&mut bytes).ok().filter(|&length| length > 0)?;
            let answer = &mut bytes[..length];
            match self.fault() {
                Fault::None => client.write_all(answer).ok()?,
                Fault::Refuses => return None,
                Fault::BreaksOff => {
                    client.write_all(&answer[..length / 2]).ok()?;
                    return None;
                }
                Fault::Garbles => {
                    answer[length - 1] ^= 0x10;
                    client.write_all(answer).ok()?;
                }
                Fault::IsSilent => {}
                Fault::Errs => {
                    let error = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    client.write_all(error.as_bytes()).ok()?;
                    return None;
                }
            }
        }
    }
}
