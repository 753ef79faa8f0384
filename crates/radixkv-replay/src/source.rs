//! Opens a trace; the file's first bytes determine whether it is plain, gzip or zstd.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Allows archives made with `zstd --long=31`; only such an archive takes that much memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;
const BUFFER: usize = 1 << 16;

/// Opens a file and decompresses it while it is read.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    decompress(File::open(path)?)
}

/// Decompresses gzip and zstd; returns any other input as it is.
pub(super) fn decompress(raw: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut raw = BufReader::with_capacity(BUFFER, raw);
    let head = raw.fill_buf()?;
    if head.starts_with(GZIP) {
        return Ok(Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(raw))));
    }
    if head.starts_with(ZSTD) {
        let mut decoder = zstd::Decoder::with_buffer(raw)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        return Ok(Box::new(BufReader::with_capacity(BUFFER, decoder)));
    }
    Ok(Box::new(raw))
}
