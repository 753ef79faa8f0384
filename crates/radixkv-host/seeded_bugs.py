#!/usr/bin/env python3
"""Seeded bugs of the host tier, and the model or test that must find each. `seeded_bugs.py [WORDS]`: only bugs whose name has them.

As `loom_tests/seeded_bugs.py` does for the core: exact text is replaced in a scratch copy
(`target/seeded-host`), and only what is named for the bug runs. `--texts` checks that each text is in
the sources, once.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../loom_tests"))
import seeded

HERE = "crates/radixkv-host/src"
OFFLOAD, SLOTS, OFFLOADING = f"{HERE}/offload.rs", f"{HERE}/slots.rs", f"{HERE}/tiered/offloading.rs"
DEPARTING, ERAS, LIFETIMES, SNAPSHOT = (f"{HERE}/{name}.rs" for name in ("departing", "eras", "lifetimes", "snapshot"))
NAME, FETCHING, HEALTH, PUTTING = (f"{HERE}/remote/{name}.rs" for name in ("name", "fetching", "health", "putting"))
TIERED, MATCHING, SESSION, ONBOARDING = (f"{HERE}/tiered/{name}.rs" for name in ("mod", "matching", "session", "onboarding"))
SINK, HINTS, COPIES = (f"{HERE}/tiered/{name}.rs" for name in ("sink", "hints", "copies"))

# (bug, what finds it, [(file, text, replacement)...]); `models` are loom's, the others are tests.
BUGS = [
    ("device blocks that are free before they are copied", "models the_place_of_a_block_on_its_way_is_wanted",
     [(OFFLOADING, "        let pieces: Vec<Piece<'_>> = evicted.iter().map(Piece::from).collect();\n        self.take_in(&offload, &pieces);\n        count\n",
       "        let copied = |it: &Evicted| (it.namespace.clone(), it.tokens.clone(), it.start, it.blocks.blocks().to_vec());\n"
       "        let copied: Vec<_> = evicted.iter().map(copied).collect();\n        drop(evicted);\n"
       "        let pieces: Vec<Piece<'_>> = copied\n            .iter()\n"
       "            .map(|it| Piece { namespace: &it.0, tokens: &it.1, start: it.2, blocks: &it.3 })\n            .collect();\n"
       "        self.take_in(&offload, &pieces);\n        count\n")]),
    ("an offload that begins after its eviction", "models the_namespace_of_a_block_on_its_way_is_cleared",
     [(OFFLOADING, "        // First, so that no earlier clear concerns the evicted blocks.\n        let offload = self.host.offload();\n", ""),
      (OFFLOADING, "        let pieces: Vec<Piece<'_>> = evicted.iter().map(Piece::from).collect();\n        self.take_in(&offload, &pieces);\n        count\n",
       "        let offload = self.host.offload();\n        let pieces: Vec<Piece<'_>> = evicted.iter().map(Piece::from).collect();\n"
       "        self.take_in(&offload, &pieces);\n        count\n")]),
    ("an arrival that comes in after a clear", "models the_namespace_of_a_block_on_its_way_is_cleared",
     [(OFFLOAD, "        if !state.eras.allows(self.namespace, self.began) {\n            let refused", "        if false {\n            let refused")]),
    ("a copy that failed and is found", "models a_block_that_was_not_copied_is_looked_for",
     [(OFFLOADING, "if !self.is_moved(|mover| mover.offload(&mut copies)) {", "if !self.is_moved(|mover| mover.offload(&mut copies)) && copies.is_empty() {")]),
    ("an arrival that keeps what it reserved", "models a_block_that_was_not_copied_is_looked_for",
     [(OFFLOAD, "        if self.reserved.iter().any(Option::is_some) {", "        if self.reserved.len() > 99 {")]),
    ("a block that is removed while it is read", "models a_block_on_its_way_up_is_cleared_in_the_host",
     [(SLOTS, "        if self.slot(block).pins > 0 {\n            self.slot(block).state = State::Detached;", "        if self.slot(block).pins > 9 {\n            self.slot(block).state = State::Detached;")]),
    ("a clear of everything that leaves remote names as they are", "lib remote::name::tests::a_clear_gives_a_namespace_a_name_that_no_other_tier_has",
     [(NAME, "        self.of_bucket.fill(self.clears);\n", "")]),
    ("a clear of everything that lets in what was on its way", "tiers what_was_on_its_way_when_everything_was_cleared_does_not_come_in",
     [(ERAS, "        self.cleared = self.now;\n", "")]),
    ("a block that leaves although its time is over", "lifetimes what_leaves_the_host_after_its_time_goes_nowhere",
     [(DEPARTING, " && !self.is_expired(block, place) {", " {")]),
    ("a time to live that stands still while a block waits", "lifetimes a_time_to_live_goes_on_while_a_block_waits_to_be_put",
     [(PUTTING, "expires.saturating_duration_since(Instant::now())", "expires.saturating_duration_since(self.due - tiers.timeout)")]),
    ("a namespace that loses the common time to live", "lifetimes a_time_of_one_namespace_changes_no_others",
     [(LIFETIMES, ".copied().unwrap_or(self.common)", ".copied().unwrap_or(None)")]),
    ("a fetched block in the place of one that did not come", "remote a_block_that_is_damaged_ends_what_is_found",
     [(FETCHING, "got.iter_mut().map_while(Option::take).collect()", "got.iter_mut().filter_map(Option::take).collect()"),
      (FETCHING, "None if chosen.is_empty() => return Next::End,", "None if chosen.is_empty() => continue,")]),
    ("a block that is read from the last tier that has it", "remote a_block_goes_to_each_tier_and_comes_from_the_first_that_has_it",
     [(FETCHING, "self.sides.iter().position(", "self.sides.iter().rposition(")]),
    ("a fetch that waits for a tier below", "silent_tiers a_block_is_read_without_the_answer_of_a_tier_below",
     [(FETCHING, "if self.window.sides[tier].left == 0 {", "if self.window.sides.iter().all(|side| side.left == 0) {")]),
    ("a put that waits for every tier", "silent_tiers a_silent_tier_takes_no_hit_and_no_put_of_another",
     [(PUTTING, "if self.sides.iter().any(|side| matches!(side.state, State::Giving { .. })) {", "if self.sides.iter().any(|side| side.left() > 0) {"),
      (PUTTING, "add(left + side.end(blocks));\n", "add(left);\n")]),
    ("a fetch that waits for room in a silent tier", "silent_tiers what_waits_for_room_in_a_silent_tier_goes_on_without_it",
     [(FETCHING, "has_no_room && item >= *arrived && got[item].is_none()", "false")]),
    ("a put that waits for room in a silent tier", "silent_tiers what_waits_for_room_in_a_silent_tier_goes_on_without_it",
     [(PUTTING, "(side.left() > 0 || has_no_room())", "side.left() > 0")]),
    ("a put that waits until all of its blocks have room", "silent_tiers a_put_uses_what_room_there_is",
     [(PUTTING, "if lacks.is_empty() || tiers.room(tier) > 0 =>", "if tiers.room(tier) >= lacks.len().min(tiers.most(tier)) =>")]),
    ("a silent tier that is asked on and on", "silent_tiers a_tier_that_leaves_three_requests_unanswered_is_left_out_and_asked_again",
     [(HEALTH, "        self.left_out_until = Some(now + self.pause);\n", "")]),
    ("ends that are put in place of beginnings", "beginnings of_a_long_prompt_the_beginning_is_put_where_not_all_may_be_on_its_way",
     [(DEPARTING, "blocks.sort_by_key(|&(number, ..)| number);", "blocks.sort_by_key(|&(number, ..)| std::cmp::Reverse(number));")]),
    ("a sequence of which a tier gets what it accepts at once", "beginnings a_tier_that_accepts_few_blocks_at_once_gets_a_sequence_in_parts",
     [(PUTTING, "side.asked += left;", "side.asked = self.blocks.len();")]),
    ("a fetch that fails what a tier has no room for", "beginnings a_tier_that_accepts_few_blocks_at_once_gets_a_sequence_in_parts",
     [(FETCHING, "                Next::Wait if self.ask_rest(id, tiers) => {}\n", "                Next::Wait if self.window.sides.iter().all(|side| side.left == 0) => return { self.end(id, tiers); None },\n")]),
    ("remote tokens that count although their copy failed", "remote a_mover_that_fails_brings_nothing_from_a_remote_tier",
     [(ONBOARDING, "let remote_tokens = remote_tokens.min(copied);", "let remote_tokens = remote_tokens.min(copied + remote_tokens);")]),
    ("a put that goes on after a clear", "remote a_put_is_not_given_when_a_clear_came_while_the_tier_was_asked",
     [(PUTTING, "            if !self.is_current(tiers) {\n", "            if false {\n")]),
    ("what the cache evicts, of the time when the sink is called", "models the_namespace_of_a_block_that_the_cache_has_evicted_is_cleared",
     [(SINK, "self.host.offload_since(batch.mark)", "self.host.offload()")]),
    ("a clear that what is on its way from the cache forgets", "lib eras::tests::what_left_its_cache_before_a_clear_that_is_forgotten_stays_out",
     [(ERAS, "self.cleared.max(self.forgotten)", "self.cleared")]),
    ("a request that does not wait for its copies", "mover_thread a_request_begins_when_what_is_evicted_for_it_was_copied",
     [(SINK, "        if batch.is_needed {\n", "        if batch.is_needed && false {\n")]),
    ("a prefetch that evicts", "tiers a_prefetch_evicts_nothing",
     [(HINTS, "if missing == 0 || self.shared.cache.free_blocks() < missing {", "if missing == 0 {")]),
    ("a demotion that copies what exclusive tiers have once", "tiers a_prompt_that_went_goes_first_and_is_copied_before",
     [(HINTS, "(self.shared.mode == TierMode::Shared).then(", "true.then(")]),
    ("a demotion that is of no clear before its copy", "mover_thread a_demotion_before_a_clear_brings_nothing_after_it",
     [(HINTS, "room.submit(move || shared.copy_cached(&offload, &namespace, &tokens, &cached));",
       "drop(offload);\n        room.submit(move || shared.copy_cached(&shared.host.offload(), &namespace, &tokens, &cached));")]),
    ("a refused request that is a lookup", "refusals no_refused_request_changes_anything",
     [(MATCHING, "self.session.match_prefix_untouched(namespace, tokens);", "self.session.match_prefix(namespace, tokens);")]),
    ("a match that a request of other tokens begins with", "refusals a_match_of_another_sequence_is_refused_before_anything_changes",
     [(MATCHING, "request.tokens.starts_with(&self.tokens[..named]),", "request.tokens.len() >= named,")]),
    ("small jobs that pass a large one", "lib tiered::copies::tests::no_thread_that_comes_later_passes_one_that_waits",
     [(COPIES, "let is_free = state.turn == state.next_ticket && ", "let is_free = ")]),
    ("a mover that waits for itself", "mover_thread a_mover_that_evicts_and_inserts_does_not_wait_for_itself",
     [(OFFLOADING, "self.copies.as_ref().filter(|copies| !copies.is_worker())", "self.copies.as_ref().filter(|copies| copies.is_worker() || true)")]),
    ("a clear of both tiers that leaves the host open", "clears nothing_that_was_computed_before_a_clear_is_found_after_it",
     [(TIERED, "        let _kept_out = self.shared.host.keep_all_out();\n", "        self.shared.host.clear();\n")]),
    ("a snapshot that pins what came after a clear", "clears a_snapshot_pins_nothing_that_came_after_a_clear",
     [(SNAPSHOT, "match self.moment.allows(&state, namespace) {", "match true {")]),
    ("arrivals that are in the way of newer ones", "tiers of_what_leaves_at_once_the_newest_stays_in_a_host_that_is_too_small",
     [(OFFLOADING, "if arrival.lacking_blocks() > 0 && !arriving.is_empty() {", "if arrival.lacking_blocks() > 9999 && !arriving.is_empty() {")]),
    ("a host block that comes in with a part of it missing", "mover_thread a_host_block_whose_first_half_has_left_the_device_stays_out",
     [(OFFLOADING, "            if self.parts(number).any(|part| self.source(sources, &part).is_none()) {", "            if self.parts(number).all(|part| self.source(sources, &part).is_none()) {")]),
]


if __name__ == "__main__":
    seeded.main("radixkv-host", BUGS, cap=600, level=0)
