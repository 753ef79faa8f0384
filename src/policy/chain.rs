//! An ordered list of candidates, in chunks of one cache line.
//!
//! The next candidates are stored side by side, so that they can be prefetched long before their
//! turn; a singly linked list would show only the next one. Adding at an end and removing take
//! constant time. If a chunk has only one member left, it moves to a neighbour that has room. So
//! two neighbouring chunks have at least three candidates together, except at the ends.

use std::num::NonZeroU32;

use super::candidate::CandidateId;
use super::stack::Stack;
use super::table::Table;

/// Maximum number of candidates in a chunk.
const ROOM: usize = 13;
/// Number of chunks in a page of their table.
const PAGE: usize = 256;

/// Id of a chunk; dense, reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkId(NonZeroU32);

/// A chunk: its members are at `begin..end`, in order; other entries are stale.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Chunk {
    before: Option<ChunkId>,
    after: Option<ChunkId>,
    members: [CandidateId; ROOM],
    begin: u8,
    end: u8,
}

const _: () = assert!(size_of::<Option<Chunk>>() == 64, "one cache line");

#[derive(Debug, Default)]
pub(super) struct Chain {
    chunks: Table<Chunk, PAGE>,
    vacant: Stack<ChunkId>,
    ends: Option<Ends>,
    len: usize,
}

/// The first and the last chunk and candidate. The candidates are stored here, so that a thread
/// that has just got the evictor's lock can read them without waiting for the chunks' cache lines.
#[derive(Debug, Clone, Copy)]
struct Ends {
    chunks: [ChunkId; 2],
    members: [CandidateId; 2],
}

impl ChunkId {
    fn at(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("there are fewer chunks than candidates"))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl Chunk {
    /// A chunk of one member, placed to leave room on the side where more are added.
    fn of(member: CandidateId, begin: usize, [before, after]: [Option<ChunkId>; 2]) -> Self {
        Self { before, after, members: [member; ROOM], begin: begin as u8, end: begin as u8 + 1 }
    }

    #[inline]
    fn members(&self) -> &[CandidateId] {
        &self.members[usize::from(self.begin)..usize::from(self.end)]
    }

    /// Removes a member.
    #[inline]
    fn remove(&mut self, member: CandidateId) {
        let (begin, end) = (usize::from(self.begin), usize::from(self.end));
        if self.members[begin] == member {
            self.begin += 1;
            return;
        }
        let of = &mut self.members[begin..end];
        let at = of.iter().position(|one| *one == member).expect("a member of its chunk");
        for later in at + 1..of.len() {
            of[later - 1] = of[later];
        }
        self.end -= 1;
    }

    /// Adds a member after the others; false if the chunk is full.
    #[inline]
    fn add_last(&mut self, member: CandidateId) -> bool {
        if usize::from(self.end) == ROOM && !self.shift_to(0) {
            return false;
        }
        self.members[usize::from(self.end)] = member;
        self.end += 1;
        true
    }

    /// Adds a member before the others; false if the chunk is full.
    #[inline]
    fn add_first(&mut self, member: CandidateId) -> bool {
        if self.begin == 0 && !self.shift_to(ROOM - self.members().len()) {
            return false;
        }
        self.begin -= 1;
        self.members[usize::from(self.begin)] = member;
        true
    }

    /// Moves the members so that they begin at this place; false if the chunk is full.
    fn shift_to(&mut self, begin: usize) -> bool {
        let len = self.members().len();
        self.members.copy_within(usize::from(self.begin)..usize::from(self.end), begin);
        (self.begin, self.end) = (begin as u8, (begin + len) as u8);
        len < ROOM
    }
}

impl Chain {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<CandidateId> {
        self.ends.map(|ends| ends.members[0])
    }

    pub(super) fn last(&self) -> Option<CandidateId> {
        self.ends.map(|ends| ends.members[1])
    }

    #[inline]
    fn members(&self, chunk: ChunkId) -> &[CandidateId] {
        self.chunks.get(chunk.index()).map(Chunk::members).unwrap_or_default()
    }

    fn chunk(&mut self, chunk: ChunkId) -> &mut Chunk {
        self.chunks.get_mut(chunk.index()).expect("a chunk of the chain")
    }

    /// Adds `candidate` after all others; returns its chunk.
    #[inline]
    pub(super) fn push(&mut self, candidate: CandidateId) -> ChunkId {
        if let Some(Ends { chunks: [_, end], members: [_, latest] }) = &mut self.ends {
            if self.chunks.get_mut(end.index()).is_some_and(|chunk| chunk.add_last(candidate)) {
                self.len += 1;
                *latest = candidate;
                return *end;
            }
        }
        self.push_chunk(candidate)
    }

    /// Adds a chunk with `candidate` after all others.
    #[cold]
    fn push_chunk(&mut self, candidate: CandidateId) -> ChunkId {
        self.len += 1;
        let Some(Ends { chunks: [first, last], members: [earliest, _] }) = self.ends else {
            return self.begin_with(candidate);
        };
        let end = self.occupy(Chunk::of(candidate, 0, [Some(last), None]));
        self.chunk(last).after = Some(end);
        self.ends = Some(Ends { chunks: [first, end], members: [earliest, candidate] });
        end
    }

    /// Adds `candidate` before all others; returns its chunk.
    pub(super) fn push_first(&mut self, candidate: CandidateId) -> ChunkId {
        self.len += 1;
        let Some(Ends { chunks: [first, last], members: [_, latest] }) = self.ends else {
            return self.begin_with(candidate);
        };
        let mut end = first;
        if !self.chunk(first).add_first(candidate) {
            end = self.occupy(Chunk::of(candidate, ROOM - 1, [None, Some(first)]));
            self.chunk(first).before = Some(end);
        }
        self.ends = Some(Ends { chunks: [end, last], members: [candidate, latest] });
        end
    }

    fn begin_with(&mut self, candidate: CandidateId) -> ChunkId {
        let fresh = self.occupy(Chunk::of(candidate, 0, [None, None]));
        self.ends = Some(Ends { chunks: [fresh; 2], members: [candidate; 2] });
        fresh
    }

    fn occupy(&mut self, chunk: Chunk) -> ChunkId {
        let id = self.vacant.pop().unwrap_or_else(|| ChunkId::at(self.chunks.len()));
        self.chunks.set(id.index(), chunk);
        id
    }

    /// Removes `candidate` from its chunk. Calls `moved` for each candidate that this moves to
    /// another chunk, with that chunk.
    #[inline]
    pub(super) fn remove(&mut self, candidate: CandidateId, of: ChunkId, moved: impl FnMut(CandidateId, ChunkId)) {
        self.len -= 1;
        if !self.remove_first(candidate) {
            self.remove_any(candidate, of, moved);
        }
    }

    /// Removes `candidate` if it is the first one and its chunk has others, as for most victims;
    /// returns whether it did.
    #[inline]
    fn remove_first(&mut self, candidate: CandidateId) -> bool {
        let Some(Ends { chunks: [first, _], members: [earliest, _] }) = &mut self.ends else { return false };
        if *earliest != candidate {
            return false;
        }
        let Some(chunk) = self.chunks.get_mut(first.index()) else { return false };
        let [_, next, ..] = chunk.members() else { return false };
        *earliest = *next;
        chunk.begin += 1;
        true
    }

    fn remove_any(&mut self, candidate: CandidateId, of: ChunkId, moved: impl FnMut(CandidateId, ChunkId)) {
        let chunk = self.chunks.get_mut(of.index()).expect("a chunk of the chain");
        chunk.remove(candidate);
        match chunk.members() {
            [] => self.take_out(of),
            [lone] => {
                let lone = *lone;
                self.move_lone(lone, of, moved);
            }
            // The chunk stays, and so do the other members.
            [first, .., last] => {
                let ends = self.ends.as_mut().expect("not empty");
                let [earliest, latest] = &mut ends.members;
                *earliest = if *earliest == candidate { *first } else { *earliest };
                *latest = if *latest == candidate { *last } else { *latest };
                return;
            }
        }
        self.find_ends();
    }

    /// Finds the first and the last candidate again.
    fn find_ends(&mut self) {
        if let Some(Ends { chunks: [first, last], .. }) = self.ends {
            let ends = self.members(first).first().zip(self.members(last).last());
            let members = ends.map(|(first, last)| [*first, *last]).expect("no chunk is empty");
            self.ends = Some(Ends { chunks: [first, last], members });
        }
    }

    /// Moves the only member of a chunk to a neighbour that has room. Not for the first chunk,
    /// whose member is evicted soon.
    fn move_lone(&mut self, lone: CandidateId, of: ChunkId, mut moved: impl FnMut(CandidateId, ChunkId)) {
        let &mut Chunk { before: Some(before), after, .. } = self.chunk(of) else { return };
        let beside = if self.chunk(before).add_last(lone) {
            before
        } else if let Some(after) = after.filter(|after| self.chunk(*after).add_first(lone)) {
            after
        } else {
            return;
        };
        self.take_out(of);
        moved(lone, beside);
    }

    /// Removes a chunk that has no members.
    fn take_out(&mut self, of: ChunkId) {
        let Some(Chunk { before, after, .. }) = self.chunks.take(of.index()) else { return };
        self.vacant.push(of);
        if let Some(before) = before {
            self.chunk(before).after = after;
        }
        if let Some(after) = after {
            self.chunk(after).before = before;
        }
        self.ends = self.ends.and_then(|Ends { chunks: [first, last], members }| {
            let first = if first == of { after } else { Some(first) };
            let last = if last == of { before } else { Some(last) };
            Some(Ends { chunks: [first?, last?], members })
        });
        if self.ends.is_none() && self.vacant.len() > PAGE {
            // No chunk is left: ids start again.
            (self.chunks, self.vacant) = (Table::default(), Stack::default());
        }
    }

    /// The candidate that is `places` behind `candidate`, which is in the chunk `of`.
    #[inline]
    pub(super) fn behind(&self, candidate: CandidateId, of: ChunkId, places: usize) -> Option<CandidateId> {
        let chunk = self.chunks.get(of.index())?;
        let at = chunk.members().iter().position(|member| *member == candidate)?;
        self.behind_place(chunk, at, places)
    }

    /// The candidate that is `places` behind the first one.
    #[inline]
    pub(super) fn behind_first(&self, places: usize) -> Option<CandidateId> {
        self.behind_place(self.chunks.get(self.ends?.chunks[0].index())?, 0, places)
    }

    #[inline]
    fn behind_place<'a>(&'a self, mut chunk: &'a Chunk, at: usize, places: usize) -> Option<CandidateId> {
        let mut at = at + places;
        while at >= chunk.members().len() {
            at -= chunk.members().len();
            chunk = self.chunks.get(chunk.after?.index())?;
            // Prefetched for later calls: read once this chunk is first.
            chunk.after.into_iter().for_each(|after| self.chunks.prefetch(after.index()));
        }
        chunk.members().get(at).copied()
    }

    /// All candidates, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = CandidateId> {
        let first = self.ends.map(|ends| ends.chunks[0]);
        let next = |chunk: &ChunkId| self.chunks.get(chunk.index()).and_then(|chunk| chunk.after);
        std::iter::successors(first, next).flat_map(|chunk| self.members(chunk)).copied()
    }

    /// Prefetches a chunk, for writing.
    pub(super) fn prefetch_to_write(&self, chunk: ChunkId) {
        self.chunks.prefetch_to_write(chunk.index());
    }

    /// Prefetches the chunks at both ends, for writing.
    pub(super) fn prefetch_ends(&self) {
        self.ends.into_iter().flat_map(|ends| ends.chunks).for_each(|chunk| self.prefetch_to_write(chunk));
    }

    /// Removes all candidates, but keeps their memory until [`discard`](Self::discard).
    pub(super) fn forget(&mut self) {
        (self.ends, self.len) = (None, 0);
    }

    /// Frees as many chunks as `candidates` candidates need, in a chain whose candidates were
    /// removed by [`forget`](Self::forget); returns whether any memory is left.
    pub(super) fn discard(&mut self, candidates: usize) -> bool {
        let chunks = candidates.div_ceil(ROOM);
        let left = self.chunks.free_last(chunks);
        self.vacant.discard(chunks) || left
    }

    /// Whether `candidate` is in the chunk `of`.
    pub(super) fn has(&self, candidate: CandidateId, of: ChunkId) -> bool {
        self.members(of).contains(&candidate)
    }

    /// Whether the chunks are linked in both directions and none is empty.
    pub(super) fn is_sound(&self) -> bool {
        let mut before = None;
        let mut at = self.ends.map(|ends| ends.chunks[0]);
        let mut len = 0;
        while let Some(id) = at {
            let Some(chunk) = self.chunks.get(id.index()) else { return false };
            if chunk.before != before || chunk.members().is_empty() {
                return false;
            }
            len += chunk.members().len();
            (before, at) = (Some(id), chunk.after);
        }
        let ends = self.iter().next().zip(self.iter().last());
        before == self.ends.map(|ends| ends.chunks[1])
            && ends == self.first().zip(self.last())
            && len == self.len
            && self.chunks.iter().count() + self.vacant.len() == self.chunks.len()
    }
}

#[cfg(test)]
mod tests;
