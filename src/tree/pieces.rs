//! The pieces of a run that the evictor has taken into the accounts.
//!
//! An insert that appends to a run in place would have hung a run of its own otherwise. Policies rank what it appended as they would
//! rank that run: by the time and the number of that insert, and one level deeper.
//!
//! A piece enters the accounts when the point at its end is taken out of the queue, or earlier if a
//! child run beyond it does or a trim reaches the run. Then its blocks are counted, subscribers are
//! told, and it gets a serial, a level and an insert time. A trim ends at the next known point
//! below, where the piece begins. So evictions, events and numbers are those of a chain of runs;
//! only `Stats::runs` shows the difference. Snapshots, walks and saved caches list pieces one by
//! one.

/// One of them: from `start` to the start of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankedPiece {
    pub(crate) start: u32,
    pub(crate) serial: u64,
    pub(crate) born: u64,
}

/// The pieces of a run, in order; what was there when the run was published is none.
///
/// A word, because most runs have none.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Option<Box<InOrder>>);

#[derive(Debug, Default)]
struct InOrder {
    pieces: Vec<RankedPiece>,
}

impl InOrder {
    #[cold]
    fn up_to(&self, depth: u32) -> u32 {
        self.pieces.partition_point(|piece| piece.start < depth) as u32
    }
}

impl Pieces {
    fn all(&self) -> &[RankedPiece] {
        self.0.as_ref().map_or(&[], |all| &all.pieces)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn push(&mut self, piece: RankedPiece) {
        self.0.get_or_insert_default().pieces.push(piece);
    }

    /// Forgets those that begin at `end` or beyond.
    #[inline]
    pub(crate) fn cut(&mut self, end: u32) {
        let left = self.up_to(end) as usize;
        if let Some(all) = &mut self.0 {
            all.pieces.truncate(left);
        }
    }

    /// How many there are up to `depth`: to a piece belongs its end, and not where it begins.
    #[inline]
    pub(crate) fn up_to(&self, depth: u32) -> u32 {
        self.0.as_ref().map_or(0, |all| all.up_to(depth))
    }

    /// The piece in which `depth` lies.
    #[inline]
    pub(crate) fn at(&self, depth: u32) -> Option<RankedPiece> {
        let all = self.0.as_ref()?;
        let last = all.up_to(depth).checked_sub(1)?;
        all.pieces.get(last as usize).copied()
    }

    /// Where they begin, and their numbers.
    pub(crate) fn starts(&self) -> impl Iterator<Item = (u32, u64)> + Clone {
        self.all().iter().map(|piece| (piece.start, piece.serial))
    }
}
