//! Short numbers for scopes, so that the recorder stores four bytes for each block. A scope has one
//! number for its blocks of tokens, and another for its blocks of pairs.

use std::collections::HashMap;

use crate::event::Scope;

/// Numbers for scopes. A scope has a number as long as it has blocks.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    /// By kind of block: tokens, pairs.
    numbers: [HashMap<Scope, u32>; 2],
    held: Vec<Option<Holder>>,
    free: Vec<u32>,
}

/// The scope and kind of blocks that a number stands for.
#[derive(Debug)]
struct Holder {
    scope: Scope,
    bigrams: bool,
    blocks: usize,
}

impl Scopes {
    /// Adds to the block count of a scope, and returns the scope's number.
    pub(crate) fn hold(&mut self, scope: &Scope, bigrams: bool, blocks: usize) -> u32 {
        let number = self.find(scope, bigrams).unwrap_or_else(|| self.add(scope, bigrams));
        if let Some(holder) = &mut self.held[number as usize] {
            holder.blocks += blocks;
        }
        number
    }

    /// Subtracts one from the block count of a scope. At zero, the number becomes free.
    pub(crate) fn release(&mut self, number: u32) {
        let place = &mut self.held[number as usize];
        let Some(holder) = place else { return };
        holder.blocks -= 1;
        if holder.blocks == 0 {
            if let Some(Holder { scope, bigrams, .. }) = place.take() {
                self.numbers[usize::from(bigrams)].remove(&scope);
            }
            self.free.push(number);
        }
    }

    /// The number of a scope that has blocks.
    pub(crate) fn find(&self, scope: &Scope, bigrams: bool) -> Option<u32> {
        self.numbers[usize::from(bigrams)].get(scope).copied()
    }

    fn add(&mut self, scope: &Scope, bigrams: bool) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.held.push(None);
            u32::try_from(self.held.len() - 1).expect("fewer than 2^32 scopes")
        });
        self.held[number as usize] = Some(Holder { scope: scope.clone(), bigrams, blocks: 0 });
        self.numbers[usize::from(bigrams)].insert(scope.clone(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_without_blocks_has_no_number() {
        let mut scopes = Scopes::default();
        let (one, other) = (Scope::salted("one"), Scope::salted("other"));
        let number = scopes.hold(&one, false, 2);
        assert_eq!(scopes.hold(&one, false, 1), number);
        assert_ne!(scopes.hold(&other, false, 1), number);
        assert_ne!(scopes.hold(&one, true, 1), number);
        (0..3).for_each(|_| scopes.release(number));
        assert_eq!((scopes.find(&one, false), scopes.find(&other, false).is_some()), (None, true));
        assert!(scopes.find(&one, true).is_some());
        assert_eq!(scopes.hold(&Scope::default(), false, 1), number);
        assert_eq!(scopes.held.len(), 3);
    }
}
