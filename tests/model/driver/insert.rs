//! The steps that insert: right and wrong, from fresh and from held reservations.

use radixkv::Token;
use radixkv_reference as reference;

use super::{Difference, Driver, HeldLease, HeldReservation, equal, matched_by};
use crate::step::{Fault, Sequence};
use crate::subject::{Refusal, Stored, Subject, offset};

type Expected = Result<Stored<reference::Lease, reference::Reservation>, (Refusal, reference::Reservation)>;
type Actual<S> =
    Result<Stored<<S as Subject>::Lease, <S as Subject>::Reservation>, (Refusal, <S as Subject>::Reservation)>;

impl<S: Subject> Driver<S> {
    /// Match, insert, release of both: the life of a request that keeps nothing.
    pub(super) fn serve(&mut self, space: usize, sequence: &Sequence) -> Result<(), Difference> {
        let tokens = sequence.tokens(self.setting.block_size);
        self.match_prefix(space, tokens.clone())?;
        self.tick();
        let last = self.leases.len() - 1;
        let reservations = self.reservations.len();
        let needed = self.needed(last, tokens.len());
        if self.reserve(Some(space), needed)? {
            let held = self.reservations.pop().expect("just reserved");
            self.put(last, tokens, held)?;
            self.release(last + 1);
        }
        while self.reservations.len() > reservations {
            self.abort(reservations);
        }
        self.release(last);
        Ok(())
    }

    pub(super) fn insert(&mut self, at: usize, sequence: &Sequence) -> Result<(), Difference> {
        let Some((at, tokens)) = self.growth(at, sequence) else {
            return Ok(());
        };
        self.insert_tokens(at, tokens)
    }

    /// As a conversation goes on: the tokens of the lease, and some behind them.
    pub(super) fn append(&mut self, at: usize, blocks: u8, token: u8) -> Result<(), Difference> {
        let Some(at) = at.checked_rem(self.leases.len()) else {
            return Ok(());
        };
        let HeldLease { space, tokens, .. } = &self.leases[at];
        let ahead = if tokens.is_empty() { offset(*space) } else { 0 };
        let more = usize::from(blocks) * self.setting.block_size + ahead;
        let tokens = tokens.iter().copied().chain(std::iter::repeat_n(Token::from(token), more)).collect();
        self.insert_tokens(at, tokens)
    }

    fn insert_tokens(&mut self, at: usize, tokens: Vec<Token>) -> Result<(), Difference> {
        if !self.reserve(Some(self.leases[at].space), self.needed(at, tokens.len()))? {
            return Ok(());
        }
        let held = self.reservations.pop().expect("just reserved");
        self.put(at, tokens, held)
    }

    pub(super) fn insert_from(&mut self, at: usize, sequence: &Sequence, from: usize) -> Result<(), Difference> {
        let Some((at, tokens)) = self.growth(at, sequence) else {
            return Ok(());
        };
        let Some(mut held) = self.take_reservation(from) else {
            return Ok(());
        };
        let needed = self.needed(at, tokens.len());
        if held.expected.blocks().len() < needed {
            self.reservations.push(held);
            return Ok(());
        }
        let expected = Subject::split(&mut self.reference, &mut held.expected, needed);
        let actual = self.subject.split(&mut held.actual, needed);
        self.reservations.push(held);
        self.put(at, tokens, HeldReservation { expected, actual })
    }

    pub(super) fn insert_wrong(&mut self, at: usize, sequence: &Sequence, fault: Fault) -> Result<(), Difference> {
        let Some((at, tokens)) = self.growth(at, sequence) else {
            return Ok(());
        };
        // Which of two faults is named first is not promised.
        if self.leases[at].detached {
            return Ok(());
        }
        let needed = self.needed(at, tokens.len());
        let given = match fault {
            Fault::OneTooMany => Some(needed + 1),
            Fault::OneTooFew => needed.checked_sub(1),
        };
        let Some(given) = given else { return Ok(()) };
        if !self.reserve(None, given)? {
            return Ok(());
        }
        let held = self.reservations.pop().expect("just reserved");
        self.put(at, tokens, held)
    }

    /// A held lease, and a sequence that begins with its tokens.
    fn growth(&self, at: usize, sequence: &Sequence) -> Option<(usize, Vec<Token>)> {
        let at = at.checked_rem(self.leases.len())?;
        Some((at, self.continued(&self.leases[at].tokens, sequence)))
    }

    fn needed(&self, at: usize, tokens: usize) -> usize {
        let HeldLease { space, tokens: leased, .. } = &self.leases[at];
        let blocks = |tokens: usize| tokens.saturating_sub(offset(*space)) / self.setting.block_size;
        blocks(tokens) - blocks(leased.len())
    }

    /// Inserts on both sides and holds what comes of it.
    fn put(&mut self, at: usize, tokens: Vec<Token>, given: HeldReservation<S::Reservation>) -> Result<(), Difference> {
        let from = &self.leases[at];
        let before = given.expected.blocks().to_vec();
        let expected = Subject::insert(&mut self.reference, &from.expected, &tokens, given.expected);
        let actual = self.subject.insert(&from.actual, &tokens, given.actual);
        match (expected, actual) {
            (Ok(expected), Ok(actual)) => self.hold_stored(at, tokens, expected, actual),
            (Err((expected, ours)), Err((actual, theirs))) => {
                equal("refused insert", actual, expected)?;
                let (expected, actual) = (ours, theirs);
                equal("blocks handed back", self.subject.blocks(&actual), self.named(&before))?;
                self.reservations.push(HeldReservation { expected, actual });
                Ok(())
            }
            (expected, actual) => {
                let (expected, actual) = (outcome::<S>(&Err(expected)), outcome::<S>(&Ok(actual)));
                equal("insert", actual, expected)
            }
        }
    }

    fn hold_stored(
        &mut self,
        at: usize,
        mut tokens: Vec<Token>,
        expected: Stored<reference::Lease, reference::Reservation>,
        actual: Stored<S::Lease, S::Reservation>,
    ) -> Result<(), Difference> {
        equal("tokens now leased", actual.len_tokens, expected.len_tokens)?;
        equal("dropped tokens", actual.dropped_tokens, expected.dropped_tokens)?;
        equal("canonical blocks", actual.blocks, self.named(&expected.blocks))?;
        let duplicates = self.subject.blocks(&actual.duplicates);
        equal("duplicates", duplicates, self.named(expected.duplicates.blocks()))?;
        self.hold_duplicates(expected.duplicates, actual.duplicates);
        let space = self.leases[at].space;
        tokens.truncate(matched_by(space, expected.len_tokens));
        let (expected, actual) = (expected.lease, actual.lease);
        self.leases.push(HeldLease { expected, actual, space, tokens, detached: false });
        Ok(())
    }

    fn hold_duplicates(&mut self, expected: reference::Reservation, actual: S::Reservation) {
        if expected.blocks().is_empty() {
            Subject::abort(&mut self.reference, expected);
            self.subject.abort(actual);
        } else {
            self.reservations.push(HeldReservation { expected, actual });
        }
    }
}

/// What an insert came to, in a word, of either side.
fn outcome<S: Subject>(result: &Result<Actual<S>, Expected>) -> String {
    match result {
        Ok(Ok(_)) | Err(Ok(_)) => "stored".to_owned(),
        Ok(Err((refusal, _))) | Err(Err((refusal, _))) => refusal.clone(),
    }
}
