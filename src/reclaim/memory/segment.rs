//! Segments: memory from the system, which the stock cuts into slabs for the depots.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
use memmap2::{Advice, UncheckedAdvice};
use memmap2::{MmapMut, MmapOptions};

use crate::sync::Mutex;
use crate::sync::gauge::{AtomicUsize, Relaxed};

/// Bytes of a slab, and its alignment.
pub(super) const SLAB: usize = 64 << 10;
const SLABS: usize = 32;
/// Bytes of a segment, which the system may back with one large page.
const SEGMENT: usize = SLAB * SLABS;

/// Bound on *warm* slabs (empty, but still backed by memory): `WARM`, plus one for each `WARM_PART`
/// slabs in use. So a steady load neither takes memory from the system nor returns any.
const WARM: usize = 16;
const WARM_PART: usize = 4;

/// One segment: its mapping and the state of its slabs.
#[derive(Debug)]
struct Segment {
    mapping: MmapMut,
    /// Offset of the first slab in the mapping, in bytes.
    offset: usize,
    /// A bit for each slab that is not in use.
    free: u32,
    /// A bit for each free slab that was used and is still backed by memory.
    warm: u32,
    /// The first of the slabs that were never used, but are backed by memory if the system gave a
    /// large page. `SLABS` once `cool` has returned that memory.
    fresh: u32,
}

impl Segment {
    /// Maps a new segment; `None` if the system refuses, and in models. The first one asks for no
    /// large page, because a small cache should not need one.
    fn map(is_first: bool) -> Option<Self> {
        if cfg!(any(radixkv_loom, radixkv_shuttle, miri)) {
            return None;
        }
        // Twice the size, so that it contains an aligned segment. Untouched pages use no memory.
        let mapping = MmapOptions::new().len(2 * SEGMENT).no_reserve_swap().map_anon().ok()?;
        let offset = mapping.as_ptr().addr().next_multiple_of(SEGMENT) - mapping.as_ptr().addr();
        if !is_first {
            #[cfg(target_os = "linux")]
            // A hint: systems without large pages refuse it.
            let _ = mapping.advise_range(Advice::HugePage, offset, SEGMENT);
        }
        Some(Self { mapping, offset, free: u32::MAX, warm: 0, fresh: 0 })
    }

    fn slab(&mut self, at: u32) -> NonNull<u8> {
        let start = self.mapping.as_mut_ptr().wrapping_add(self.offset + at as usize * SLAB);
        NonNull::new(start).expect("a mapping is not at address zero")
    }

    fn is_empty(&self) -> bool {
        self.free == u32::MAX
    }

    /// Returns the memory of an empty slab, and of the slabs that were never used, to the system.
    /// This splits a large page that backs the segment.
    fn cool(&mut self, at: u32) {
        self.warm &= !(1 << at);
        self.give_back(at..at + 1);
        let fresh = std::mem::replace(&mut self.fresh, SLABS as u32);
        self.give_back(fresh..SLABS as u32);
    }

    /// Returns the memory of slabs without a used slot to the system.
    fn give_back(&self, slabs: Range<u32>) {
        #[cfg(target_os = "linux")]
        if !slabs.is_empty() {
            let (start, len) = (self.offset + slabs.start as usize * SLAB, slabs.len() * SLAB);
            // SAFETY: S4: no slot of these slabs is in use, and a new header is written before any
            // slot is used again.
            let advised = unsafe { self.mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) };
            debug_assert!(advised.is_ok(), "a part of the mapping: {advised:?}");
        }
        #[cfg(not(target_os = "linux"))]
        let _ = slabs;
    }
}

/// The origin of a slab's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Slab `at` of a segment.
    Segment { segment: usize, at: u32 },
    /// The global allocator.
    Alone,
}

/// The segments of one cache.
#[derive(Debug)]
pub(super) struct Stock {
    segments: Mutex<Segments>,
    /// Bytes of segments, and of slabs from the global allocator.
    bytes: AtomicUsize,
    /// In models: slabs that were given back, kept so that no address is used twice.
    #[cfg(any(radixkv_loom, radixkv_shuttle))]
    ended: std::cell::RefCell<Vec<NonNull<u8>>>,
}

#[cfg(any(radixkv_loom, radixkv_shuttle))]
impl Drop for Stock {
    fn drop(&mut self) {
        // SAFETY: S4: allocated by `take`, and no slot of it is in use.
        self.ended.take().into_iter().for_each(|slab| unsafe { dealloc(slab.as_ptr(), ALONE) });
    }
}

/// Numbers of segments in order; few, because a segment is large.
#[derive(Debug, Default)]
struct Ordered(Vec<usize>);

impl Ordered {
    fn insert(&mut self, segment: usize) {
        if let Err(at) = self.0.binary_search(&segment) {
            self.0.insert(at, segment);
        }
    }

    fn remove(&mut self, segment: usize) {
        if let Ok(at) = self.0.binary_search(&segment) {
            self.0.remove(at);
        }
    }
}

#[derive(Debug, Default)]
struct Segments {
    /// `None` where a segment was returned to the system.
    list: Vec<Option<Segment>>,
    /// Segments with a free slab. The first of them gives the next slab, so that the last become
    /// empty.
    open: Ordered,
    /// Segments with a warm slab.
    with_warm: Ordered,
    warm: usize,
    in_use: usize,
}

impl Stock {
    pub(super) fn new() -> Self {
        Self {
            segments: Mutex::new(Segments::default()),
            bytes: AtomicUsize::new(0),
            #[cfg(any(radixkv_loom, radixkv_shuttle))]
            ended: std::cell::RefCell::default(),
        }
    }

    /// Takes memory for a slab, aligned to its size, without waiting: if another thread has the
    /// segments' lock, or the system gives no memory, the slab comes from the global allocator.
    pub(super) fn take(&self) -> (NonNull<u8>, Source) {
        let taken = self.segments.try_lock().and_then(|mut segments| segments.take(&self.bytes));
        taken.unwrap_or_else(|| {
            // Relaxed, here and below: a gauge.
            self.bytes.fetch_add(SLAB, Relaxed);
            (allocate(ALONE), Source::Alone)
        })
    }

    /// Takes back the memory of a slab without a used slot. Returns false, and takes nothing, if
    /// the slab is part of a segment and another thread has the segments' lock.
    #[must_use]
    pub(super) fn give_back(&self, slab: NonNull<u8>, source: Source) -> bool {
        match source {
            Source::Segment { segment, at } => {
                let Some(mut segments) = self.segments.try_lock() else { return false };
                let emptied = segments.give_back(segment, at);
                drop(segments);
                // Unmapped after the lock is released, because unmapping may take a while.
                if emptied.is_some() {
                    self.bytes.fetch_sub(SEGMENT, Relaxed);
                }
            }
            Source::Alone => {
                self.bytes.fetch_sub(SLAB, Relaxed);
                #[cfg(any(radixkv_loom, radixkv_shuttle))]
                self.ended.borrow_mut().push(slab);
                #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
                // SAFETY: S4: allocated by `take`, and no slot of it is in use.
                unsafe {
                    dealloc(slab.as_ptr(), ALONE);
                }
            }
        }
        true
    }

    /// Cools warm slabs until at most one remains per `WARM_PART` slabs in use; does nothing if
    /// another thread has the segments' lock.
    pub(super) fn cool_down(&self) {
        let Some(mut segments) = self.segments.try_lock() else { return };
        while segments.is_warmer_than(0) {
            if segments.cool(0).is_some() {
                // Relaxed: a gauge.
                self.bytes.fetch_sub(SEGMENT, Relaxed);
            }
        }
    }

    /// Bytes taken from the system or the global allocator and not yet returned.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

impl Segments {
    fn is_warmer_than(&self, keep: usize) -> bool {
        self.warm > keep + self.in_use / WARM_PART
    }

    fn take(&mut self, bytes: &AtomicUsize) -> Option<(NonNull<u8>, Source)> {
        let segment = match self.with_warm.0.first().or(self.open.0.first()) {
            Some(&segment) => segment,
            None => self.open_another(bytes)?,
        };
        let from = self.list[segment].as_mut()?;
        let at = if from.warm != 0 { from.warm.trailing_zeros() } else { from.free.trailing_zeros() };
        self.warm -= (from.warm >> at & 1) as usize;
        self.in_use += 1;
        from.free &= !(1 << at);
        from.warm &= !(1 << at);
        from.fresh = from.fresh.max(at + 1);
        if from.free == 0 {
            self.open.remove(segment);
        }
        if from.warm == 0 {
            self.with_warm.remove(segment);
        }
        Some((from.slab(at), Source::Segment { segment, at }))
    }

    fn open_another(&mut self, bytes: &AtomicUsize) -> Option<usize> {
        let vacant = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        let new = Segment::map(vacant == 0)?;
        if vacant == self.list.len() {
            self.list.push(None);
        }
        self.list[vacant] = Some(new);
        self.open.insert(vacant);
        bytes.fetch_add(SEGMENT, Relaxed);
        Some(vacant)
    }

    /// Takes a slab back. If this makes too many slabs warm, may return a segment for the caller to
    /// unmap.
    fn give_back(&mut self, segment: usize, at: u32) -> Option<Segment> {
        let of = self.list[segment].as_mut()?;
        of.free |= 1 << at;
        of.warm |= 1 << at;
        self.warm += 1;
        self.in_use -= 1;
        self.open.insert(segment);
        self.with_warm.insert(segment);
        // Two for each returned slab, so that the excess shrinks and this call is bounded.
        (0..2).find_map(|_| self.cool(WARM))
    }

    /// If more slabs are warm than `keep` plus one per `WARM_PART` in use, cools the last segment
    /// with a warm slab. If it is empty and not the first, returns it for the caller to unmap; else
    /// returns one warm slab's memory to the system.
    fn cool(&mut self, keep: usize) -> Option<Segment> {
        let last = *self.with_warm.0.last().filter(|_| self.is_warmer_than(keep))?;
        let of = self.list[last].as_mut()?;
        if of.is_empty() && last != 0 {
            self.warm -= of.warm.count_ones() as usize;
            self.open.remove(last);
            self.with_warm.remove(last);
            return self.list[last].take();
        }
        of.cool(of.warm.trailing_zeros());
        self.warm -= 1;
        if of.warm == 0 {
            self.with_warm.remove(last);
        }
        None
    }
}

const ALONE: Layout = match Layout::from_size_align(SLAB, SLAB) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// Memory from the global allocator; `layout` must not be empty.
pub(super) fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty: a slab's, or a node's, which has a size.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
