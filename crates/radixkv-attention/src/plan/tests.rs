use super::*;

const EVERY: Rule = Rule { grain_tokens: 1, group_cost_tokens: 0 };

/// A batch's tables and contexts, owned.
struct Given {
    blocks: Vec<BlockId>,
    offsets: Vec<u32>,
    contexts: Vec<u32>,
}

impl Given {
    fn new(tables: &[&[BlockId]], block_size: usize) -> Self {
        let mut offsets = vec![0];
        offsets.extend(tables.iter().scan(0, |end, table| {
            *end += table.len() as u32;
            Some(*end)
        }));
        let contexts = tables.iter().map(|table| (table.len() * block_size) as u32).collect();
        Self { blocks: tables.concat(), offsets, contexts }
    }

    fn tables(&self) -> Tables<'_> {
        Tables { blocks: &self.blocks, offsets: &self.offsets }
    }

    fn share(&self, block_size: usize, rule: Rule) -> Sharing {
        let sharing = share(self.tables(), &self.contexts, block_size, rule);
        assert_eq!(sharing.check(self.tables(), &self.contexts, block_size), Ok(()));
        sharing
    }
}

fn shared(sharing: &Sharing) -> Vec<(&[u32], usize)> {
    let groups = sharing.groups.iter().filter(|group| group.sequences.len() > 1);
    groups.map(|group| (group.sequences.as_slice(), group.shared_tokens)).collect()
}

#[test]
fn groups_are_the_common_prefixes() {
    let given = Given::new(&[&[1, 2, 3, 9], &[5, 6], &[1, 2, 4], &[5, 7], &[8], &[1, 2, 3, 4]], 16);
    let sharing = given.share(16, EVERY);
    assert_eq!(shared(&sharing), [(&[0, 2, 5][..], 32), (&[1, 3][..], 16)]);
    assert_eq!(sharing.saved_tokens(), 80);
    assert_eq!(sharing.groups.last().map(|group| group.sequences.as_slice()), Some(&[4][..]));
}

#[test]
fn the_inner_groups_win_where_they_save_more() {
    // All begin with block 1; each of two pairs shares three more blocks.
    let given = Given::new(&[&[1, 2, 3, 4], &[1, 2, 3, 4], &[1, 5, 6, 7], &[1, 5, 6, 7]], 1);
    assert_eq!(shared(&given.share(1, EVERY)), [(&[0, 1][..], 4), (&[2, 3][..], 4)]);
    let given = Given::new(&[&[1, 2], &[1, 2], &[1, 3], &[1, 4], &[1, 5]], 1);
    assert_eq!(shared(&given.share(1, EVERY)), [(&[0, 1, 2, 3, 4][..], 1)]);
}

#[test]
fn a_prefix_ends_at_the_grain_and_must_pay() {
    let given = Given::new(&[&[1, 2, 3, 4, 5, 6, 9], &[1, 2, 3, 4, 5, 6, 8], &[1, 2, 3, 4, 5, 6, 7]], 16);
    let rule = Rule { grain_tokens: 64, group_cost_tokens: 127 };
    assert_eq!(shared(&given.share(16, rule)), [(&[0, 1, 2][..], 64)]);
    assert_eq!(shared(&given.share(16, Rule { group_cost_tokens: 128, ..rule })), []);
}

#[test]
fn the_last_block_counts_when_it_is_whole() {
    let mut given = Given::new(&[&[1, 2], &[1, 2]], 16);
    assert_eq!(shared(&given.share(16, EVERY)), [(&[0, 1][..], 32)]);
    given.contexts = vec![31, 32];
    assert_eq!(shared(&given.share(16, EVERY)), [(&[0, 1][..], 16)]);
}

#[test]
fn nothing_is_shared_in_blocks_of_nothing() {
    let given = Given::new(&[&[1, 2], &[1, 2]], 16);
    let sharing = share(given.tables(), &given.contexts, 0, EVERY);
    assert_eq!(shared(&sharing), []);
    assert_eq!(sharing.check(given.tables(), &given.contexts, 0), Err(ShapeError::Zero { what: "block_size" }));
    let empty = Group { sequences: Vec::new(), shared_tokens: 16 };
    assert_eq!(empty.saved_tokens(), 0);
    let sharing = Sharing { groups: vec![empty] };
    assert_eq!(sharing.check(given.tables(), &given.contexts, 16), Err(ShapeError::Shared { group: 0, tokens: 16 }));
}

// Holds: AT13.
#[test]
fn no_choice_of_groups_saves_more() {
    // All partitions of small batches into groups, tried one by one.
    fn best(tables: &[Vec<BlockId>], cost: isize, from: usize, groups: &mut Vec<Vec<usize>>) -> isize {
        if from == tables.len() {
            let saved = |group: &Vec<usize>| {
                let first = &tables[group[0]];
                let common = group.iter().map(|other| common_blocks(first, &tables[*other])).min().unwrap_or(0);
                if group.len() > 1 { ((group.len() - 1) * common) as isize - cost } else { 0 }
            };
            return groups.iter().map(saved).sum();
        }
        let mut most = 0;
        for at in 0..groups.len() {
            groups[at].push(from);
            most = most.max(best(tables, cost, from + 1, groups));
            groups[at].pop();
        }
        groups.push(vec![from]);
        most = most.max(best(tables, cost, from + 1, groups));
        groups.pop();
        most
    }
    let mut dice = fastrand::Rng::with_seed(1);
    for round in 0..400 {
        let mut table = || (0..dice.u32(..6)).map(|depth| depth * 2 + u32::from(dice.u8(..4) == 0)).collect();
        let tables: Vec<Vec<BlockId>> = (0..1 + round % 6).map(|_| table()).collect();
        let slices: Vec<&[BlockId]> = tables.iter().map(Vec::as_slice).collect();
        let cost = dice.usize(..4);
        let sharing = Given::new(&slices, 1).share(1, Rule { group_cost_tokens: cost, ..EVERY });
        let saved = sharing.saved_tokens() as isize - (shared(&sharing).len() * cost) as isize;
        assert_eq!(saved, best(&tables, cost as isize, 0, &mut Vec::new()), "round {round}: {tables:?}");
    }
}

// Holds: AT14.
#[test]
fn a_plan_of_other_sequences_is_refused() {
    let given = Given::new(&[&[1, 2], &[1, 3]], 16);
    let check = |groups| Sharing { groups }.check(given.tables(), &given.contexts, 16);
    let group = |sequences: &[u32], shared_tokens| Group { sequences: sequences.to_vec(), shared_tokens };
    assert_eq!(check(vec![group(&[0, 1], 16)]), Ok(()));
    assert_eq!(check(vec![group(&[0], 0)]), Err(ShapeError::Group { sequence: 1 }));
    assert_eq!(check(vec![group(&[0, 1], 0), group(&[1], 0)]), Err(ShapeError::Group { sequence: 1 }));
    assert_eq!(check(vec![group(&[0, 1, 2], 0)]), Err(ShapeError::Group { sequence: 2 }));
    assert_eq!(check(vec![group(&[0, 1], 17)]), Err(ShapeError::Shared { group: 0, tokens: 17 }));
    assert_eq!(check(vec![group(&[0, 1], 33)]), Err(ShapeError::Shared { group: 0, tokens: 33 }));
}
