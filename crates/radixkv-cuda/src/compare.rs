//! Compares many pairs of token sequences at once on a device.

use super::abi::{CompareArgs, ComparePair, TokenRange};
use super::buffer::Buffer;
use super::device::Device;
use super::error::GpuError;
use super::kernel::Kernel;
use super::upload::{ArraySpan, Arrays, Upload};
use radixkv::key::{self, Token};
use std::sync::OnceLock;

/// The fewest tokens that the device compares: from there on it makes up for the launch of a kernel
/// and the copy of its results. An H200 took 29 us for any number up to 500,000; a Xeon of the
/// fourth or fifth generation took 0.13 ns for each token as long as its cache held them.
/// `cargo bench --bench gpu` prints both.
const MIN_DEVICE_TOKENS: usize = 56 * 4096;

/// The most tokens of [`TokenSequences`]: the kernel adds up to 512 to a place before it compares
/// the place with the end.
const MOST_TOKENS: usize = u32::MAX as usize - 512;

/// Token sequences to compare. They are copied to the device once, when it first compares them.
///
/// Copying over the link to the device is slower than comparing on one core, so a device is worth
/// it only for sequences that are compared many times: the prompts of a queue with each other, or
/// restored blocks.
///
/// ```
/// use radixkv_cuda::TokenSequences;
///
/// let prompts = TokenSequences::new([&[1, 2, 3][..], &[1, 2]]);
/// assert_eq!((prompts.len(), prompts.tokens_of(1)), (2, &[1, 2][..]));
/// ```
#[derive(Debug)]
pub struct TokenSequences {
    /// All tokens; every sequence begins at a multiple of 4.
    tokens: Vec<Token>,
    runs: Vec<TokenRange>,
    resident: OnceLock<Resident>,
}

#[derive(Debug)]
struct Resident {
    device: u64,
    arrays: Arrays,
    tokens: ArraySpan,
    runs: ArraySpan,
}

/// Compares token sequences: few tokens on the CPU, many on the device.
///
/// # Examples
///
/// ```no_run
/// use radixkv_cuda::{Compare, Device, TokenSequences};
///
/// let queue: Vec<Vec<u32>> = (0..1024).map(|prompt| (0..4096).map(|token| token / (prompt + 1)).collect()).collect();
/// let prompts = TokenSequences::new(queue.iter().map(Vec::as_slice));
/// let pairs: Vec<(u32, u32)> = (0..1024).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
/// let shared = Compare::new(&Device::open(0)?).prefix_lengths(&prompts, &prompts, &pairs)?;
/// assert_eq!(shared.len(), pairs.len());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Compare {
    device: Device,
    min_device_tokens: usize,
}

impl TokenSequences {
    /// Copies the sequences into one array.
    ///
    /// # Panics
    ///
    /// If they have more than 2^32 - 513 tokens together, each sequence counted as a multiple of 4.
    ///
    /// ```
    /// use radixkv_cuda::TokenSequences;
    ///
    /// let prompts: Vec<Vec<u32>> = vec![vec![1, 2, 3], vec![1, 2]];
    /// let sequences = TokenSequences::new(prompts.iter().map(Vec::as_slice));
    /// assert_eq!(sequences.len(), 2);
    /// ```
    pub fn new<'a>(runs: impl IntoIterator<Item = &'a [Token]>) -> Self {
        let mut all = Self { tokens: Vec::new(), runs: Vec::new(), resident: OnceLock::new() };
        for run in runs {
            let first = all.tokens.len();
            all.tokens.extend(run);
            all.tokens.resize(all.tokens.len().next_multiple_of(4), 0);
            let tokens = all.tokens.len();
            assert!(tokens <= MOST_TOKENS, "{tokens} tokens in one comparison, {MOST_TOKENS} are possible");
            all.runs.push(TokenRange { first: first as u32, len: run.len() as u32 });
        }
        all
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The tokens of one sequence.
    ///
    /// # Panics
    ///
    /// If there is no such sequence.
    pub fn tokens_of(&self, run: usize) -> &[Token] {
        let TokenRange { first, len } = self.runs[run];
        &self.tokens[first as usize..first as usize + len as usize]
    }

    /// Checks that no other device has compared them.
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
            // Another thread may have been first: then this copy is dropped.
            let _ = self.resident.set(resident);
        }
        self.check_device(device)?;
        self.resident.get().ok_or(GpuError::WrongDevice)
    }
}

impl Compare {
    /// Creates comparisons on `device`, or on the CPU below
    /// [`min_device_tokens`](Self::min_device_tokens).
    ///
    /// ```no_run
    /// use radixkv_cuda::{Compare, Device};
    ///
    /// let compare = Compare::new(&Device::open(0)?);
    /// # Ok::<_, radixkv_cuda::OpenError>(())
    /// ```
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), min_device_tokens: MIN_DEVICE_TOKENS }
    }

    /// Compares on the device from this many tokens on, counted over the shorter sequence of each
    /// pair. Default: 229,376, where an H200 and a Xeon were equally fast.
    ///
    /// ```no_run
    /// # let device = radixkv_cuda::Device::open(0)?;
    /// let always_on_the_device = radixkv_cuda::Compare::new(&device).min_device_tokens(0);
    /// # Ok::<_, radixkv_cuda::OpenError>(())
    /// ```
    #[must_use]
    pub fn min_device_tokens(mut self, tokens: usize) -> Self {
        self.min_device_tokens = tokens;
        self
    }

    /// Returns the lengths of the common prefixes of pairs. A pair is the index of a sequence of
    /// `a` and that of a sequence of `b`.
    ///
    /// # Errors
    ///
    /// If the device compares them and fails, or another device compared `a` or `b` before.
    ///
    /// # Panics
    ///
    /// If an index is out of range.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(compare: &Compare) -> Result<(), GpuError> {
    /// let prompts = TokenSequences::new([&[1, 2, 3][..], &[1, 2, 4]]);
    /// assert_eq!(compare.prefix_lengths(&prompts, &prompts, &[(0, 1)])?, [2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix_lengths(
        &self,
        a: &TokenSequences,
        b: &TokenSequences,
        pairs: &[(u32, u32)],
    ) -> Result<Vec<u32>, GpuError> {
        let shorter = |(x, y): &(u32, u32)| a.runs[*x as usize].len.min(b.runs[*y as usize].len) as usize;
        let tokens: usize = pairs.iter().map(shorter).sum();
        if tokens < self.min_device_tokens {
            let compare =
                |(x, y): &(u32, u32)| key::common_prefix(a.tokens_of(*x as usize), b.tokens_of(*y as usize)) as u32;
            return Ok(pairs.iter().map(compare).collect());
        }
        let comparison = self.prepare(a, b, pairs)?;
        comparison.launch()?;
        comparison.lengths()
    }

    /// Copies sequences and pairs to the device, however few they are, to compare them by
    /// [`Comparison::launch`].
    ///
    /// # Errors
    ///
    /// [`GpuError::OutOfMemory`] if the device has too little memory; [`GpuError::WrongDevice`] if
    /// another device compared `a` or `b` before, and [`GpuError::TooMuch`] for 2^31 pairs or more:
    /// nothing is copied then.
    ///
    /// # Panics
    ///
    /// If an index is out of range.
    ///
    /// ```no_run
    /// # use radixkv_cuda::{Compare, Device, TokenSequences};
    /// let prompts = TokenSequences::new([&[1, 2, 3][..], &[1, 2, 4]]);
    /// let compare = Compare::new(&Device::open(0)?);
    /// let comparison = compare.prepare(&prompts, &prompts, &[(0, 1)])?;
    /// comparison.launch()?;
    /// assert_eq!(comparison.lengths()?, [2]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare<'a>(
        &self,
        a: &'a TokenSequences,
        b: &'a TokenSequences,
        pairs: &[(u32, u32)],
    ) -> Result<Comparison<'a>, GpuError> {
        let named = |(x, y): &(u32, u32)| (*x as usize) < a.len() && (*y as usize) < b.len();
        assert!(pairs.iter().all(named), "an index of a pair is beyond {} or {} sequences", a.len(), b.len());
        // The kernel counts pairs in 32 bits, beyond the last one by as many as there are warps.
        if i32::try_from(pairs.len()).is_err() {
            return Err(GpuError::TooMuch { kernel: Kernel::CompareKeys });
        }
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

    /// Returns the index of the first sequence that differs between `a` and `b`, and the index of
    /// its first token that differs: to verify restored blocks against the tokens that they should
    /// hold.
    ///
    /// # Errors
    ///
    /// As [`prefix_lengths`](Self::prefix_lengths).
    ///
    /// # Panics
    ///
    /// If `a` and `b` do not have the same number of sequences.
    ///
    /// ```no_run
    /// # use radixkv_cuda::{Compare, Device, TokenSequences};
    /// # let compare = Compare::new(&Device::open(0)?);
    /// let expected = TokenSequences::new([&[1, 2][..], &[3, 4]]);
    /// let restored = TokenSequences::new([&[1, 2][..], &[3, 5]]);
    /// assert_eq!(compare.first_difference(&expected, &restored)?, Some((1, 1)));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn first_difference(&self, a: &TokenSequences, b: &TokenSequences) -> Result<Option<(usize, usize)>, GpuError> {
        assert_eq!(a.len(), b.len(), "sequences to compare");
        let pairs: Vec<(u32, u32)> = (0..a.len() as u32).map(|run| (run, run)).collect();
        let agreed = self.prefix_lengths(a, b, &pairs)?;
        let longer = |run: usize| a.runs[run].len.max(b.runs[run].len);
        let first = agreed.iter().enumerate().find(|(run, agreed)| **agreed < longer(*run));
        Ok(first.map(|(run, agreed)| (run, *agreed as usize)))
    }
}

/// Pairs of sequences on a device, with room for the lengths of their common prefixes. From
/// [`Compare::prepare`].
///
/// ```no_run
/// # use radixkv_cuda::*;
/// # fn show(compare: &Compare, prompts: &TokenSequences) -> Result<(), GpuError> {
/// let comparison: Comparison<'_> = compare.prepare(prompts, prompts, &[(0, 1)])?;
/// comparison.launch()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Comparison<'a> {
    device: Device,
    a: &'a Resident,
    b: &'a Resident,
    arrays: Arrays,
    pairs: ArraySpan,
    out: Buffer<u32>,
}

impl Comparison<'_> {
    /// Queues the comparison.
    ///
    /// # Errors
    ///
    /// If the kernel does not start.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(comparison: &Comparison<'_>) -> Result<(), GpuError> {
    /// comparison.launch()?;
    /// let lengths = comparison.lengths()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch(&self) -> Result<(), GpuError> {
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

    /// The lengths, after waiting for the queued work. Without a [`launch`](Self::launch) before,
    /// they are undefined.
    ///
    /// # Errors
    ///
    /// If something queued earlier failed.
    pub fn lengths(&self) -> Result<Vec<u32>, GpuError> {
        self.out.to_vec()
    }
}
