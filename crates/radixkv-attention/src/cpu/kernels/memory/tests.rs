use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::super::rows::StoredRows;
use super::super::{Hints, LANES, Level};
use crate::layout::Dtype;

/// Two pages; the second one must not be read.
struct Fenced {
    first: *mut libc::c_void,
    page: usize,
}

impl Fenced {
    fn new() -> Self {
        // SAFETY: it has no requirements.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, at an address that the system chooses.
        let first = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, access, kind, -1, 0) };
        assert_ne!(first, libc::MAP_FAILED);
        // SAFETY: the second page of this memory, to which nothing points.
        let failed = unsafe { libc::mprotect(first.wrapping_byte_add(page), page, libc::PROT_NONE) };
        assert_eq!(failed, 0);
        Self { first, page }
    }

    /// The last words of the first page.
    fn words(&self, count: usize) -> &[AtomicU64] {
        let first = self.first.wrapping_byte_add(self.page - count * size_of::<AtomicU64>());
        // SAFETY: they are in the page, at multiples of their size, were zeroed, and are
        // written only as atomics.
        unsafe { std::slice::from_raw_parts(first.cast(), count) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the memory that was mapped; no words are borrowed from it.
        unsafe { libc::munmap(self.first, 2 * self.page) };
    }
}

#[test]
fn no_level_reads_beyond_the_words() {
    let (fenced, dice) = (Fenced::new(), &mut fastrand::Rng::with_seed(1));
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8, Dtype::E4m3] {
        let each = size_of::<u64>() / dtype.bytes();
        for elements in (each..=6 * LANES).step_by(each) {
            // Two rows, the first of which is followed by words of another head.
            let stride = elements / each + dice.usize(..4);
            let words = fenced.words(stride + elements / each);
            words.iter().for_each(|word| word.store(dice.u64(..), Relaxed));
            let read = |level: Level| {
                let mut to = vec![7.0_f32; 2 * elements];
                let rows = StoredRows { dtype, words, stride, elements, scales: &[0.5, 3.0], to_stride: elements };
                level.read(rows, &mut to, &mut Hints::default());
                to
            };
            let numbers = |level| read(level).into_iter().map(|it| if it.is_nan() { None } else { Some(it.to_bits()) });
            for level in Level::all() {
                assert!(numbers(level).eq(numbers(Level::Plain)), "{level:?}: {elements} elements of {dtype}");
            }
        }
    }
}
