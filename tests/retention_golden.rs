//! Levels, priorities, retention and demotion: tables of small cases, which run on the reference
//! implementation and on the cache.
//!
//! tests/golden/retention.txt has the operations and the expected results, with reasons.

#[path = "model/subject.rs"]
#[allow(dead_code)]
mod subject;

use std::collections::BTreeSet;

use radixkv::Token;
use radixkv_reference::Reference;
use subject::{Real, Setting, Subject};

const CASES: &str = include_str!("golden/retention.txt");

/// A subject, and the blocks that were inserted and not evicted since.
struct Table<S> {
    subject: S,
    block_size: usize,
    cached: BTreeSet<String>,
}

fn tokens(sequence: &str) -> Vec<Token> {
    sequence.chars().map(Token::from).collect()
}

impl<S: Subject> Table<S> {
    fn new(setting: Setting) -> Self {
        Self { subject: S::new(setting), block_size: setting.block_size, cached: BTreeSet::new() }
    }

    /// Does what a line says; what it gives.
    fn run(&mut self, verb: &str, rest: &[&str]) -> String {
        let number = |at: usize| rest[at].parse::<u64>().expect("a number");
        match (verb, rest) {
            ("insert", [sequence]) => self.insert(sequence),
            ("match", [sequence]) => {
                let found = self.subject.match_prefix(0, &tokens(sequence));
                self.subject.release(found.lease);
            }
            ("prioritize", [sequence, _]) => self.on(sequence, |s, lease| s.prioritize(lease, number(1) as i64, None)),
            ("prioritize", [sequence, _, _]) => {
                self.on(sequence, |s, lease| s.prioritize(lease, number(1) as i64, Some(number(2))));
            }
            ("demote", [sequence]) => self.on(sequence, |s, lease| s.demote(lease)),
            ("retain", [sequence, _]) => self.on(sequence, |s, lease| assert!(s.retain(lease, number(1)))),
            ("release", [sequence]) => self.on(sequence, |s, lease| s.release_retained(lease)),
            ("clear", []) => self.subject.clear(),
            ("evict", [_]) => return self.evict(number(0)),
            ("blocks", []) => {
                self.subject.settle();
                return self.subject.accounts().map(|blocks| blocks.to_string()).join(" ");
            }
            _ => panic!("no such verb: {verb} {rest:?}"),
        }
        String::new()
    }

    fn insert(&mut self, sequence: &str) {
        let tokens = tokens(sequence);
        let found = self.subject.match_prefix(0, &tokens);
        let missing = (tokens.len() - found.len_tokens) / self.block_size;
        let reservation = self.subject.reserve(None, missing).expect("room");
        let Ok(stored) = self.subject.insert(&found.lease, &tokens, reservation) else {
            panic!("{sequence} was refused");
        };
        self.subject.abort(stored.duplicates);
        self.subject.release(stored.lease);
        self.subject.release(found.lease);
        let ends = (1..=tokens.len() / self.block_size).map(|blocks| blocks * self.block_size);
        self.cached.extend(ends.map(|end| sequence[..end].to_owned()));
    }

    /// Does something with a lease on all of `sequence`, which is no use of it.
    fn on(&mut self, sequence: &str, act: impl FnOnce(&mut S, &S::Lease)) {
        let found = self.subject.match_prefix_untouched(0, &tokens(sequence));
        assert_eq!(found.len_tokens, sequence.len(), "{sequence} is cached");
        act(&mut self.subject, &found.lease);
        self.subject.release(found.lease);
    }

    /// Evicts one by one and names what went.
    fn evict(&mut self, blocks: u64) -> String {
        let mut gone = Vec::new();
        for _ in 0..blocks {
            let freed = self.subject.evict(1);
            let subject = &mut self.subject;
            let is_gone = |block: &&String| subject.peek(0, &tokens(block)) < block.len();
            let lost: Vec<String> = self.cached.iter().filter(is_gone).cloned().collect();
            assert_eq!(lost.len(), freed, "{lost:?}");
            lost.iter().for_each(|block| _ = self.cached.remove(block));
            gone.extend(lost);
        }
        gone.join(" ")
    }
}

/// `policy NAME, blocks of N, M of them`
fn setting(line: &str) -> Setting {
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let ["policy", policy, "blocks", "of", block_size, capacity, "of", "them"] = words[..] else {
        panic!("no setting: {line}");
    };
    let policy = policy.parse().expect("a policy");
    let number = |text: &str| text.parse().expect("a number");
    Setting {
        block_size: number(block_size),
        capacity: number(capacity),
        policy,
        time_to_idle: None,
        start: 0,
        stands: false,
    }
}

/// Runs every case; how many lines said what comes of them.
fn run<S: Subject>() -> usize {
    let mut said = 0;
    for case in CASES.split("\ncase ").skip(1) {
        let mut lines = case.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let name = lines.next().expect("a name");
        let mut table = Table::<S>::new(setting(lines.next().expect("a setting")));
        for line in lines {
            let (done, expected) = line.split_once("->").unwrap_or((line, ""));
            let words: Vec<&str> = done.split_whitespace().collect();
            table.subject.set_time(words[0].parse().expect("a time"));
            let came = table.run(words[1], &words[2..]);
            assert_eq!(came, expected.trim(), "{name}: {line}");
            assert_eq!(table.subject.validate(), Ok(()), "{name}: {line}");
            said += usize::from(!expected.trim().is_empty());
        }
    }
    said
}

#[test]
fn the_reference_agrees_with_the_tables() {
    assert!(run::<Reference>() > 40);
}

// Holds: EV2, PR1, PR3, PR6, PR10.
#[test]
fn the_cache_agrees_with_the_tables() {
    assert!(run::<Real>() > 40);
}
