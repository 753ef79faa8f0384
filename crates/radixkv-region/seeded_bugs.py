#!/usr/bin/env python3
"""Seeded bugs of the region, and the model or test that must find each. `seeded_bugs.py [WORDS]`: only bugs whose name has them.

As `loom_tests/seeded_bugs.py` does for the core: exact text is replaced in a scratch copy
(`target/seeded-region`), and only what is named for the bug runs. `--texts` checks that each text is in
the sources, once.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../loom_tests"))
import seeded

HERE = "crates/radixkv-region/src"
ENTRY, INDEX, SLOTS, STATE, TAKEN = (f"{HERE}/{name}.rs" for name in ("entry", "index", "slots", "state", "taken"))
SPACE, READ, WRITE, FILES, REGION = (f"{HERE}/region/{name}.rs" for name in ("space", "read", "write", "files", "mod"))
HEADER, PROCESS = (f"{HERE}/{name}.rs" for name in ("header", "process"))
BLOCKS, CHARGE, COUNT, LABEL, DIGEST, SEALED, TABLE = (
    f"{HERE}/digest/{name}.rs" for name in ("blocks", "charge", "count", "label", "mod", "sealed", "table")
)
SEAL = f"{HERE}/seal.rs"

# (bug, what finds it, [(file, text, replacement)...]); `models` are loom's, the others are tests.
BUGS = [
    ("publishing Relaxed (E1)", "models a_put_against_a_get",
     [(ENTRY, "next.word(), Release, Relaxed).is_ok()", "next.word(), Relaxed, Relaxed).is_ok()")]),
    ("the state looked at Relaxed (E1)", "models a_put_against_a_get",
     [(ENTRY, "State::from_word(self.field(STATE).load(Acquire))", "State::from_word(self.field(STATE).load(Relaxed))")]),
    ("claiming without the fence (E2)", "models a_block_that_is_overwritten_while_it_is_read",
     [(ENTRY, "        fence(Release);\n", "")]),
    ("confirming without the fence (E2)", "models a_block_that_is_overwritten_while_it_is_read",
     [(ENTRY, "        fence(Acquire);\n", "")]),
    ("a copy that is not confirmed", "models a_block_that_is_overwritten_while_it_is_read",
     [(READ, "(!entry.is_still(state)).then_some(Miss::Overwritten)", "None")]),
    ("a generation that stays", "models a_block_that_is_removed_and_put_again_while_it_is_read",
     [(STATE, "Self::new(self.generation().wrapping_add(1), ", "Self::new(self.generation(), ")]),
    ("claiming by load and store", "models two_puts_of_two_blocks_into_one_entry",
     [(ENTRY, "self.field(STATE).compare_exchange(seen.word(), state.word(), Acquire, Relaxed).ok()?;",
       "if self.look() != seen {\n            return None;\n        }\n        self.field(STATE).store(state.word(), Relaxed);")]),
    ("a cell written Relaxed (E4)", "models two_puts_of_one_block_store_it_once",
     [(INDEX, "compare_exchange(seen, cell(hash, entry), Release, Relaxed)", "compare_exchange(seen, cell(hash, entry), Relaxed, Relaxed)")]),
    ("cells looked at Relaxed (E4)", "models two_puts_of_one_block_store_it_once",
     [(INDEX, "let seen = word.load(Acquire);", "let seen = word.load(Relaxed);")]),
    ("a cell taken without a look at the others", "models two_puts_of_one_block_store_it_once",
     [(INDEX, "Some(other) if other == hash => return false,", "Some(other) if other == hash => {}")]),
    ("a slot recovered by two", "models what_a_dead_process_held_is_given_back_once",
     [(SLOTS, "let taken = self.word(slot).compare_exchange(seen, new.word(), AcqRel, Relaxed).is_ok();",
       "let taken = self.word(slot).load(Relaxed) == seen && new != owner;")]),
    ("threads of a process that recover at once", "lib region::killed::a_thread_beside_one_that_is_stopped_while_it_recovers_gives_nothing_back",
     [(SPACE, "let Ok(_one) = self.recovering.try_lock() else { return 0 };", "")]),
    ("an id that is compared where there is a lock", "processes what_a_process_held_before_it_replaced_itself_is_given_back",
     [(SLOTS, "        let new = if owner == ProcessId::NONE {\n", "        let new = if owner == ProcessId::NONE || owner.is_of(own) {\n")]),
    ("a process that recovers itself", "lib region::killed::killed_in_a_removal",
     [(SPACE, "slot >= SLOTS || slot == self.slot ||", "slot >= SLOTS ||")]),
    ("a forked child that tries locks", "lib region::killed::a_forked_child_that_looks_at_slots_unlocks_none",
     [(SPACE, "(self.is_own() || self.own == ProcessId::NONE)", "true")]),
    ("a lock that is not looked at", "lib region::killed::what_cannot_be_judged_is_alive",
     [(SLOTS, "            if self.lock(slot) != Lock::Held {\n", "            if self.file.is_none() {\n")]),
    ("pids of another namespace judged", "lib region::killed::what_cannot_be_judged_is_alive",
     [(PROCESS, "if self == Self::NONE || self.namespace() == UNKNOWN || self.namespace() != own.namespace() {", "if self == Self::NONE || self.0 == own.0 {")]),
    ("namespaces that are not known judged", "lib process::tests::processes_in_namespaces_that_are_not_known_are_alive",
     [(PROCESS, "self.namespace() == UNKNOWN || ", "")]),
    ("a pid that is used again", "lib process::tests::living_processes_are_not_dead_and_dead_ones_are",
     [(PROCESS, "(self.start() != 0 && start & START != self.start())", "self.start() > START")]),
    ("a zombie taken for alive", "lib process::tests::living_processes_are_not_dead_and_dead_ones_are",
     [(PROCESS, "|| is_left_over(self.pid()),", ",")]),
    ("a forked child that gives back", "processes a_forked_child_reads_and_what_its_parent_held_is_given_back_when_both_are_gone",
     [(REGION, "if self.slot < SLOTS && self.is_own() {", "if self.slot < SLOTS {")]),
    ("a forked child that puts", "processes a_forked_child_reads_and_what_its_parent_held_is_given_back_when_both_are_gone",
     [(WRITE, "        if !self.is_own() {\n", "        if self.own.pid() == 0 {\n")]),
    ("a slot freed before its entries", "lib region::killed::killed_in_giving_back_what_another_one_held",
     [(SPACE, "        let entries = self.take_back(slot);\n",
       "        self.slots().free(slot);\n        let entries = self.take_back(slot);\n")]),
    ("an entry published before it is full", "lib region::killed::killed_in_a_put_into_free_room",
     [(WRITE, "        claimed.write(0, bytes);\n        if claimed.publish(self.boot) {", "        let done = claimed.publish(self.boot);\n        claimed.write(0, bytes);\n        if done {")]),
    ("tokens that are not compared", "verbs a_hash_that_is_shared_is_a_miss_and_never_another_block",
     [(ENTRY, "|| !self.has_tokens(tokens)", "|| (!self.has_tokens(tokens) && tokens.is_empty())")]),
    ("a record whose checksum is not looked at", "hostile an_entry_that_was_being_written_is_not_read_whatever_its_state_says",
     [(ENTRY, "if self.read(SEAL) != self.seal(state, boot) {", "if self.seal(state, boot) == 0 {")]),
    ("cells that lead anywhere", "hostile random_bytes_in_place_of_slots_cells_records_and_tokens_are_survived",
     [(INDEX, "(entry < entries).then_some(entry)", "(entry < usize::MAX - entries).then_some(entry)")]),
    ("a header whose checksum is not looked at", "hostile a_flipped_bit_anywhere_in_the_header_is_refused",
     [(HEADER, "if found != expected {\n        return Err(OpenError::Damaged", "if found == 0 {\n        return Err(OpenError::Damaged")]),
    ("a writer that is not seen to be dead", "processes what_a_killed_process_was_filling_is_given_back",
     [(WRITE, "Err(Miss::BeingWritten) if !self.recover_writers(key)", "Err(Miss::BeingWritten)")]),
    ("a digest that is not compared", "lib digest::label::tests::an_entry_of_the_same_hash_and_another_key_is_a_miss",
     [(LABEL, "|| self.key_words() != *key.words()", "")]),
    ("a checksum that is not compared", "digests a_flipped_bit_of_the_bytes_is_a_miss_and_is_stored_again",
     [(BLOCKS, "        if !is_right {", "        if !is_right && words.is_empty() {")]),
    ("a digest's copy that is not confirmed", "digests threads_that_fight_over_one_entry_see_no_wrong_byte",
     [(BLOCKS, "        if !entry.is_still(state) {\n            return Err(Miss::Overwritten);\n        }\n", "")]),
    ("a namespace that the last one decides", "digests another_namespace_of_a_name_is_refused_with_both_values",
     [(TABLE, "Err(other) if other != identity =>", "Err(other) if other != identity && words.is_empty() =>")]),
    ("a namespace said to be written before it is", "lib digest::killed::killed_in_opening_a_namespace",
     [(TABLE, "            write(words, namespace);\n            // Release: E7.\n            words[WRITTEN].store(identity, Release);\n",
       "            words[WRITTEN].store(identity, Release);\n            write(words, namespace);\n")]),
    ("a free entry that is not looked for", "verbs a_put_finds_a_free_entry_anywhere_before_it_evicts",
     [(SPACE, "self.claim_free(now).or_else(|| self.sweep_from(now, now, self.clock(), None))", "self.sweep_from(now, now, self.clock(), None)")]),
    ("bits that hide free entries after a kill", "lib region::killed::killed_after_setting_the_bit_of_an_entry_that_is_given_back",
     [(SPACE, "        self.show_free();\n", "")]),
    ("a bit that hides an entry that is about to be given back", "lib region::space::tests::a_recovery_clears_the_bit_of_an_entry_that_is_given_back_meanwhile",
     [(SPACE, "look().kind() != Kind::Ready && taken.is_hidden(entry)", "look().kind() == Kind::Free && taken.is_hidden(entry)")]),
    ("a full word that is not looked at again (E9)", "models an_entry_that_is_given_back_while_its_word_fills_is_found",
     [(TAKEN, "        if load(words, bits, at / BITS) != u64::MAX {\n", "        if load(words, bits, at / BITS) == 0 {\n")]),
    ("a signal that ends a reservation of memory", "lib region::files::tests::signals_delay_the_reservation_of_memory_and_do_not_fail_it",
     [(FILES, "Err(Errno::INTR) => part =", "Err(Errno::INTR) if part == 0 => part =")]),
    ("a bit that is cleared and not those above it", "lib taken::tests::what_is_clear_is_found_in_trees_of_any_size",
     [(TAKEN, "        if words.len() > 1 {\n            self.clear_at(level + 1, at / BITS);", "        if words.len() > bits {\n            self.clear_at(level + 1, at / BITS);"),
      (TAKEN, "let (words, _) = self.level(level);", "let (words, bits) = self.level(level);")]),
    ("blocks that are not counted after a kill", "lib digest::killed::killed_in_a_put_into_free_room",
     [(SPACE, "        self.recount();\n", "")]),
    ("a quota that is not compared", "digests a_namespace_and_a_process_keep_their_quota",
     [(CHARGE, "|blocks: i64, quota: u64| quota == 0 || blocks", "|blocks: i64, quota: u64| quota < u64::MAX / 2 || blocks")]),
    ("a charge that is not taken over", "digests threads_that_reach_a_quota_at_once_evict_one_block_for_each_that_they_store",
     [(CHARGE, "!(is_kept && is_same)", "!(is_kept && is_same && self.slot == SLOTS)")]),
    ("a put that does not look at the epoch", "lib digest::killed::counts_are_right_after_a_recovery_beside_a_put_that_is_stopped",
     [(BLOCKS, "        region.moved_since_charged(&entry);\n", "")]),
    ("a put that does not look at the epoch, in the model", "models an_entry_that_is_charged_while_an_epoch_begins_is_counted_once",
     [(BLOCKS, "        region.moved_since_charged(&entry);\n", "")]),
    ("a look at the epoch without the fence (E8)", "models an_entry_that_is_charged_while_an_epoch_begins_is_counted_once",
     [(CHARGE, "        // SeqCst: E8.\n        fence(SeqCst);\n        self.move_charge(entry);\n", "        self.move_charge(entry);\n")]),
    ("a change of an epoch that is over", "lib digest::killed::counts_are_right_after_a_recovery_beside_a_put_that_is_stopped",
     [(COUNT, "            if stamp(seen) != pack(self.of) {\n", "            if !is_same_life(stamp(seen), pack(self.of)) {\n")]),
    ("a count of another process", "lib digest::killed::counts_are_right_after_a_recovery_beside_a_process_that_is_stopped_while_it_opens_the_region",
     [(COUNT, "self.life.map_or(0, |life| life.load(Acquire))", "self.life.map_or(0, |_| 0)")]),
    ("a count of an earlier life with the same low bits", "lib digest::killed::a_slot_that_had_as_many_lives_as_a_count_can_tell_apart_begins_with_no_blocks",
     [(DIGEST, "        region.begin_count();\n", "")]),
    ("blocks of an earlier life with the same low bits", "lib digest::killed::a_slot_that_had_as_many_lives_as_a_count_can_tell_apart_begins_with_no_blocks",
     [(CHARGE, " && self.is_of_life(charge)", "")]),
    ("a block that stays charged when it is evicted", "lib digest::killed::killed_in_a_put_into_free_room",
     [(SPACE, "        self.uncharge(&claimed, kept);\n", "")]),
    ("blocks of the last owner of a slot", "digests blocks_of_a_process_that_closed_the_region_are_nobodys",
     [(CHARGE, "self.life().wrapping_add(1)", "self.life()")]),
    ("plaintext in the region", "sealed+encryption sealed_blocks_are_found_with_their_key_alone_and_nothing_of_them_is_in_the_region",
     [(SEALED, "write(&sealed, &seal)", "write(bytes, &seal)")]),
    ("a block that is encrypted for any key", "sealed+encryption blocks_that_are_swapped_or_changed_are_misses",
     [(SEALED, ".zip(key.words())", ".zip(&[key.words().len() as u64; WORDS])")]),
    ("seals that are not counted", "sealed+encryption a_key_that_may_seal_no_more_stores_nothing",
     [(SEAL, "fetch_add(1, Relaxed) >= MOST_SEALS", "fetch_add(0, Relaxed) >= MOST_SEALS")]),
    ("a nonce that stays", "lib+encryption seal::tests::every_seal_has_another_nonce_and_no_changed_bit_is_opened",
     [(SEAL, "self.0.random.fill(&mut nonce)", "self.0.random.fill(&mut [0; NONCE_LEN])")]),
]


if __name__ == "__main__":
    seeded.main("radixkv-region", BUGS, cap=240)
