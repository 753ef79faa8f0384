//! The scopes that have blocks, by number.

use std::collections::HashMap;

use crate::event::Scope;

/// Numbers for scopes, kept as long as a scope has blocks.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    numbers: HashMap<Scope, u32>,
    /// Each number's scope, and how many blocks it has.
    held: Vec<Option<(Scope, usize)>>,
    free: Vec<u32>,
}

impl Scopes {
    /// Counts blocks of a scope, and returns its number.
    pub(crate) fn hold(&mut self, scope: &Scope, blocks: usize) -> u32 {
        let number = self.find(scope).unwrap_or_else(|| self.add(scope));
        if let Some((_, held)) = &mut self.held[number as usize] {
            *held += blocks;
        }
        number
    }

    /// Counts a block of a scope off; a scope without blocks loses its number.
    pub(crate) fn release(&mut self, number: u32) {
        let place = &mut self.held[number as usize];
        let Some((_, blocks)) = place else { return };
        *blocks -= 1;
        if *blocks == 0 {
            if let Some((scope, _)) = place.take() {
                self.numbers.remove(&scope);
            }
            self.free.push(number);
        }
    }

    /// The number of a scope that has blocks.
    pub(crate) fn find(&self, scope: &Scope) -> Option<u32> {
        self.numbers.get(scope).copied()
    }

    fn add(&mut self, scope: &Scope) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.held.push(None);
            u32::try_from(self.held.len() - 1).expect("fewer than 2^32 scopes")
        });
        self.held[number as usize] = Some((scope.clone(), 0));
        self.numbers.insert(scope.clone(), number);
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
        let number = scopes.hold(&one, 2);
        assert_eq!(scopes.hold(&one, 1), number);
        assert_ne!(scopes.hold(&other, 1), number);
        (0..3).for_each(|_| scopes.release(number));
        assert_eq!((scopes.find(&one), scopes.find(&other).is_some()), (None, true));
        assert_eq!(scopes.hold(&Scope::default(), 1), number);
        assert_eq!(scopes.held.len(), 2);
    }
}
