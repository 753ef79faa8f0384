use radixkv::{NamespaceName, PrefixCache};

use super::*;

/// Names of namespaces: of tokens, and of bigrams.
fn names() -> [NamespaceName; 2] {
    let cache = PrefixCache::builder(1, 1).build().expect("a cache");
    [radixkv::Keys::Tokens, radixkv::Keys::Bigrams]
        .map(|keys| cache.namespace(NamespaceName::new(&["a"]).with_keys(keys)).name())
}

/// A reference model of the index: each held block, by its namespace, its number and all tokens up
/// to its end.
#[derive(Default)]
struct Literal(BTreeMap<(NamespaceName, usize, Vec<Token>), HostBlock>);

impl Literal {
    fn from(&self, size: usize, name: &NamespaceName, tokens: &[Token], first: usize) -> Vec<HostBlock> {
        let grid = Grid::new(size, name.keys());
        let of = |block: usize| {
            let named = tokens.get(..grid.end_of(block))?;
            self.0.get(&(name.clone(), block, named.to_vec())).copied()
        };
        (first..).map_while(of).collect()
    }
}

/// A sequence with few different tokens, so that sequences share prefixes.
fn sequence(rng: &mut fastrand::Rng) -> Vec<Token> {
    (0..rng.usize(1..24)).map(|at| rng.u32(0..2 + u32::from(at % 7 == 0))).collect()
}

fn check(size: usize, seed: u64) {
    let (mut index, mut literal, mut rng) = (Index::new(size), Literal::default(), fastrand::Rng::with_seed(seed));
    let (names, mut next) = (names(), 0);
    let mut places = BTreeMap::new();
    for _ in 0..600 {
        let (name, tokens) = (rng.choice(&names).expect("two"), sequence(&mut rng));
        let grid = Grid::new(size, name.keys());
        let number = grid.blocks(tokens.len());
        match rng.usize(0..10) {
            0..5 if number > 0 => {
                let blocks = rng.usize(0..number)..number;
                let tokens = &tokens[..grid.end_of(number - 1)];
                let path = index.make_path(name, tokens);
                for block in blocks.rev() {
                    let place = path.place(block).expect("the path is whole");
                    if index.get(place).is_none() && rng.bool() {
                        index.put(place, next);
                        places.insert(next, place);
                        literal.0.insert((name.clone(), block, tokens[..grid.end_of(block)].to_vec()), next);
                        next += 1;
                    }
                }
                index.cut(&path);
            }
            5..9 if !places.is_empty() => {
                let at = rng.usize(0..places.len());
                let (&block, &place) = places.iter().nth(at).expect("it is there");
                places.remove(&block);
                index.remove(place);
                literal.0.retain(|_, held| *held != block);
            }
            9 if rng.usize(0..20) == 0 => {
                let mut gone = Vec::new();
                index.clear(name, &mut gone);
                gone.sort_unstable();
                let mut expected: Vec<_> =
                    literal.0.iter().filter(|((of, ..), _)| of == name).map(|(_, &block)| block).collect();
                expected.sort_unstable();
                assert_eq!(gone, expected);
                literal.0.retain(|(of, ..), _| of != name);
                places.retain(|block, _| !gone.contains(block));
            }
            _ => {}
        }
        let asked = sequence(&mut rng);
        for first in 0..4 {
            let path = index.path(name, &asked);
            let found: Vec<_> = (first..).map_while(|block| index.get(path.as_ref()?.place(block)?)).collect();
            assert_eq!(found, literal.from(size, name, &asked, first), "{asked:?} from block {first}");
        }
        assert_eq!(index.held().map(|(_, held)| held).sum::<usize>(), literal.0.len());
    }
    for place in places.into_values() {
        index.remove(place);
    }
    assert_eq!(index.unused_runs.len(), index.runs.len(), "no run is left");
    assert_eq!(index.unused_spaces.len(), index.spaces.len(), "no namespace is left");
    assert!(index.names.is_empty());
}

// Holds: HT2.
#[test]
fn it_finds_what_a_literal_index_finds() {
    for seed in 0..if cfg!(miri) { 1 } else { 30 } {
        for size in [1, 2, 3, 8] {
            check(size, seed);
        }
    }
}

// Holds: HT3.
#[test]
fn a_run_keeps_the_tokens_that_name_its_blocks_and_no_more() {
    let (mut index, [name, _]) = (Index::new(4), names());
    let tokens: Vec<Token> = (0..400).collect();
    let path = index.make_path(&name, &tokens);
    let places: Vec<Place> = (0..100).map(|block| path.place(block).expect("whole")).collect();
    for (block, &place) in places.iter().enumerate() {
        index.put(place, block as HostBlock);
    }
    // From the end, so that the run gets shorter.
    for &place in places[50..].iter().rev() {
        index.remove(place);
    }
    assert_eq!(index.runs[places[0].run as usize].tokens.len(), 200);
    // Holes in between keep their tokens.
    for &place in &places[..49] {
        index.remove(place);
    }
    assert_eq!(index.runs[places[0].run as usize].tokens.len(), 200);
    index.remove(places[49]);
    assert!(index.names.is_empty());
}

#[test]
fn a_new_namespace_costs_the_same_beside_many_others() {
    let cache = PrefixCache::builder(1, 1).build().expect("a cache");
    let name = |tenant: usize| cache.namespace(&[&format!("tenant-{tenant}")]).name();
    let (few, many) = if cfg!(miri) { (5, 10) } else { (10, 30_000) };
    let put = |index: &mut Index, name: &NamespaceName, block: usize| {
        let path = index.make_path(name, &[1]);
        index.put(path.place(0).expect("one block"), block as HostBlock);
    };
    let mut indexes = [few, many].map(|others| {
        let mut index = Index::new(1);
        (0..others).for_each(|tenant| put(&mut index, &name(tenant), tenant));
        index
    });
    // Of each, the fastest of some rounds in turn: a thread that is stopped makes a round slow, and
    // not all of them.
    let (new, mut fastest) = (name(many), [std::time::Duration::MAX; 2]);
    for _ in 0..20 {
        for (index, fastest) in indexes.iter_mut().zip(&mut fastest) {
            let began = std::time::Instant::now();
            for _ in 0..many / 10 {
                put(index, &new, many);
                index.clear(&new, &mut Vec::new());
            }
            *fastest = began.elapsed().min(*fastest);
        }
    }
    // Checking all other namespaces for each one takes far longer.
    assert!(fastest[1] <= 20 * fastest[0], "{fastest:?} beside {few} and {many} namespaces");
    let counts = indexes.map(|index| (index.spaces.len(), index.names.len()));
    assert_eq!(counts, [few, many].map(|others| (others + 1, others)));
}
