//! One entry: a block with its record and its tokens. `region` and `digest` read entries, claim
//! them and fill them. The package documentation describes the protocol of the state word; comments
//! name each of its edges (E1 to E3).

use crate::{
    copy,
    counts::Miss,
    geometry::Geometry,
    key::{Key, Token},
    memory::Memory,
    process,
    state::{Kind, State},
    sync::{Acquire, AtomicU64, Relaxed, Release, fence},
};

/// The expiry of a block that never expires.
pub(crate) const NEVER: u64 = u64::MAX;

const STATE: usize = 0;
const USED: usize = 1;
const EXPIRES: usize = 2;
const HASH: usize = 3;
/// The parent of a token-keyed block, the owner of a digest-keyed one.
pub(crate) const PARENT: usize = 5;
pub(crate) const NAMESPACE: usize = 6;
const SEAL: usize = 7;

/// An entry of a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    number: usize,
    memory: &'a Memory,
    geometry: &'a Geometry,
}

/// An entry that this process has claimed: no other process writes to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed<'a> {
    entry: Entry<'a>,
    state: State,
}

impl<'a> Entry<'a> {
    pub(crate) fn of(number: usize, memory: &'a Memory, geometry: &'a Geometry) -> Self {
        Self { number, memory, geometry }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Loads the state; everything written before the state was published is visible.
    pub(crate) fn look(&self) -> State {
        // Acquire: E1.
        State::from_word(self.field(STATE).load(Acquire))
    }

    /// Whether the state is unchanged. If it is, all words read since the state was loaded belong
    /// to one block.
    pub(crate) fn is_still(&self, state: State) -> bool {
        // Acquire: E2.
        fence(Acquire);
        // Relaxed: the fence orders it.
        State::from_word(self.field(STATE).load(Relaxed)) == state
    }

    /// Claims the entry, if its state is unchanged.
    pub(crate) fn claim(&self, seen: State, slot: usize) -> Option<Claimed<'a>> {
        let state = seen.claimed(slot);
        // Acquire: E3.
        self.field(STATE).compare_exchange(seen.word(), state.word(), Acquire, Relaxed).ok()?;
        // Release: E2.
        fence(Release);
        Some(Claimed { entry: *self, state })
    }

    /// The entry, if the previous owner of a slot left it claimed. The caller owns the slot.
    pub(crate) fn held_by(&self, slot: usize) -> Option<Claimed<'a>> {
        let state = self.look();
        state.is_written_by(slot).then_some(Claimed { entry: *self, state })
    }

    /// The hash of its key. To be confirmed by [`is_still`](Self::is_still), unless a wrong value
    /// does no harm.
    pub(crate) fn hash(&self) -> [u64; 2] {
        [self.read(HASH), self.read(HASH + 1)]
    }

    /// The hash of its key, if it holds a block or is about to.
    pub(crate) fn live_hash(&self) -> Option<[u64; 2]> {
        matches!(self.look().kind(), Kind::Writing | Kind::Ready).then(|| self.hash())
    }

    /// Whether its block belongs to a namespace. To be confirmed by the claim that follows.
    pub(crate) fn is_of(&self, namespace: u64) -> bool {
        self.read(NAMESPACE) == namespace
    }

    /// Whether its block has expired. To be confirmed by the claim that follows.
    pub(crate) fn has_expired(&self) -> bool {
        let expires = self.read(EXPIRES);
        expires != NEVER && expires <= process::now()
    }

    /// Why no block can be read from the entry in this state, whatever the key; `None` if one can.
    /// To be confirmed by [`is_still`](Self::is_still).
    pub(crate) fn is_unfit(&self, state: State, boot: u64) -> Option<Miss> {
        if self.read(SEAL) != self.seal(state, boot) {
            Some(Miss::Damaged)
        } else {
            self.has_expired().then_some(Miss::Expired)
        }
    }

    /// Why the entry, in this state, does not hold the block of a key; `None` if it does. To be
    /// confirmed by [`is_still`](Self::is_still).
    pub(crate) fn lacks(&self, state: State, key: &Key, tokens: &[Token], boot: u64) -> Option<Miss> {
        self.is_unfit(state, boot).or_else(|| {
            let is_other =
                self.read(PARENT) != key.parent || self.read(NAMESPACE) != key.namespace || !self.has_tokens(tokens);
            is_other.then_some(Miss::OtherTokens)
        })
    }

    /// Copies the block. To be confirmed by [`is_still`](Self::is_still).
    pub(crate) fn copy_into(&self, bytes: &mut [u8]) {
        copy::read(self.payload(), bytes);
    }

    /// The address of the block, for devices.
    pub(crate) fn address(&self) -> *mut u8 {
        self.memory.address(self.geometry.payload(self.number).start)
    }

    /// When the block was last used, by the clock of the region.
    pub(crate) fn used(&self) -> u64 {
        self.read(USED)
    }

    /// Records a use.
    pub(crate) fn touch(&self, now: u64) {
        // Relaxed: it only influences what is evicted.
        self.field(USED).store(now, Relaxed);
    }

    fn has_tokens(&self, tokens: &[Token]) -> bool {
        copy::are_tokens(self.label(), tokens)
    }

    /// The checksum of a complete record. It depends on the generation and the boot: a record of an
    /// earlier put or an earlier boot does not match.
    fn seal(&self, state: State, boot: u64) -> u64 {
        let fields = [EXPIRES, HASH, HASH + 1, PARENT, NAMESPACE].map(|field| self.read(field));
        let salt = [boot, state.generation(), self.number as u64];
        fields.into_iter().chain(salt).fold(0x7261_6469_786b_7652, |seal, field| {
            let mixed = (seal ^ field).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 32
        })
    }

    pub(crate) fn read(&self, field: usize) -> u64 {
        // Relaxed: E1, E2.
        self.field(field).load(Relaxed)
    }

    pub(crate) fn field(&self, field: usize) -> &'a AtomicU64 {
        &self.memory.words(self.geometry.record(self.number))[field]
    }

    /// The words of the block.
    pub(crate) fn payload(&self) -> &'a [AtomicU64] {
        self.memory.words(self.geometry.payload(self.number))
    }

    /// The words of the tokens, or of the label in a region of digest-keyed blocks.
    pub(crate) fn label(&self) -> &'a [AtomicU64] {
        self.memory.words(self.geometry.tokens(self.number))
    }
}

impl<'a> Claimed<'a> {
    /// An entry that this process claimed earlier, with this state, and still owns.
    pub(crate) fn again(entry: Entry<'a>, state: State) -> Self {
        Self { entry, state }
    }

    pub(crate) fn entry(&self) -> Entry<'a> {
        self.entry
    }

    /// Writes the record and the tokens of the block that the entry will hold.
    pub(crate) fn write_record(&self, key: &Key, tokens: &[Token], expires: u64, now: u64) {
        self.write_fields(key, expires, now);
        copy::write_tokens(self.entry.label(), tokens);
    }

    /// Writes only the record.
    pub(crate) fn write_fields(&self, key: &Key, expires: u64, now: u64) {
        let fields = [
            (SEAL, 0),
            (EXPIRES, expires),
            (HASH, key.hash[0]),
            (HASH + 1, key.hash[1]),
            (PARENT, key.parent),
            (NAMESPACE, key.namespace),
            (USED, now),
        ];
        for (field, value) in fields {
            // Relaxed: E1, E2.
            self.entry.field(field).store(value, Relaxed);
        }
    }

    /// The state under which it was claimed.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Writes a part of the block.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        copy::write(self.entry.payload(), at, bytes);
    }

    /// Makes the block readable. False if this process no longer owns the entry, which only damaged
    /// memory can cause.
    pub(crate) fn publish(self, boot: u64) -> bool {
        let seal = self.entry.seal(self.state, boot);
        // Relaxed: E1, E2.
        self.entry.field(SEAL).store(seal, Relaxed);
        self.leave(self.state.ready())
    }

    /// Gives the entry back, empty.
    pub(crate) fn give_back(self) {
        self.leave(self.state.free());
    }

    fn leave(self, next: State) -> bool {
        // Release: E1, E3.
        self.entry.field(STATE).compare_exchange(self.state.word(), next.word(), Release, Relaxed).is_ok()
    }
}
