//! The pieces of a run that are in the evictor's accounts. Only the evictor uses them.
//!
//! A piece is the part of a run that one insert appended in place; otherwise it would be a run of
//! its own. Policies rank a piece as they would rank that run: by the time and serial of its
//! insert, and one level deeper.
//!
//! A piece enters the accounts when the point at its end is taken out of the queue, or earlier if a
//! child run beyond it enters or a trim reaches the run. Then its blocks are counted, subscribers
//! are told, and it gets a serial, a level and an insert time. A trim ends at the next known point
//! below, which is where the piece begins. So evictions, events and counts are as for a chain of
//! runs; only `Stats::runs` differs. Snapshots, walks and saved caches list each piece separately.

/// One accounted piece, from `start` to the start of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankedPiece {
    pub(crate) start: u32,
    pub(crate) serial: u64,
    pub(crate) born: u64,
}

/// The pieces of a run, in order, without the part that the run was published with.
///
/// One word, because most runs have no pieces.
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

    /// Whether no piece was ever added.
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

    /// Removes the pieces that begin at `end` or beyond.
    #[inline]
    pub(crate) fn cut(&mut self, end: u32) {
        let left = self.up_to(end) as usize;
        if let Some(all) = &mut self.0 {
            all.pieces.truncate(left);
        }
    }

    /// Number of pieces up to `depth`. A piece includes its end, but not the depth where it begins.
    #[inline]
    pub(crate) fn up_to(&self, depth: u32) -> u32 {
        self.0.as_ref().map_or(0, |all| all.up_to(depth))
    }

    /// The piece that contains `depth`.
    #[inline]
    pub(crate) fn at(&self, depth: u32) -> Option<RankedPiece> {
        let all = self.0.as_ref()?;
        let last = all.up_to(depth).checked_sub(1)?;
        all.pieces.get(last as usize).copied()
    }

    /// The start and the serial of each piece.
    pub(crate) fn starts(&self) -> impl Iterator<Item = (u32, u64)> + Clone {
        self.all().iter().map(|piece| (piece.start, piece.serial))
    }
}
