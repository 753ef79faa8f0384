//! Compares the tree of prompts with a list.

use radixkv::PrefixCache;

use super::*;
use crate::request::testing::waiting;

/// Few distinct tokens, so that prompts share prefixes, diverge and end inside others.
fn some(dice: &mut u64) -> Vec<Token> {
    let mut roll = |n: u64| {
        *dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*dice >> 33) % n
    };
    (0..1 + roll(8)).map(|_| roll(2) as Token).collect()
}

#[test]
fn sharers_are_those_of_a_list() {
    let cache = PrefixCache::builder(1, 1).build().expect("sound");
    let spaces = [cache.namespace(&["a"]), cache.namespace(&["b"])];
    let (mut tree, mut list, mut dice) = (Prompts::default(), Vec::<(SequenceId, Arc<Waiting>)>::new(), 7);
    for id in 0..4_000 {
        let space = &spaces[(id % 3 == 0) as usize];
        let prompt = waiting(space, &some(&mut dice));
        tree.insert(SequenceId(id), &prompt, prompt.tokens.len());
        list.push((SequenceId(id), prompt));
        while list.len() > 1 + id as usize % 23 {
            let (gone, _) = list.swap_remove(dice as usize % list.len());
            tree.remove(gone);
        }
        let asked = some(&mut dice);
        let mut found = Vec::new();
        tree.sharers(&tree.walk(space, &asked), |id, agreed| found.push((id, agreed)));
        found.sort_unstable();
        let longest = |prompt: &Waiting| common_prefix(&prompt.tokens, &asked);
        let there = list.iter().filter(|(_, prompt)| prompt.ticket.namespace == *space);
        let mut expected: Vec<_> = there.map(|(id, prompt)| (*id, longest(prompt))).collect();
        expected.retain(|&(_, agreed)| agreed > 0);
        expected.sort_unstable();
        // Prompts that leave the path earlier are skipped: others share more.
        let deepest = expected.iter().map(|&(_, agreed)| agreed).max().unwrap_or(0);
        let ends =
            |id: SequenceId| list.iter().any(|(i, p)| *i == id && common_prefix(&p.tokens, &asked) == p.tokens.len());
        expected.retain(|&(id, agreed)| agreed == deepest || ends(id));
        assert_eq!(found, expected, "step {id}");
        assert!(tree.len() <= 2 * list.len() + 2, "a joined tree has no more inner nodes than prompts");
    }
    list.iter().for_each(|(id, _)| tree.remove(*id));
    assert_eq!((tree.len(), tree.roots.len()), (0, 0));
}

#[test]
fn the_heaviest_branch_comes_first_and_is_done_before_the_next() {
    let cache = PrefixCache::builder(1, 1).build().expect("sound");
    let space = cache.default_namespace();
    let prompts = [&[1, 1, 5][..], &[2, 1], &[2, 2], &[1, 1, 6], &[1, 2], &[3], &[2, 3], &[1, 1, 7]];
    let mut tree = Prompts::default();
    for (id, prompt) in prompts.iter().enumerate() {
        tree.insert(SequenceId(id as u64), &waiting(&space, prompt), prompt.len());
    }
    let drain = |tree: &mut Prompts, mut cursor: Option<Arc<Waiting>>| -> Vec<u64> {
        let next = || {
            let id = tree.next(cursor.as_deref())?;
            tree.remove(id);
            cursor = Some(waiting(&space, prompts[id.0 as usize]));
            Some(id.0)
        };
        std::iter::from_fn(next).collect()
    };
    assert_eq!(tree.next(None), Some(SequenceId(0)));
    // The walk continues at the cursor: its own branch first, even if another one is heavier.
    assert_eq!(tree.next(Some(&waiting(&space, &[2, 2, 9]))), Some(SequenceId(2)));
    assert_eq!(tree.next(Some(&waiting(&space, &[3, 3]))), Some(SequenceId(5)));
    assert_eq!(drain(&mut tree, None), [0, 3, 7, 4, 1, 2, 6, 5]);
    let mut tree = Prompts::default();
    for (id, prompt) in prompts.iter().enumerate() {
        tree.insert(SequenceId(id as u64), &waiting(&space, prompt), prompt.len());
    }
    let in_two = Some(waiting(&space, &[2, 2, 9]));
    assert_eq!(drain(&mut tree, in_two), [2, 1, 6, 0, 3, 7, 4, 5]);
}

/// The tree keeps no removed prompt alive (P1), in any order of removal.
#[test]
fn a_prompt_that_is_taken_out_is_not_kept() {
    let cache = PrefixCache::builder(1, 1).build().expect("sound");
    let space = cache.default_namespace();
    let (mut tree, mut list, mut dice) = (Prompts::default(), Vec::<(SequenceId, Arc<Waiting>)>::new(), 3);
    for id in 0..4_000 {
        let prompt = waiting(&space, &some(&mut dice));
        tree.insert(SequenceId(id), &prompt, prompt.tokens.len());
        list.push((SequenceId(id), prompt));
        while list.len() > 1 + id as usize % 23 {
            let (gone, mut prompt) = list.swap_remove(dice as usize % list.len());
            tree.remove(gone);
            assert!(Arc::get_mut(&mut prompt).is_some(), "step {id}: {gone:?} is kept");
        }
        let nodes = tree.nodes.iter().flatten();
        let weights: usize = nodes.clone().map(|node| node.ends.len()).sum();
        assert_eq!((weights, tree.roots_by_weight.len()), (list.len(), 1));
        for node in nodes {
            let children: BTreeSet<_> = node.children.values().copied().collect();
            let heavy: BTreeSet<_> = node.children.values().map(|&id| (Reverse(tree.node(id).weight), id)).collect();
            assert_eq!((children.len(), &heavy), (node.children.len(), &node.by_weight));
        }
    }
}

/// Inserting or removing does not visit all equal prompts or all children of a node.
#[test]
fn many_prompts_of_one_node_are_put_in_and_taken_out() {
    const PROMPTS: u64 = 200_000;
    let cache = PrefixCache::builder(1, 1).build().expect("sound");
    let space = cache.default_namespace();
    let equal = waiting(&space, &[1, 2, 3]);
    let mut tree = Prompts::default();
    for id in 0..PROMPTS {
        tree.insert(SequenceId(id), &equal, 3);
        tree.insert(SequenceId(PROMPTS + id), &waiting(&space, &[9, id as Token]), 2);
    }
    for id in 0..2 * PROMPTS {
        assert!(tree.next(None).is_some());
        tree.remove(SequenceId(id));
    }
    assert_eq!(tree.next(None), None);
}
