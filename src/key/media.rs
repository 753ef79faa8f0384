//! Media in prompts: writes a digest of an image or a sound into the tokens that represent it.
//!
//! Engines use equal placeholder tokens for the embeddings of an image, so two prompts with
//! different images have equal tokens but different keys and values. A cache compares only tokens.
//! So the tokens that the *cache* is given must identify the image: [`write_digest`] writes a
//! digest of its content over the placeholders. SGLang does the same with *pad values*, one number
//! of some 24 bits for all placeholders of an image; vLLM adds the image's hash to the key of each
//! block. Here the digest has 128 bits or more, is compared like all tokens, and needs no second
//! key. All digests in a cache must have one length, because the tokens do not tell it.
//!
//! The model still gets the placeholders: only the cache's copy of the prompt is changed.
//!
//! A token has 31 bits of the digest. If a match ends early in a span, fewer bits than the whole
//! digest distinguish two images: only 31 if a block ends after the first token. That few bits can
//! collide by chance, or be made to. So an engine uses a match only up to [`exact_len`], and starts
//! computing there.
//!
//! Written tokens have their highest bit set, which no vocabulary uses, so text is never mistaken
//! for an image.
//!
//! # Examples
//!
//! ```
//! use radixkv::key::media;
//!
//! # let cache = radixkv::PrefixCache::builder(4, 64).build()?;
//! # let (session, space) = (cache.session(), cache.default_namespace());
//! const IMAGE: u32 = 151_655;
//! let prompt = [&[1, 2, 3][..], &[IMAGE; 8], &[4]].concat();
//! // 128 bits of a cryptographic hash of each image's bytes.
//! let (cat, dog) = ([0x11; 16], [0x22; 16]);
//! let keys = [cat, dog].map(|digest| {
//!     let mut key = prompt.clone();
//!     media::write_digest(&mut key[3..11], &digest).expect("eight tokens are enough");
//!     key
//! });
//! let miss = session.match_prefix(&space, &keys[0]);
//! drop(session.insert(miss.lease(), &keys[0], session.reserve(3)?)?);
//! assert_eq!(session.peek(&space, &keys[0]), 12);
//! assert_eq!(session.peek(&space, &keys[1]), 0); // the first block has the beginning of the image
//! assert!(media::has_digest(&keys[0][3..11], &cat) && !media::has_digest(&keys[0][3..11], &dog));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use super::Token;

/// The minimum length of a digest in bytes. Shorter ones could collide by chance, or be made to.
pub const LEAST_DIGEST: usize = 16;

/// Set in each token of a digest.
const MARK: Token = 1 << 31;
/// Bits of the digest in a token.
const BITS: usize = 31;

/// Why a digest could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DigestError {
    /// The span has fewer tokens than the digest needs. A shorter digest, of at least 16 bytes, may
    /// fit.
    SpanTooShort {
        /// Number of tokens in the span.
        tokens: usize,
        /// Number of tokens that the digest needs.
        needed: usize,
    },
    /// The digest has fewer than 16 bytes.
    DigestTooShort {
        /// Bytes of the digest.
        bytes: usize,
    },
}

impl fmt::Display for DigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpanTooShort { tokens, needed } => {
                write!(f, "span too short: {tokens} tokens, but the digest needs {needed}")
            }
            Self::DigestTooShort { bytes } => {
                write!(f, "digest too short: {bytes} bytes, but at least {LEAST_DIGEST} are needed")
            }
        }
    }
}

impl std::error::Error for DigestError {}

/// The number of tokens that a digest of this many bytes needs: one for each 31 bits.
pub const fn tokens_needed(digest_bytes: usize) -> usize {
    digest_bytes.saturating_mul(8).div_ceil(BITS)
}

/// Writes `digest` over the placeholder tokens of one image or sound, repeated if there is room.
///
/// Afterwards two spans of equal length are equal if and only if their digests are, provided that
/// the digests have equal lengths. So use digests of one length for all prompts of a cache: the
/// tokens do not tell the length, and a digest may have the same tokens as a longer one that
/// continues it with zeros. Each stretch of [`tokens_needed`] tokens has the whole digest; for a
/// match that ends before that, see [`exact_len`].
///
/// # Errors
///
/// [`DigestError`]; nothing was written.
pub fn write_digest(span: &mut [Token], digest: &[u8]) -> Result<(), DigestError> {
    if digest.len() < LEAST_DIGEST {
        return Err(DigestError::DigestTooShort { bytes: digest.len() });
    }
    let needed = tokens_needed(digest.len());
    if span.len() < needed {
        return Err(DigestError::SpanTooShort { tokens: span.len(), needed });
    }
    span.iter_mut().enumerate().for_each(|(at, token)| *token = digest_token(digest, at % needed));
    Ok(())
}

/// Returns how many of the first `matched` tokens of a prompt may be used: all of them, unless
/// `matched` ends within the first digest of a span; then only the tokens before that span. `spans`
/// are the prompt's spans, in order, each with a digest of `digest_bytes` bytes written into it.
///
/// Applies to partial hits as well. If a lease extends beyond this length, the engine recomputes
/// the tokens from here on into the request's own blocks.
///
/// # Examples
///
/// ```
/// use radixkv::key::media::exact_len;
///
/// // 15 tokens of text, then an image of 40 with a digest of 16 bytes: five tokens have it all.
/// let spans = [15..55];
/// assert_eq!(exact_len(16, &spans, 16), 15); // one token of the image
/// assert_eq!(exact_len(19, &spans, 16), 15);
/// assert_eq!(exact_len(20, &spans, 16), 20);
/// assert_eq!(exact_len(12, &spans, 16), 12); // text alone
/// ```
pub fn exact_len(matched: usize, spans: &[std::ops::Range<usize>], digest_bytes: usize) -> usize {
    let needed = tokens_needed(digest_bytes);
    let cut = spans.iter().find(|span| span.start < matched && matched < span.start.saturating_add(needed));
    cut.map_or(matched, |span| span.start)
}

/// Whether `digest` was written into this span.
pub fn has_digest(span: &[Token], digest: &[u8]) -> bool {
    let needed = tokens_needed(digest.len());
    digest.len() >= LEAST_DIGEST
        && span.len() >= needed
        && span.iter().enumerate().all(|(at, token)| *token == digest_token(digest, at % needed))
}

/// The digest of `bytes` bytes that was written into a span; `None` if no digest of that length
/// was.
pub fn read_digest(span: &[Token], bytes: usize) -> Option<Box<[u8]>> {
    let bit = |at: usize| (span[at / BITS] >> (at % BITS) & 1) as u8;
    if span.len() < tokens_needed(bytes) {
        return None;
    }
    let digest: Box<[u8]> = (0..bytes).map(|byte| (0..8).map(|i| bit(byte * 8 + i) << i).sum()).collect();
    has_digest(span, &digest).then_some(digest)
}

/// The token with the 31 bits of the digest that begin at bit `31 * at`.
fn digest_token(digest: &[u8], at: usize) -> Token {
    let bit = |i: usize| digest.get(i / 8).map_or(0, |byte| Token::from(byte >> (i % 8) & 1));
    (0..BITS).fold(MARK, |token, i| token | bit(at * BITS + i) << i)
}

#[cfg(test)]
mod tests;
