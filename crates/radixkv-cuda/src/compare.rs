//! Comparing many token runs at once on a device.

use super::abi::{CompareArgs, ComparePair, Run};
use super::buffer::Buffer;
use super::device::Device;
use super::error::GpuError;
use super::upload::{Arrays, Span, Upload};
use radixkv::key::{self, Token};
use std::sync::OnceLock;

/// From so many tokens on the device is asked: about 60 runs of 4,096 tokens, where by arithmetic a start of a kernel
/// and the way back of its results (8 to 15 us) is made up for. To be measured on a GPU: `cargo bench --bench gpu`
/// prints both.
const DEVICE_TOKENS: usize = 60 * 4096;

/// Token runs to compare, brought to the device when it is first asked about them, and once.
///
/// A link to the host is slower than one core's comparing, so a device pays only for runs that are compared many times:
/// a queue with itself, or restored blocks whose tokens are there anyway.
#[derive(Debug)]
pub struct Runs {
    /// All tokens; every run begins at a multiple of 4.
    tokens: Vec<Token>,
    runs: Vec<Run>,
    resident: OnceLock<Resident>,
}

#[derive(Debug)]
struct Resident {
    device: u64,
    arrays: Arrays,
    tokens: Span,
    runs: Span,
}

/// Compares runs, few on the processor and many on the device.
///
/// # Examples
///
/// ```no_run
/// use radixkv_cuda::{Compare, Device, Runs};
///
/// let queue: Vec<Vec<u32>> = (0..1024).map(|prompt| (0..4096).map(|token| token / (prompt + 1)).collect()).collect();
/// let runs = Runs::new(queue.iter().map(Vec::as_slice));
/// let pairs: Vec<(u32, u32)> = (0..1024).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
/// let shared = Compare::new(&Device::open(0)?).prefix_lengths(&runs, &runs, &pairs)?;
/// assert_eq!(shared.len(), pairs.len());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Compare {
    device: Device,
    device_tokens: usize,
}

impl Runs {
    /// Takes a copy of each run.
    ///
    /// # Panics
    ///
    /// If they are more than 2^32 tokens.
    pub fn new<'a>(runs: impl IntoIterator<Item = &'a [Token]>) -> Self {
        let mut all = Self { tokens: Vec::new(), runs: Vec::new(), resident: OnceLock::new() };
        for run in runs {
            let first = all.tokens.len();
            all.tokens.extend(run);
            all.tokens.resize(all.tokens.len().next_multiple_of(4), 0);
            assert!(u32::try_from(all.tokens.len()).is_ok(), "{} tokens in one comparison", all.tokens.len());
            all.runs.push(Run { first: first as u32, len: run.len() as u32 });
        }
        all
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// One run's tokens.
    ///
    /// # Panics
    ///
    /// If there is no such run.
    pub fn of(&self, run: usize) -> &[Token] {
        let Run { first, len } = self.runs[run];
        &self.tokens[first as usize..first as usize + len as usize]
    }

    /// Whether `device` is the first to be asked about them, or was.
    fn check_device(&self, device: &Device) -> Result<(), GpuError> {
        match self.resident.get() {
            Some(resident) if resident.device != device.identity() => Err(GpuError::WrongDevice),
            _ => Ok(()),
        }
    }

    fn resident(&self, device: &Device) -> Result<&Resident, GpuError> {
        if self.resident.get().is_none() {
            let mut upload = Upload::default();
            let (tokens, runs) = (upload.push(&self.tokens), upload.push(&self.runs));
            let resident = Resident { device: device.identity(), arrays: upload.send(device)?, tokens, runs };
            // Another thread may have been first: then this copy goes.
            let _ = self.resident.set(resident);
        }
        self.check_device(device)?;
        self.resident.get().ok_or(GpuError::WrongDevice)
    }
}

impl Compare {
    /// Comparing with the help of `device`.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), device_tokens: DEVICE_TOKENS }
    }

    /// Asks the device from so many tokens on, counted over the shorter runs of the pairs. Default: 245,760, by
    /// arithmetic.
    #[must_use]
    pub fn device_tokens(mut self, tokens: usize) -> Self {
        self.device_tokens = tokens;
        self
    }

    /// Lengths of the common prefixes of pairs, each a run of `a` and one of `b`.
    ///
    /// # Errors
    ///
    /// If the device was asked and failed.
    ///
    /// # Panics
    ///
    /// If a pair names no run.
    pub fn prefix_lengths(&self, a: &Runs, b: &Runs, pairs: &[(u32, u32)]) -> Result<Vec<u32>, GpuError> {
        let shorter = |(x, y): &(u32, u32)| a.runs[*x as usize].len.min(b.runs[*y as usize].len) as usize;
        let tokens: usize = pairs.iter().map(shorter).sum();
        if tokens < self.device_tokens {
            let compare = |(x, y): &(u32, u32)| key::common_prefix(a.of(*x as usize), b.of(*y as usize)) as u32;
            return Ok(pairs.iter().map(compare).collect());
        }
        let comparison = self.prepare(a, b, pairs)?;
        comparison.queue()?;
        comparison.lengths()
    }

    /// The same on the device, however few tokens there are: pairs and room for the results are brought there.
    ///
    /// # Errors
    ///
    /// If the device has too little memory, or was not the first to be asked about these runs: then none is brought there.
    ///
    /// # Panics
    ///
    /// If a pair names no run.
    pub fn prepare<'a>(&self, a: &'a Runs, b: &'a Runs, pairs: &[(u32, u32)]) -> Result<Comparison<'a>, GpuError> {
        let named = |(x, y): &(u32, u32)| (*x as usize) < a.len() && (*y as usize) < b.len();
        assert!(pairs.iter().all(named), "pairs of {} and {} runs", a.len(), b.len());
        a.check_device(&self.device)?;
        b.check_device(&self.device)?;
        let pairs: Vec<ComparePair> = pairs.iter().map(|&(a, b)| ComparePair { a, b }).collect();
        let mut upload = Upload::default();
        let span = upload.push(&pairs);
        Ok(Comparison {
            device: self.device.clone(),
            a: a.resident(&self.device)?,
            b: b.resident(&self.device)?,
            arrays: upload.send(&self.device)?,
            pairs: span,
            out: self.device.unset(pairs.len())?,
        })
    }

    /// The first pair whose runs differ, and where: for restored blocks, with the tokens they are to hold.
    ///
    /// # Errors
    ///
    /// If the device was asked and failed.
    ///
    /// # Panics
    ///
    /// If `a` and `b` are not as many.
    pub fn first_difference(&self, a: &Runs, b: &Runs) -> Result<Option<(usize, usize)>, GpuError> {
        assert_eq!(a.len(), b.len(), "runs to compare");
        let pairs: Vec<(u32, u32)> = (0..a.len() as u32).map(|run| (run, run)).collect();
        let agreed = self.prefix_lengths(a, b, &pairs)?;
        let longer = |run: usize| a.runs[run].len.max(b.runs[run].len);
        let first = agreed.iter().enumerate().find(|(run, agreed)| **agreed < longer(*run));
        Ok(first.map(|(run, agreed)| (run, *agreed as usize)))
    }
}

/// Pairs of runs on a device, with room for the lengths of their common prefixes.
#[derive(Debug)]
pub struct Comparison<'a> {
    device: Device,
    a: &'a Resident,
    b: &'a Resident,
    arrays: Arrays,
    pairs: Span,
    out: Buffer<u32>,
}

impl Comparison<'_> {
    /// Queues the comparing.
    ///
    /// # Errors
    ///
    /// If the kernel does not start.
    pub fn queue(&self) -> Result<(), GpuError> {
        let Self { a, b, pairs, .. } = *self;
        let arguments = CompareArgs {
            a: a.arrays.address(a.tokens),
            a_runs: a.arrays.address(a.runs),
            b: b.arrays.address(b.tokens),
            b_runs: b.arrays.address(b.runs),
            pairs: self.arrays.address(pairs),
            out: self.out.address(),
            pairs_len: pairs.len as u32,
            pad: 0,
        };
        // A block of threads takes 8 pairs at a time.
        let most = 8 * self.device.properties().multiprocessors as usize;
        self.device.launch((), (pairs.len.div_ceil(8).min(most), 1), &arguments)
    }

    /// The lengths, after waiting for what is queued; of no meaning if nothing was.
    ///
    /// # Errors
    ///
    /// If something queued before failed.
    pub fn lengths(&self) -> Result<Vec<u32>, GpuError> {
        self.out.to_vec()
    }
}
