//! What vLLM hashes for a block, as canonical CBOR: `(parent, (token, ...), (extra key, ...) or null)`.

use ciborium_ll::{Encoder, Header, simple};

use crate::event::Token;

/// Appends the key of a block to `bytes`.
pub(super) fn block<'a>(
    bytes: &mut Vec<u8>,
    parent: &[u8],
    tokens: &[Token],
    mut extra_keys: impl Iterator<Item = &'a str>,
) {
    let mut out = Encoder::from(bytes);
    push(&mut out, Header::Array(Some(3)));
    out.bytes(parent, None).expect(NEVER);
    push(&mut out, Header::Array(Some(tokens.len())));
    tokens.iter().for_each(|&token| push(&mut out, Header::Positive(token.into())));
    let keys: [Option<&str>; 2] = [extra_keys.next(), extra_keys.next()];
    match keys.iter().flatten().count() {
        0 => push(&mut out, Header::Simple(simple::NULL)),
        count => push(&mut out, Header::Array(Some(count))),
    }
    keys.into_iter().flatten().for_each(|key| out.text(key, None).expect(NEVER));
}

/// Appends a text.
pub(super) fn text(bytes: &mut Vec<u8>, text: &str) {
    Encoder::from(bytes).text(text, None).expect(NEVER);
}

fn push(out: &mut Encoder<&mut Vec<u8>>, header: Header) {
    out.push(header).expect(NEVER);
}

const NEVER: &str = "a vector takes all bytes";
