use super::*;
use crate::reclaim::Domain;

#[test]
fn a_turn_ends_a_few_drafts_however_many_were_let_go() {
    let domain = Domain::new();
    let local = domain.register();
    let mut drafts = Drafts::default();
    let read: Vec<_> = (0..100).map(|_| Arc::new(Draft::default())).collect();
    read.iter().for_each(|draft| drafts.add(Arc::clone(draft)));
    drafts.release(&local.pin());
    assert_eq!(drafts.waiting.len(), 100, "subscribers have them");
    drop(read);
    for turn in 1..=100 / LOOKS {
        drafts.release(&local.pin());
        assert_eq!(drafts.waiting.len(), 100 - turn * LOOKS);
    }
}
