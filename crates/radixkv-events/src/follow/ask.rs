//! Requests missed batches or a snapshot from a publisher, over a DEALER socket.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use zeromq::{DealerSocket, Host, Socket, SocketOptions, SocketRecv, SocketSend, ZmqMessage};

use super::PUBLISHER;
use crate::{relay::Relay, wire::END};

/// How long a publisher may take for each batch of an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum bytes of an answer; a longer one is dropped as incomplete.
const LONGEST: usize = 1 << 30;

/// Sends a request, and returns the numbers and payloads of the answer; `None` if the answer is
/// incomplete.
pub(super) async fn ask(publisher: &(Host, u16), what: [u8; 8]) -> Option<Vec<(u64, Bytes)>> {
    let mut options = SocketOptions::default();
    options.connect_timeout(PATIENCE);
    let mut socket = DealerSocket::with_options(options);
    let (endpoint, _relay) = Relay::outward(publisher, PUBLISHER).await.ok()?;
    socket.connect(&endpoint).await.ok()?;
    let frames = vec![Bytes::new(), Bytes::copy_from_slice(&what)];
    let request = ZmqMessage::try_from(frames).expect("two frames");
    timeout(PATIENCE, socket.send(request)).await.ok()?.ok()?;
    let (mut answers, mut bytes) = (Vec::new(), 0);
    while bytes < LONGEST {
        let frames = timeout(PATIENCE, socket.recv()).await.ok()?.ok()?.into_vec();
        let (seq, payload) = numbered(&frames)?;
        if seq.to_be_bytes() == END {
            return Some(answers);
        }
        // Also counts the list entry, so that empty payloads are limited as well.
        bytes += payload.len() + size_of::<(u64, Bytes)>();
        answers.push((seq, payload.clone()));
    }
    None
}

/// The number and the payload of a message: its last two frames. Earlier frames are ignored.
pub(super) fn numbered(frames: &[Bytes]) -> Option<(u64, &Bytes)> {
    let [.., seq, payload] = frames else { return None };
    Some((u64::from_be_bytes(seq.as_ref().try_into().ok()?), payload))
}
