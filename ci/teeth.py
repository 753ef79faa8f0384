#!/usr/bin/env python3
"""The seeded bugs, and for each the model that must find it. `--edges` prints what weakens each edge of docs/proofs.md;
`--texts` checks that every text that a bug replaces stands in the sources, once. `--part K/N` runs one of so many parts of them.

A bug is one or more replacements of exact text; where the text is no longer present the run fails, so the table follows
the code. Each is put into a scratch copy (`target/teeth`), and only the model that is named for it runs.
"""

import os
import subprocess
import sys
import time

from scratch import ROOT, Tree
from seeded import strays

# Loads as loads (values that a weak memory returns), or as read-modify-writes (every order of events).
WEAK, EXACT = "weak", "exact"
CAP = 240

WORD, RUN, LEASE, INSERT = "src/tree/word.rs", "src/tree/run.rs", "src/tree/lease.rs", "src/tree/insert.rs"
GROWTH, ARRAYS = "src/tree/growth.rs", "src/tree/arrays.rs"
PUBLICATIONS = "src/cache/line/publications.rs"
QUEUE, MAP, POOL = "src/tree/queue.rs", "src/tree/map.rs", "src/block/pool.rs"
INNER, DEAD_RUNS = "src/cache/inner.rs", "src/cache/evictor/dead_runs.rs"
SILENT = "src/cache/evictor/silent.rs"
KEPT, EVICTED = "src/cache/eviction/kept.rs", "src/cache/eviction/evicted.rs"
EVICTOR, TRIM, SWEEP = "src/cache/evictor/mod.rs", "src/cache/evictor/trim.rs", "src/cache/evictor/sweep.rs"
INSERTING, BELL, STRONG_REF = "src/cache/insert.rs", "src/sync/bell.rs", "src/cache/leases/strong_ref.rs"
SCHEDULER = "crates/radixkv-scheduler/src"
CLAIMS, ADMISSION, ADMIT = f"{SCHEDULER}/claims.rs", f"{SCHEDULER}/admission.rs", f"{SCHEDULER}/admit.rs"
SEQUENCE = f"{SCHEDULER}/sequence.rs"
LIFECYCLE, ABORT = f"{SCHEDULER}/lifecycle.rs", f"{SCHEDULER}/abort.rs"
VERBS = "src/cache/namespaces/namespace/clearing.rs"
NAMESPACE, MARKS, POINT = "src/cache/namespaces/namespace.rs", "src/tree/marks.rs", "src/tree/point.rs"
LISTENERS = "src/cache/evictor/listeners/mod.rs"
INVALIDATION = "src/cache/evictor/listeners/invalidation.rs"
RETENTION, RETAINED = "src/cache/leases/retention.rs", "src/cache/evictor/retained.rs"
HOT, SLOT, DEKKER = "src/tree/hot.rs", "src/tree/word/slot.rs", "src/sync/dekker.rs"
WAIT_LIST, QUOTA = "src/cache/line/wait_list.rs", "src/cache/namespaces/quota/verbs.rs"
RANKING, EXCHANGE = "src/cache/evictor/ranking.rs", "src/cache/evictor/exchange.rs"
IN_LINE, BACKGROUND = "src/cache/line/in_line.rs", "src/cache/eviction/background/work.rs"
POINTS = "src/tree/points.rs"
ARC, IDLE = "src/sync/arc.rs", "src/reclaim/idle.rs"
DEPOT, SLAB = "src/reclaim/memory/depot.rs", "src/reclaim/memory/slab.rs"
# The look at a namespace's root.
BARE = "state.root(resources.guard).is_none_or(|root| root.word.load(Acquire).is_bare_root())"

# (bug, model, loads, [(file, text, replacement)...]), and the edge that it weakens, if it does.
BUGS = [
    # The point word.
    ("lease on a dead word", "point_word::a_lease_against_a_kill", EXACT,
     [(WORD, "if word.is_dead() || word.is_open() || word.is_full() {", "if word.is_open() || word.is_full() {")]),
    ("release Relaxed", "point_word::a_lease_against_a_kill", WEAK,
     [(WORD, "let order = if only_bias_left { AcqRel } else { Release };", "let order = if only_bias_left { Acquire } else { Relaxed };")], "E2"),
    ("kill without Acquire", "point_word::a_lease_against_a_kill", WEAK,
     [(WORD, "Swap(word.dead(), AcqRel, Some(word))", "Swap(word.dead(), Release, Some(word))")], "E2"),
    ("kill by load and store", "point_word::a_lease_against_a_kill", EXACT,
     [(WORD, "            Swap(word.dead(), AcqRel, Some(word))\n",
       "            self.0.store(word.dead().0, Release);\n            Keep(Some(word))\n")]),
    ("remove_child Relaxed", "point_word::a_child_against_a_kill", WEAK,
     [(WORD, "Swap(next, AcqRel, ChildRemoved", "Swap(next, Relaxed, ChildRemoved")], "E2"),
    ("QUEUED set by a second operation", "queue::the_last_release_against_the_kill", EXACT,
     [(WORD, "            let (next, push) = word.changed(word.without_lease(), last);\n", "            let next = word.without_lease();\n"),
      (WORD, "            Swap(next, order, Released { push, is_awaited: only_bias_left && !word.is_silent() })\n        })\n",
       "            let push = last && !word.is_new() && !word.is_silent();\n"
       "            Swap(next, order, Released { push, is_awaited: push })\n        })\n        .then_queued(&self.0)\n"),
      (WORD, "/// The end of a child run.\n",
       "impl Released {\n    fn then_queued(mut self, word: &AtomicU64) -> Self {\n"
       "        self.push = self.push && word.fetch_or(QUEUED, AcqRel) & QUEUED == 0;\n        self\n    }\n}\n\n/// The end of a child run.\n")]),
    ("a change by idle instead of by leases", "together::a_lease_above_a_child", EXACT,
     [(WORD, "(word.leases() == 1, word.has_one_lease());", "(word.leases() == 1 && word.children() == 0, word.has_one_lease());")]),
    ("a lease that is not queued", "queue::a_lease_against_a_drain_and_an_eviction", EXACT,
     [(WORD, "changed(word.with_lease(), word.leases() == 0)", "changed(word.with_lease(), false)")]),
    ("proving without a queued change", "creation_trim::a_new_point_beside_a_drain", EXACT,
     [(WORD, "Swap(word.proven().queued(), Release, true)", "Swap(word.proven(), Release, false)")]),
    ("take_out without Acquire", "retention::a_retention_beside_leases_that_are_told", WEAK,
     [(WORD, "fetch_and(!QUEUED, AcqRel)", "fetch_and(!QUEUED, Release)")], "E3"),
    ("take_out without Release", "queue::two_releases_of_one_point_against_drains", WEAK,
     [(WORD, "fetch_and(!QUEUED, AcqRel)", "fetch_and(!QUEUED, Acquire)")], "E4"),

    # Silent points.
    ("look Relaxed", "point_word::a_silent_release_against_a_look", WEAK,
     [(WORD, "        // Acquire: E27.\n        self.load(Acquire)", "        self.load(Relaxed)")], "E27"),
    ("listen without Acquire", "point_word::a_silent_release_against_listening", WEAK,
     [(WORD, "fetch_and(!SILENT, AcqRel)", "fetch_and(!SILENT, Release)")], "E27"),
    ("listen without Release", "point_word::a_silent_release_against_a_waiter", WEAK,
     [(WORD, "fetch_and(!SILENT, AcqRel)", "fetch_and(!SILENT, Acquire)")], "E28"),
    ("a point that only seems to be listened to", "point_word::silent_leases_against_listening", EXACT,
     [(WORD, "Snapshot(self.0.fetch_and(!SILENT, AcqRel) & !SILENT)", "Snapshot(self.0.fetch_and(!0, AcqRel) & !SILENT)")]),
    ("a waiter that only looks", "waiting::a_lease_released_to_a_waiter", EXACT,
     [(SILENT, "        let word = point.word.listen();\n", "        let word = point.word.look();\n")]),
    ("a release beside a bias that rings for nobody", "waiting::two_leases_released_to_a_waiter", EXACT,
     [(WORD, "is_awaited: only_bias_left &&", "is_awaited: last &&")]),
    ("a release beside a bias without Acquire", "waiting::two_leases_released_to_a_waiter", WEAK,
     [(WORD, "let order = if only_bias_left { AcqRel }", "let order = if last { AcqRel }")], "E28"),
    ("a bias that a silent release has left", "waiting::two_leases_released_to_a_waiter", EXACT,
     [(SILENT, "        if word.slot().is_none()\n", "        if word.leases() < 99\n")]),
    ("a use that ends while the evictor listens", "hot_points::hits_on_stripes_are_counted", EXACT,
     [(SILENT, "                self.place(point, resources);\n                self.visit_again(resources);\n            }\n        }\n    }\n", "            }\n        }\n    }\n")]),
    ("a leased point that becomes silent beside a waiter", "waiting::a_new_run_released_to_a_waiter_beside_a_drain", EXACT,
     [(SILENT, "self.ranking.files_leased() && !resources.is_awaited", "self.ranking.files_leased()")]),
    ("a silent parent that nobody visits", "together::insert_and_the_end_of_its_silent_parent", EXACT,
     [(TRIM, "                self.revisit.push(parent.link());\n            }\n        }\n        let arrays", "                let _ = parent;\n            }\n        }\n        let arrays")]),
    ("a silent end that a clear leaves", "namespaces::a_release_against_a_clear", EXACT,
     [(SWEEP, "        self.listen_to_end(run, resources);\n        if let", "        if let")]),
    ("leases that the accounts never learn of", "together::a_silent_lease_held_beside_a_settling", EXACT,
     [(SILENT, "            self.account_run(run, resources);\n            if run", "            if run")]),

    # Eviction sink.
    ("the end of a sink's count that wakes nobody", "waiting::a_block_that_a_sink_caches_again_released_to_a_waiter", EXACT,
     [(EVICTED, "        self.kept.end(blocks);\n        self.ring();\n", "        self.kept.end(blocks);\n")]),
    ("a waiter that only looks at a sink's count", "waiting::a_count_of_a_sink_that_a_waiter_has_looked_at", EXACT,
     [(KEPT, "self.0.fetch_add(0, Release)", "self.0.load(Relaxed)")], "E29"),
    ("a look at a sink's count without Release", "waiting::a_count_of_a_sink_that_a_waiter_has_looked_at", WEAK,
     [(KEPT, "self.0.fetch_add(0, Release)", "self.0.fetch_add(0, Relaxed)")], "E29"),
    ("the end of a sink's count without Acquire", "waiting::a_count_of_a_sink_that_a_waiter_has_looked_at", WEAK,
     [(KEPT, "self.0.fetch_sub(blocks, Acquire);", "self.0.fetch_sub(blocks, Relaxed);")], "E29"),

    # Creation and trim.
    ("no bump", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(RUN, "RunWord(self.word.fetch_add(BUMP, AcqRel))", "RunWord(self.word.load(Acquire))")]),
    ("bump without Release", "creation_trim::a_new_point_against_a_trim", WEAK,
     [(RUN, "RunWord(self.word.fetch_add(BUMP, AcqRel))", "RunWord(self.word.fetch_add(BUMP, Acquire))")], "E6"),
    ("a trim that looks at known points alone", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(POINTS, "self.placed.load(Relaxed) == known", "self.placed.load(Relaxed) >= known")]),
    ("a run that dies by its known point alone", "creation_trim::a_new_point_against_the_end_of_all", EXACT,
     [(TRIM, "only == Some(point.link()) && run.as_ref().points.are_known(1)", "only == Some(point.link())")]),
    ("run word loaded Relaxed", "creation_trim::a_new_point_against_a_trim", WEAK,
     [(RUN, "RunWord(self.word.load(Acquire))", "RunWord(self.word.load(std::sync::atomic::Ordering::Relaxed))")], "E6"),
    ("failed shorten Relaxed", "creation_trim::a_new_point_against_a_trim", WEAK,
     [(RUN, "seen.with_len(len).0, AcqRel, Acquire)", "seen.with_len(len).0, AcqRel, std::sync::atomic::Ordering::Relaxed)")], "E6"),
    ("version ignored", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(RUN, "match self.word.compare_exchange(seen.0, seen.with_len(len).0, AcqRel, Acquire) {",
       "let seen = self.word();\n        match self.word.compare_exchange(seen.0, seen.with_len(len).0, AcqRel, Acquire) {")]),
    ("no second scan", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(TRIM, "        let end = loop {\n            let end = self.kill_beyond(run, target..len, &mut dead, resources);\n",
       "        let end = self.kill_beyond(run, target..len, &mut dead, resources);\n        let end = loop {\n")]),
    ("NEW trusted without proof", "creation_trim::two_creators_of_one_point_against_the_end_of_all", EXACT,
     [(LEASE, "Attempt::Unproven => return prove(at.run, point, ledger, guard),",
       "Attempt::Unproven => return Ok(HeldLease { point, counted_on: StripeRef::word(0) }),")]),
    ("proof that looks at nothing", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(LEASE, "if (1..=len).contains(&point.depth()) {", "if (1..=len).contains(&point.depth()) || len < u32::MAX {")]),
    ("no point published at the target", "together::two_evictors", EXACT,
     [(TRIM, "        if target > 0 {\n            publish_idle", "        if target > len {\n            publish_idle")]),
    ("scan that ignores a held point", "creation_trim::the_end_against_a_partial_trim", EXACT,
     [(TRIM, "                None => {\n                    end = point.depth();\n                    break;\n                }", "                None => {}")]),
    ("the new last point not ranked", "together::two_evictors", EXACT,
     [(TRIM, "            self.revisit.push(now_last.link());\n", "")]),
    ("the unlink before the length", "creation_trim::a_new_point_against_the_end_of_all", EXACT,
     [(TRIM, "        let mut dead = Dead::default();\n        if target == 0",
       "        let mut dead = Dead::default();\n        if let Some(parent) = run.parent().filter(|_| target == 0) {\n"
       "            parent.as_ref().children.remove(run, resources.guard);\n        }\n        if target == 0")]),

    # Inserting and the death of a run.
    ("child never counted", "insert::a_run_and_its_lease_against_kills", EXACT,
     [(INSERT, "let counted = branch.word.add_child();", "let counted = true;")]),
    ("lease given up before the child is counted", "insert::a_branch_inside_a_block_against_a_trim", EXACT,
     [(INSERT, "            let hung = hang(branch.point, sequence, ledger, guard);\n            _ = release(branch, ledger);\n",
       "            _ = release(branch, ledger);\n            let hung = hang(branch.point, sequence, ledger, guard);\n")]),
    ("dead run taken for live", "death::an_insert_of_what_dies", EXACT,
     [(INSERT, "if there.is_some_and(|run| run.word().len() > 0) {", "if there.is_some() {")]),
    ("the unlink by store", "death::an_insert_of_what_dies", EXACT,
     [(DEAD_RUNS, "                parent.as_ref().children.remove(run, guard);\n",
       "                while let Some(there) = parent.as_ref().children.get(run.first(), guard) {\n"
       "                    parent.as_ref().children.remove(there, guard);\n                }\n")]),
    ("unlinked under a later guard", "death::a_run_and_what_it_hung_on_in_two_turns", EXACT,
     [(INNER, "        drop(unlinking);\n        drop(guard);\n        drop(kept);\n",
       "        std::mem::forget(unlinking);\n        drop(guard);\n        let guard = participant.pin();\n"
       "        drop(dead.unlink_by(&guard, &self.seen));\n        drop(guard);\n        drop(kept);\n")]),
    ("unlinked late although a turn retires its point", "death::a_run_with_a_queued_point_beside_a_list_of_runs", EXACT,
     [(TRIM, "is_named || points.iter().any(|killed| killed.is_queued)", "is_named")]),
    ("unlinked late although a turn retires its arrays", "death::a_run_whose_arrays_a_draft_names_beside_a_list_of_runs", EXACT,
     [(TRIM, "is_named || points.iter().any(|killed| killed.is_queued)", "points.iter().any(|killed| killed.is_queued)")]),
    ("a child taken off at the unlink", "death::a_run_and_what_it_hung_on_in_two_turns", EXACT,
     [(TRIM, "            let removed = parent.word.remove_child();\n            if removed.push {\n                self.backlog.push(parent);\n"
       "            } else if removed.is_silent_end {\n                self.revisit.push(parent.link());\n            }\n", ""),
      (DEAD_RUNS, "                parent.as_ref().children.remove(run, guard);\n",
       "                parent.as_ref().children.remove(run, guard);\n                let _ = parent.word.remove_child();\n")]),
    ("the loser's blocks kept by both", "insert::the_same_sequence_twice", EXACT,
     [(INSERTING, "{ std::mem::take(&mut self.blocks) }", "{ self.blocks.clone() }")]),
    ("the loser's blocks lost", "insert::the_same_sequence_twice", EXACT,
     [(INSERTING, "self.blocks.split_off(duplicates)", "{ std::mem::take(&mut self.blocks).split_off(duplicates) }")]),

    # Growing in place.
    ("a bump before growth without Release", "growth::the_same_append_twice", WEAK,
     [(RUN, "RunWord(self.word.fetch_add(BUMP, AcqRel))", "RunWord(self.word.fetch_add(BUMP, Acquire))")], "E23"),
    ("a failed growth without Acquire", "growth::the_same_append_twice", WEAK,
     [(RUN, "compare_exchange(seen.0, longer, AcqRel, Acquire)", "compare_exchange(seen.0, longer, AcqRel, Relaxed)")], "E23"),
    ("a run that grows beside a child", "growth::the_same_append_twice", EXACT,
     [(GROWTH, "        // Relaxed: E23, by the word.\n        if end.word.load(Relaxed).children() > 0 {", "        if false {")]),
    ("a child hung where the run goes on", "growth::the_same_append_twice", EXACT,
     [(GROWTH, "    if goes_on {\n        discount_child(branch);\n    }\n    !goes_on\n", "    let _ = goes_on;\n    true\n")]),
    ("a child counted without a bump", "growth::the_same_append_twice", EXACT,
     [(GROWTH, "run.bump().len() > depth", "run.word().len() > depth")]),
    ("a trim that goes on after its run grew", "growth::an_append_against_an_eviction", EXACT,
     [(TRIM, "Err(found) if found.len() != len => {", "Err(found) if found.len() < len => {")]),
    ("a child counted after the bump", "growth::the_same_append_twice", EXACT,
     [(GROWTH, "    let counted = branch.word.add_child();\n    debug_assert!(counted, \"child runs overflow their count\");\n", ""),
      (GROWTH, "    !goes_on\n", "    let _ = !goes_on && branch.word.add_child();\n    !goes_on\n"),
      (GROWTH, "        discount_child(branch);\n", "")]),
    ("a child counted twice", "growth::two_appends_that_part", EXACT,
     [(INSERT, "            if !is_counted {", "            if true {")]),
    ("room given twice", "growth::two_appends_that_part", EXACT,
     [(ARRAYS, "growth.claimed.compare_exchange(from, to, Relaxed, Relaxed).is_ok()", "{ growth.claimed.store(to, Relaxed); from < to }")]),
    ("arrays exchanged while a run grows", "growth::an_append_against_an_eviction", EXACT,
     [(TRIM, "let spare = if end < len {", "let spare = if end <= len {")]),
    ("a trim that does not see that its run grew", "growth::an_append_against_an_eviction", EXACT,
     [(TRIM, "        if len != last.depth() {", "        if len < last.depth() {")]),
    ("a run that was shortened grows", "growth::an_append_to_what_was_trimmed", EXACT,
     [(ARRAYS, "growth.claimed.compare_exchange(from, to, Relaxed, Relaxed).is_ok()", "{ growth.claimed.store(to, Relaxed); from < to }")]),

    # The queue.
    ("link read after take_out", "queue::two_points_against_a_drain", EXACT,
     [(QUEUE, "        let next = self.ready.pop(guard)?;\n", "        let next = Ref::from_ptr(self.ready.0, guard)?;\n"),
      (QUEUE, "    /// Names an entry whose turn comes soon",
       "    pub(crate) fn advance(&mut self, point: Ref<'_, Point>) {\n"
       "        if self.ready.0 == point.as_ptr() {\n            self.ready.0 = point.link.get();\n        }\n    }\n\n"
       "    /// Names an entry whose turn comes soon"),
      (EVICTOR, "            self.take_out(point, resources);\n",
       "            self.take_out(point, resources);\n            self.backlog.advance(point);\n")]),
    ("push Relaxed", "together::a_new_run_and_a_point_on_it_against_drains", WEAK,
     [(QUEUE, "compare_exchange_weak(head, point.as_ptr(), AcqRel, Relaxed)",
       "compare_exchange_weak(head, point.as_ptr(), Acquire, Relaxed)")], "E8"),
    ("drain Relaxed", "together::a_new_run_and_a_point_on_it_against_drains", WEAK,
     [(QUEUE, "swap(std::ptr::null_mut(), Acquire)", "swap(std::ptr::null_mut(), Relaxed)")], "E8"),
    ("retired at once although QUEUED", "queue::a_lease_against_a_drain_and_an_eviction", EXACT,
     [(TRIM, "        if !self.is_queued {\n            resources.guard.retire(self.point);\n        }",
       "        resources.guard.retire(self.point);\n        let _ = self.is_queued;")]),
    ("a dead entry not retired", "queue::a_lease_against_a_drain_and_an_eviction", EXACT,
     [(EVICTOR, "            resources.guard.retire(point);\n            return;", "            return;")]),
    ("retired before it is unlinked", "namespaces::the_death_of_runs_against_a_clear_in_turns", EXACT,
     [(TRIM, "own.map(|killed| killed.point)",
       "own.map(|killed| killed.point).inspect(|point| resources.guard.retire(*point)).filter(|_| false)")]),
    ("retired before it is taken out of its run's map", "creation_trim::two_creators_at_two_depths_against_a_trim", EXACT,
     [(TRIM, "    killed.point.run().as_ref().points.remove(killed.point, resources.guard);\n    killed.retire(resources);\n",
       "    let point = killed.point;\n    killed.retire(resources);\n    point.run().as_ref().points.remove(point, resources.guard);\n")]),

    ("a clear that does not keep the runs that it listed", "namespaces::the_death_of_runs_against_a_clear_in_turns", EXACT,
     [(VERBS, ".map(|run| run.link()).collect();\n        for slice", ".map(|run| run.link()).collect();\n        drop(guard);\n        for slice")]),
    ("a clear in turns that leaves the root", "namespaces::a_match_against_a_clear_in_turns", EXACT,
     [(VERBS, "        self.in_turn(|evictor, resources| evictor.finish_sweep(space.get(resources.guard), resources));\n", "")]),

    # The accounts.
    ("registration on the end's entry only", "together::a_new_run_and_a_point_on_it_against_drains", EXACT,
     [(EVICTOR, "        self.register(point.run(), point.depth(), resources);\n",
       "        if point.run().word().len() == point.depth() {\n            self.register(point.run(), point.depth(), resources);\n        }\n")]),
    ("a kill that leaves the accounts for later", "creation_trim::two_creators_at_two_depths_against_a_trim", EXACT,
     [(TRIM, "        self.strike(point, resources);\n", "        self.unfile(point);\n")]),
    ("an end that died in vain stays in the accounts", "creation_trim::a_new_point_against_the_end_of_all", EXACT,
     [(TRIM, "                self.strike(last, resources);\n                dead.add", "                dead.add")]),
    ("statistics of the dead dropped", "together::a_hit_against_the_death_of_its_point", EXACT,
     [(TRIM, "            flow(now_last, dead.flowing, resources);\n", "")]),

    # Arrays.
    ("arrays read beyond their end", "together::shrinking_arrays_against_a_reader", EXACT,
     [(ARRAYS, "len.min(self.shown() as usize)", "len")]),
    ("arrays published Relaxed", "together::shrinking_arrays_against_a_reader", WEAK,
     [(RUN, "length.\n        self.arrays.store(new.as_ptr(), Release)", "length.\n        self.arrays.store(new.as_ptr(), Relaxed)")], "arrays"),
    ("old arrays retired before the swap", "together::shrinking_arrays_against_a_reader", EXACT,
     [(RUN, "        self.arrays.store(new.as_ptr(), Release);\n        Some(old)\n",
       "        guard.retire(new);\n        Some(old)\n")]),

    # The map.
    ("get without Acquire", "map::a_reader_against_shrinking_and_growing", WEAK,
     [(MAP, "            match Occupant::<T>::of(place.slot.load(Acquire), guard) {\n                Occupant::Nothing => return (None, place),",
       "            match Occupant::<T>::of(place.slot.load(std::sync::atomic::Ordering::Relaxed), guard) {\n                Occupant::Nothing => return (None, place),")], "E1"),
    ("a branch published Relaxed", "map::a_reader_against_growing", WEAK,
     [(MAP, "if place.slot.compare_exchange(held, word, Release, Relaxed)", "if place.slot.compare_exchange(held, word, Relaxed, Relaxed)")], "E1"),
    ("change without Release", "map::two_inserts_grow_a_branch", WEAK,
     [(MAP, "let filled = place.slot.compare_exchange(ptr::null_mut(), new, Release, Relaxed)",
       "let filled = place.slot.compare_exchange(ptr::null_mut(), new, Acquire, Relaxed)")], "E1"),
    ("a slot filled in a closed branch", "map::an_insert_against_a_tidying_removal", EXACT,
     [(MAP, "self.count.fetch_add(1, Relaxed) & CLOSED == 0", "self.count.fetch_add(1, Relaxed) != CLOSED + 9")]),
    ("a slot filled by a thread that is not counted", "map::an_insert_against_a_tidying_removal", EXACT,
     [(MAP, "self.count.fetch_add(1, Relaxed) & CLOSED == 0", "self.count.load(Relaxed) & CLOSED == 0")]),
    ("a branch closed that is not empty any more", "map::an_insert_against_a_tidying_removal", EXACT,
     [(MAP, "self.count.compare_exchange(0, CLOSED, Relaxed, Relaxed).is_ok()", "self.count.swap(CLOSED, Relaxed) < CLOSED")]),
    ("a thread that filled no slot stays counted", "map::two_inserts_of_one_key", EXACT,
     [(MAP, "place.within.filter(|_| !filled)", "place.within.filter(|_| !filled && key > 9)")]),
    ("a branch that goes stays counted in the one above", "map::a_branch_below_one_that_is_taken_out", EXACT,
     [(MAP, ".filter(|above| above.dismiss());", ".filter(|above| key > 9 && above.dismiss());")]),
    ("a branch retired by two threads", "map::an_insert_against_a_tidying_removal", EXACT,
     [(MAP, "ptr::null_mut(), Relaxed, Relaxed).ok()?;", "ptr::null_mut(), Relaxed, Relaxed).ok();")]),
    ("an entry replaced that the caller did not name", "map::two_replacements_of_one_entry", EXACT,
     [(MAP, "                    if current != Some(entry) {", "                    if current.is_none() {")]),

    # The pool.
    ("claim Relaxed", "pool::two_returners_against_a_taker_of_one", WEAK,
     [(POOL, "fetch_and(!wanted, Acquire)", "fetch_and(!wanted, Relaxed)")], "E9"),
    ("give_back Relaxed", "pool::two_returners_against_a_taker_of_one", WEAK,
     [(POOL, "fetch_or(bits, Release)", "fetch_or(bits, Relaxed)")], "E9"),
    ("the count by load and store", "pool::two_takers_and_one_block", EXACT,
     [(POOL, "            match self.free.compare_exchange_weak(free, left, Acquire, Relaxed) {\n"
             "                Ok(_) => break,\n                Err(seen) => free = seen,\n            }",
       "            self.free.store(left, Release);\n            free = left;\n            let _ = free;\n            break;")]),
    ("take_these Relaxed", "pool::two_takers_of_one_very_block", WEAK,
     [(POOL, "word.fetch_and(!bit(block), Acquire)", "word.fetch_and(!bit(block), Relaxed)")], "E9"),
    ("take_these that keeps what it got", "pool::two_takers_of_one_very_block", EXACT,
     [(POOL, "                    self.words[block as usize / BITS].fetch_or(bit(block), Relaxed);\n", "                    _ = block;\n")]),
    ("the count lowered Relaxed", "pool::two_returners_against_a_taker_of_one", WEAK,
     [(POOL, "match self.free.compare_exchange_weak(free, left, Acquire, Relaxed) {",
       "match self.free.compare_exchange_weak(free, left, Relaxed, Relaxed) {")], "E10"),
    ("blocks claimed without a look at what was got", "pool::two_takers_in_one_word", EXACT,
     [(POOL, "fetch_and(!wanted, Acquire) & wanted;", "fetch_and(!wanted, Acquire) & wanted | wanted;")]),

    # Namespaces.
    ("the root's permanent child kept", "namespaces::a_release_against_a_clear", EXACT,
     [(SWEEP, "        if root.word.remove_child().push {", "        if false {")]),
    ("ends of a detached space ranked", "namespaces::a_release_against_a_clear", EXACT,
     [(LISTENERS, "        if run.space().is_detached() {\n            return usize::MAX;\n        }\n", "")]),
    ("ends inserted into a dropped space ranked", "namespaces::an_insert_from_a_live_lease_against_a_drop", EXACT,
     [(LISTENERS, "        if run.space().is_detached() {\n            return usize::MAX;\n        }\n", "")]),
    ("a root that stays queued for good", "namespaces::a_match_against_a_clear", EXACT,
     [(SWEEP, "        _ = root.word.take_out();\n", "")]),
    ("the dead root unlinked from its trunk", "namespaces::a_match_against_a_clear", EXACT,
     [(SWEEP, "        if !before.is_queued() {", "        trunk.as_ref().points.remove(root, resources.guard);\n        if !before.is_queued() {")]),
    ("the dead root read Relaxed", "namespaces::an_empty_lease_against_a_clear", WEAK,
     [(LEASE, "                    let _ = point.word.load(Acquire);\n", "")], "E11"),
    ("the root read Relaxed", "namespaces::an_empty_lease_against_a_clear", WEAK,
     [(NAMESPACE, "Ref::from_ptr(self.root.load(Acquire), guard)",
       "Ref::from_ptr(self.root.load(std::sync::atomic::Ordering::Relaxed), guard)")], "root"),
    ("a space detached before its root is swapped", "namespaces::an_insert_that_a_clear_refuses", EXACT,
     [(NAMESPACE, "        let old = Ref::from_ptr(self.root.swap(next, AcqRel), guard)?;\n        let space = old.run().space();\n"
                  "        space.detach();\n",
       "        let space = self.root(guard)?.run().space();\n        space.detach();\n        self.root.swap(next, AcqRel);\n")]),

    # Hot points.
    ("no second look at a hot point's word", "hot_points::a_lease_against_deflation_and_the_kill", EXACT,
     [(HOT, "        if word.still_open(slot, count) {", "        if word.still_open(slot, count) || count.load(Relaxed) > 0 {")]),
    ("the flag without the slot", "hot_points::a_slot_changes_hands", EXACT,
     [(SLOT, "word.is_open() && word.slot() == Some(slot)", "word.is_open() && slot.get() > 0")]),
    ("a slot that names its point Relaxed", "hot_points::a_new_point_is_inflated", WEAK,
     [(HOT, "slot.point.store(point.as_ptr(), Release);", "slot.point.store(point.as_ptr(), Relaxed);")]),
    ("a slot attached where one stands", "hot_points::two_inflate", EXACT,
     [(SLOT, "if !word.is_proven() || word.is_open() || word.slot().is_some() || word.is_full() {",
       "if !word.is_proven() || word.is_full() {"),
      (SLOT, "word.with_lease().with_slot(slot)", "word.without_slot().with_lease().with_slot(slot)")]),
    ("no bias", "hot_points::a_lease_against_deflation_and_the_kill", EXACT,
     [(SLOT, "word.with_lease().with_slot(slot)", "word.with_slot(slot)"),
      (SLOT, "word.without_slot().without_lease()", "word.without_slot()")]),
    ("a slot that its own bias keeps", "hot_points::a_release_in_the_word_against_deflation", EXACT,
     [(HOT, "word.leases() > 1 }", "word.leases() > 0 }")]),
    ("a stripe given back Relaxed", "hot_points::a_block_of_a_hot_point_is_recycled", WEAK,
     [(HOT, "stripe.leases.fetch_sub(1, AcqRel);", "stripe.leases.fetch_sub(1, Acquire);")], "E13"),
    ("counting without the fence", "hot_points::a_lease_against_deflation_and_the_kill", WEAK,
     [(DEKKER, "        count.fetch_add(1, Relaxed);\n        loom::sync::atomic::fence(super::atomic::Ordering::SeqCst);\n",
       "        count.fetch_add(1, Relaxed);\n")], "Dekker"),
    # Either of the two would do for this edge; the second one also for E17.
    ("closing without fence and read-modify-write", "hot_points::a_lease_against_deflation_and_the_kill", WEAK,
     [(DEKKER, "flag, super::atomic::Ordering::Relaxed);\n        loom::sync::atomic::fence(super::atomic::Ordering::SeqCst);\n    }\n    #[cfg(not(radixkv_loom))]\n    flags",
       "flag, super::atomic::Ordering::Relaxed);\n    }\n    #[cfg(not(radixkv_loom))]\n    flags"),
      (DEKKER, "return count.fetch_add(0, super::atomic::Ordering::AcqRel);", "return count.load(super::atomic::Ordering::Acquire);")], "Dekker"),
    ("a slot freed Relaxed", "hot_points::a_slot_is_emptied_before_its_next_point_has_it", WEAK,
     [(HOT, "self.taken.fetch_and(!(1 << (name.get() - 1)), Release);", "self.taken.fetch_and(!(1 << (name.get() - 1)), Relaxed);")], "E14"),
    ("a slot taken Relaxed", "hot_points::a_slot_is_emptied_before_its_next_point_has_it", WEAK,
     [(HOT, "compare_exchange_weak(taken, taken | 1 << free, Acquire, Relaxed)",
       "compare_exchange_weak(taken, taken | 1 << free, Relaxed, Relaxed)")], "E14"),
    ("a slot attached Relaxed", "hot_points::a_slot_is_emptied_before_its_next_point_has_it", WEAK,
     [(SLOT, "Swap(word.with_lease().with_slot(slot), Release, true)", "Swap(word.with_lease().with_slot(slot), Relaxed, true)")], "E12"),
    ("hits left on the stripes", "hot_points::hits_on_stripes_are_counted", EXACT,
     [(HOT, "            stripe.statistics.flow_to(&point.statistics);\n", "            stripe.statistics.flow_to(&Statistics::stamped(0));\n")]),
    ("a clone that only counts", "hot_points::a_clone_against_deflation", EXACT,
     [(LEASE, "    match attempt(point, ledger) {\n        Attempt::Held(held) => Some(held),",
       "    if let Some(slot) = point.word.load(Acquire).slot() {\n        return Some(HeldLease { point, counted_on: ledger.hot.count(slot, ledger.stripe) });\n    }\n"
       "    match attempt(point, ledger) {\n        Attempt::Held(held) => Some(held),"),
      (HOT, "    /// Gives back a lease that counts on a stripe.",
       "    pub(crate) fn count(&self, slot: HotSlotId, stripe: u8) -> StripeRef {\n        let stripe = (usize::from(stripe) + 1) % self.stripes;\n"
       "        self.stripes(slot)[stripe].leases.fetch_add(1, Relaxed);\n        StripeRef::striped(slot, stripe as u8)\n    }\n\n"
       "    /// Gives back a lease that counts on a stripe.")]),

    ("a namespace forgotten while it is leased", "namespaces::resolving_against_forgetting", EXACT,
     [(NAMESPACE, ".is_bare_root()", ".children() == 1")]),
    ("a namespace forgotten before its run is drained", "namespaces::resolving_against_forgetting", EXACT,
     [(NAMESPACE, ".is_bare_root()", ".leases() == 0")]),
    ("a namespace forgotten while it is resolved", "namespaces::resolving_against_forgetting", EXACT,
     [(NAMESPACE, "is_only(state)", "true")]),

    ("a namespace's root looked at before its handles", "namespaces::the_last_handle_against_forgetting", EXACT,
     [(NAMESPACE, "is_only(state)", "ITS ROOT"), (NAMESPACE, BARE, "is_only(state)"), (NAMESPACE, "ITS ROOT", BARE)]),

    # Forks, and participants between two sessions.
    # Either of the two would do: the thread that finds itself alone gives its count up at once.
    ("a fork alone without Acquire, twice", "forks::a_fork_alone_against_another_that_goes", WEAK,
     [(ARC, "if this.counted().handles.load(Acquire) != 1", "if this.counted().handles.load(Relaxed) != 1"),
      (ARC, "if self.counted().handles.fetch_sub(1, AcqRel) == 1 {", "if self.counted().handles.fetch_sub(1, Release) == 1 {"),
      (ARC, "use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};",
       "use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};")]),
    ("a fork let go Relaxed", "forks::two_forks_that_go_against_a_taker", WEAK,
     [(ARC, "if self.counted().handles.fetch_sub(1, AcqRel) == 1 {", "if self.counted().handles.fetch_sub(1, Relaxed) == 1 {")]),
    ("freed slots pushed Relaxed", "memory::two_threads_that_take_and_free", WEAK,
     [(DEPOT, "compare_exchange_weak(head, chain.first, Release, Relaxed)", "compare_exchange_weak(head, chain.first, Relaxed, Relaxed)")],
     "E20"),
    ("freed slots taken over Relaxed", "memory::two_threads_that_take_and_free", WEAK,
     [(DEPOT, "self.returned.swap(std::ptr::null_mut(), Acquire)", "self.returned.swap(std::ptr::null_mut(), Relaxed)")], "E20"),
    ("freed slots taken over by load and store", "memory::the_last_slots_of_a_slab_are_freed_together", EXACT,
     [(DEPOT, "let first = self.returned.swap(std::ptr::null_mut(), Acquire);",
       "let first = self.returned.load(Acquire);\n        self.returned.store(std::ptr::null_mut(), Relaxed);")]),
    ("slots kept together Relaxed", "memory::slots_that_are_freed_together_are_another_threads_next_ones", EXACT,
     [(DEPOT, "compare_exchange(std::ptr::null_mut(), chain.first, Release, Relaxed)",
       "compare_exchange(std::ptr::null_mut(), chain.first, Relaxed, Relaxed)")], "E20"),
    ("slots that were kept together taken Relaxed", "memory::slots_that_are_freed_together_are_another_threads_next_ones", EXACT,
     [(DEPOT, "place.swap(std::ptr::null_mut(), Acquire)", "place.swap(std::ptr::null_mut(), Relaxed)")], "E20"),
    ("slots that were kept together taken by load and store", "memory::slots_that_are_kept_together_are_one_threads", EXACT,
     [(DEPOT, "NonNull::new(place.swap(std::ptr::null_mut(), Acquire))",
       "{\n            let first = place.load(Acquire);\n            place.store(std::ptr::null_mut(), Relaxed);\n            NonNull::new(first)\n        }")]),
    ("a slab that goes back with a slot in use", "memory::a_slot_that_is_freed_against_two_that_are_taken", EXACT,
     [(SLAB, "        header.used == 0\n", "        header.used <= 1\n")]),
    ("an exhausted slab that stays in its list", "memory::a_slot_that_is_freed_against_two_that_are_taken", EXACT,
     [(DEPOT, "            if !slab.header().listed {", "            if slab.header().listed || empty {")]),
    ("a participant left Relaxed", "idle::two_sessions_and_what_a_third_one_left", WEAK,
     [(IDLE, "self.state.store(to, Release);", "self.state.store(to, Relaxed);")]),
    ("a participant taken Relaxed", "idle::two_sessions_and_what_a_third_one_left", WEAK,
     [(IDLE, "compare_exchange(from, BUSY, Acquire, Relaxed)", "compare_exchange(from, BUSY, Relaxed, Relaxed)")]),
    ("a participant taken without a claim", "idle::two_sessions_and_what_a_third_one_left", EXACT,
     [(IDLE, "self.state.load(Relaxed) == from && self.state.compare_exchange(from, BUSY, Acquire, Relaxed).is_ok()",
       "self.state.load(Acquire) == from")]),

    # The bell, and the count that keeps the cache.
    ("a ring that does not unpark", "bell::a_ring_against_a_wait", EXACT,
     [(BELL, "            unpark();\n", "            drop(unpark);\n")]),
    ("an end that a ring takes back", "bell::a_ring_against_the_end", EXACT,
     [(BELL, "self.state.fetch_max(state, Release) < state", "self.state.swap(state, Release) < state")]),
    ("ringing Relaxed", "bell::a_ring_that_is_found", WEAK,
     [(BELL, "self.state.fetch_max(state, Release)", "self.state.fetch_max(state, Relaxed)")]),
    ("a reference given back Relaxed", "strong_ref::two_holders_and_the_session", WEAK,
     [(STRONG_REF, "count.fetch_sub(counts, AcqRel)", "count.fetch_sub(counts, Relaxed)")]),
    ("a session that keeps the counts it has left", "strong_ref::two_holders_and_the_session", EXACT,
     [(STRONG_REF, "give_back(self.shard, self.left.get());", "give_back(self.shard, 1);")]),
    ("a draw that is counted twice", "strong_ref::a_draw_against_holders_that_go", EXACT,
     [(STRONG_REF, "fetch_add(DRAW, Relaxed)", "fetch_add(2 * DRAW, Relaxed)")]),

    # Claims.
    ("the cache not looked at after the grant", "claims::the_owner_commits", EXACT,
     [(ADMIT, "        let hit = look_up();\n", "        let hit = before;\n"),
      (ADMIT, "        sequence.catch_up(&mut self.workspace);\n        self.copy_partial_hit", "        self.copy_partial_hit")]),
    ("a claim committed before it is published", "claims::the_owner_commits", EXACT,
     [(SEQUENCE, "        let filled = self.own.split(whole - known);\n",
       "        self.claim.iter().for_each(|claim| claim.commit(whole * workspace.block_size));\n"
       "        let filled = self.own.split(whole - known);\n")]),
    ("a claim given up without waking", "claims::the_owner_is_aborted", EXACT,
     [(ADMISSION, "        self.admission.wake(|claims| claims.give_up(self.id));",
       "        self.admission.wake(|claims| claims.give_up(self.id).drain(..0).collect());")]),
    ("a claim kept by a request that waits", "claims::the_owner_is_preempted", EXACT,
     [(SEQUENCE, "        workspace.slots.give_back(self.slot);\n",
       "        workspace.slots.give_back(self.slot);\n        std::mem::forget(self.claim);\n")]),
    ("a scheduler dropped with its requests", "claims::the_owners_scheduler_is_dropped", EXACT,
     [(LIFECYCLE, "            } else {\n                self.put_back(last);\n", "            } else {\n                self.remove_at(last);\n")]),
    ("blocks given back before the request has its place", "admission::two_schedulers_and_the_head", EXACT,
     [(LIFECYCLE, "        let _turn = admission.turn();\n        let waiting", "        drop(admission.turn());\n        let waiting")]),
    ("waiters lost that a commit does not reach", "claims::waiters_of_two_depths", EXACT,
     [(CLAIMS, "        let woken = std::mem::replace(&mut pending.waiters, waiters);\n",
       "        drop(waiters);\n        let woken = std::mem::take(&mut pending.waiters);\n")]),
    ("a request that waits although it was aborted", "claims::an_abort_against_waiting", EXACT,
     [(ADMISSION, "        if !state.is_ready(id) {\n            return None;\n        }\n", "")]),

    # Admission.
    ("no turn", "admission::two_schedulers_and_the_head", EXACT,
     [(ADMIT, "        let Some(_turn) = admission.turn() else {\n", "        if admission.turn().is_none() {\n")]),
    ("published although it was aborted", "admission::an_abort_against_a_step", EXACT,
     [(ABORT, "        if state.aborted {\n            return None;\n        }\n", "")]),
    ("an insert that the abort does not wait for", "admission::an_abort_against_a_step", EXACT,
     [(SEQUENCE, "        let filled = self.own.split(whole - known);\n",
       "        drop(publishing);\n        let filled = self.own.split(whole - known);\n"),
      (SEQUENCE, "        drop(publishing);\n        match inserted {", "        match inserted {")]),
    ("a request put back although it was aborted", "admission::an_abort_against_a_preemption", EXACT,
     [(ADMISSION, "        if stays {\n            state.make_ready(waiting);\n        }", "        state.make_ready(waiting);")]),
    ("an aborted request that is not listed", "admission::an_abort_against_a_preemption", EXACT,
     [(LIFECYCLE, "        if !self.admission.put_back(Arc::new(waiting)) {\n            self.unlisted.push(id);\n        }",
       "        let _ = (id, self.admission.put_back(Arc::new(waiting)));")]),
    ("an end that wakes no scheduler", "admission::an_end_against_a_sleeper", EXACT,
     [(ADMISSION, "        let stays = self.state.lock().leave(id);\n        self.changes.announce();\n",
       "        let stays = self.state.lock().leave(id);\n"),
      (LIFECYCLE, "        self.admission.leave_unlisted(&mut self.unlisted);\n        self.admission.changes.announce();\n",
       "        self.admission.leave_unlisted(&mut self.unlisted);\n")]),
    ("an abort that wakes no scheduler", "admission::an_abort_of_the_head_against_a_sleeper", EXACT,
     [(ADMISSION, "        // What waited behind it may be admitted now.\n        self.changes.announce();\n", "")]),

    # Marks and retaining.
    ("a record published in place of another's", "retention::two_mark_one_point", EXACT,
     [(MARKS, "let replaced = self.0.compare_exchange(expected, record.as_ptr(), Release, Relaxed).is_ok();",
       "let replaced = self.0.swap(record.as_ptr(), Release) == expected || expected.is_null() || there.is_some();")]),
    ("a record read Relaxed", "retention::two_mark_one_point", WEAK,
     [(MARKS, "Ref::from_ptr(self.0.load(Acquire), guard)", "Ref::from_ptr(self.0.load(Relaxed), guard)")], "E19"),
    ("a record published Relaxed", "retention::two_mark_one_point", WEAK,
     [(MARKS, "record.as_ptr(), Release, Relaxed)", "record.as_ptr(), Relaxed, Relaxed)")], "E19"),
    ("a mark that forgets what was asked for", "retention::a_mark_against_a_retention_that_is_taken_over", EXACT,
     [(MARKS, "|before, asked| (before.joined(marked), asked)", "|before, _| (before.joined(marked), None)")]),
    ("a retention announced without Release", "retention::a_retention_beside_leases_that_are_told", WEAK,
     [(WORD, "let before = self.0.fetch_or(QUEUED, AcqRel);", "let before = self.0.fetch_or(QUEUED, Acquire);")], "E3"),
    ("a retention announced without Acquire", "retention::a_retention_beside_leases_that_are_told", WEAK,
     [(WORD, "let before = self.0.fetch_or(QUEUED, AcqRel);", "let before = self.0.fetch_or(QUEUED, Release);")], "E4"),
    ("a retention announced and not pushed", "retention::a_retention_against_evicting_everything", EXACT,
     [(RETENTION, "            self.queue.push(point);\n", "            let _ = point;\n")]),
    ("a retention kept in a cleared space", "retention::a_retention_against_a_clear", EXACT,
     [(RETAINED, "let too_many = point.is_cut_off(resources.guard) || self", "let too_many = self")]),
    ("retentions that outlive a clear", "retention::a_retention_against_a_clear", EXACT,
     [(SWEEP, "        self.end_retentions(space, resources);\n", "")]),
    ("marks that do not flow", "retention::a_mark_against_the_trim_of_its_point", EXACT,
     [(POINT, "            self.marks.join(marked, guard);\n", "            let _ = (marked, guard);\n")]),
    ("a retention without a lease", "retention::a_retention_against_evicting_everything", EXACT,
     [(RETENTION, "if !point.word.lease_more() {", "if false {"),
      (RETAINED, "    if point.word.release().push {", "    if point.word.load(Acquire).leases() > 99 && point.word.release().push {"),
      (RETAINED, "use super::{Evictor, Resources};", "use super::{Evictor, Resources};\nuse crate::sync::atomic::Ordering::Acquire;")]),
    ("a second retention's lease kept", "retention::two_retain_one_prefix", EXACT,
     [(RETAINED, "        for _ in u32::from(!too_many)..asked.leases {", "        let _ = too_many;\n        for _ in 1..asked.leases {")]),

    # Waiting.
    ("no ring after a release", "waiting::a_lease_released_to_a_waiter", EXACT,
     [("src/cache/leases/lease.rs", "            self.cache.ring();\n", "")]),
    ("no ring after a return", "waiting::a_reservation_returned_to_a_waiter", EXACT,
     [("src/cache/blocks/reservation.rs", "        self.ring();\n", "")]),
    ("the next one not woken", "waiting::one_return_for_two_waiters", EXACT,
     [(WAIT_LIST, "        drop(left);\n        raise(next);\n", "        drop(left);\n        drop(next);\n")]),
    ("push without Acquire", "waiting::a_lease_released_to_a_waiter", WEAK,
     [(QUEUE, "compare_exchange_weak(head, point.as_ptr(), AcqRel, Relaxed)",
       "compare_exchange_weak(head, point.as_ptr(), std::sync::atomic::Ordering::Release, Relaxed)")], "E15"),
    ("an empty queue only looked at", "waiting::a_lease_released_to_a_waiter", WEAK,
     [(EVICTOR, "resources.queue.drain_for_waiter()", "resources.queue.drain()")], "E15"),
    ("give_back without Acquire", "waiting::a_reservation_returned_to_a_waiter", WEAK,
     [(POOL, "self.free.fetch_add(self.blocks, AcqRel);", "self.free.fetch_add(self.blocks, Release);")], "E16"),
    ("free blocks only looked at", "waiting::a_reservation_returned_to_a_waiter", WEAK,
     [(EVICTOR, "        resources.pool.free_for_waiter();\n", "")], "E16"),
    ("leave without Acquire", "waiting::a_lease_on_a_stripe_released_to_a_waiter", WEAK,
     [(HOT, "stripe.leases.fetch_sub(1, AcqRel);", "stripe.leases.fetch_sub(1, Release);")], "E17"),
    ("too late without Acquire", "waiting::a_use_too_late_for_its_stripe_sees_the_waiter", WEAK,
     [(HOT, "count.fetch_sub(1, Acquire);", "count.fetch_sub(1, Relaxed);")], "E17"),
    ("inflated without touching the slots taken", "waiting::two_leases_released_to_a_waiter", WEAK,
     [(HOT, "            self.taken.fetch_or(0, AcqRel);\n", "")], "E18"),
    ("the place taken after the look", "waiting::a_reservation_returned_to_a_waiter", EXACT,
     [(IN_LINE, "        let is_woken = waiter.as_ref()", "        waiter = Some(request.join());\n        let is_woken = waiter.as_ref()")]),

    ("a task whose waker is kept after its look", "waiting::a_reservation_returned_to_a_task", EXACT,
     [(IN_LINE, "    arm(waiter.signal());\n    match request", "    let done = request.look_in_turn(waiter);\n    arm(waiter.signal());\n    match done"),
      (IN_LINE, "    match done.look_in_turn(waiter) {", "    match done {")]),
    ("a charge that ends after its blocks", "waiting::a_charge_returned_to_a_waiter", EXACT,
     [("src/cache/blocks/reservation.rs", "        self.charge.end();\n", "")]),
    ("those held back not woken", "waiting::a_charge_returned_to_a_waiter", EXACT,
     [(WAIT_LIST, "signals(waiters.firsts_of_lines(None))", "Vec::<Arc<Signal>>::new()")]),
    ("a growth that met a lease and is not woken", "waiting::a_growth_beside_an_acquisition_of_its_namespace", EXACT,
     [(WAIT_LIST, "signals(waiters.firsts_of_lines(Some(place.lines)).filter(is_another))", "Vec::<Arc<Signal>>::new()")]),
    ("a growth behind an admission that is held back", "waiting::a_growth_past_an_admission_of_its_namespace", EXACT,
     [(WAIT_LIST, "let before = self.first_of_line(place).is_some_and(",
       "let admissions = Place { lane: Lane::Admission, ..place };\n            let before = self.first_of_line(admissions).is_some_and(")]),
    ("an admission in vain that stays the first", "waiting::an_overdue_admission_that_does_not_fit_beside_growth", EXACT,
     [(WAIT_LIST, "entry.in_vain = true;", "entry.in_vain = false;")]),
    ("an admission in vain that wakes no growth", "waiting::an_overdue_admission_that_does_not_fit_beside_growth", EXACT,
     [("src/cache/blocks/allocate.rs", "            Err(_) if ask.lane == Lane::Admission => waiter.wake_another(),\n", "")]),
    ("one held back that looks as ever", "waiting::a_charge_returned_to_a_waiter", WEAK,
     [("src/cache/blocks/allocate.rs", "                evictor.settle_for_waiter(resources);\n            }\n            let has",
       "                evictor.settle(resources);\n            }\n            let has")], "E16"),
    ("free blocks looked at without Acquire", "waiting::a_charge_returned_to_a_waiter", WEAK,
     [(POOL, "self.free.fetch_add(0, AcqRel)", "self.free.fetch_add(0, Release)")], "E21"),
    ("an acquisition in vain that wakes no other", "waiting::an_acquisition_in_vain_beside_growth", EXACT,
     [("src/cache/blocks/acquire.rs", "        waiter.wake_another();\n", "")]),
    ("one held back that wakes no other", "waiting::a_waiter_at_its_limit_lets_another_one_pass", EXACT,
     [(WAIT_LIST, "        let next = waiters.first_signal();\n        drop(waiters);\n        raise(next);\n",
       "        drop(waiters);\n")]),
    ("no second look once the evictor waits", "waiting::a_lease_released_to_the_background_evictor", EXACT,
     [(BACKGROUND, "                waits = true;\n                continue;\n", "")]),
    ("an evictor that waits and looks as ever", "waiting::a_lease_released_to_the_background_evictor", WEAK,
     [(BACKGROUND, "                if std::mem::take(&mut waits) {\n", "                if std::mem::take(&mut waits) && false {\n")]),
    ("an evictor that waits and is not called", "waiting::a_lease_released_to_the_background_evictor", EXACT,
     [("src/cache/inner.rs", "        if self.wait_list.evictor_wakes() {\n", "        if false {\n")]),

    # Policies and quotas that change.
    ("filed with the present policy alone", "exchange::a_use_against_an_exchange", EXACT,
     [(RANKING, "        self.exchange.file(slot, standing, entry);\n", "")]),
    ("struck from the present policy alone", "exchange::slots_that_change_hands_against_an_exchange", EXACT,
     [(RANKING, "        self.exchange.remove(slot);\n", "")]),
    ("an exchange concluded at once", "exchange::a_use_against_an_exchange", EXACT,
     [(EXCHANGE, "take_if(|incoming| incoming.moved >= slots)", "take_if(|incoming| incoming.moved <= slots)")]),
    ("a charge that is not counted", "exchange::two_charges_for_one_block", EXACT,
     [("src/cache/namespaces/quota.rs", "        holdings.reserve(blocks);\n", "")]),
    ("a charge that ends when its blocks are cached", "exchange::a_charge_that_is_cached_against_another", EXACT,
     [(INSERTING, "self.charge.spend(left.len(), handed_over);", "self.charge.spend(left.len(), false);")]),
    ("cached blocks that do not take a charge over", "exchange::a_charge_that_is_cached_against_another", EXACT,
     [("src/cache/evictor/listeners/quota.rs", "        if charged > 0 {\n            holdings.unreserve(charged);\n        }\n", "        _ = charged;\n")]),
    ("a refusal that looks twice", "exchange::a_charge_let_go_against_another", EXACT,
     [(QUOTA, "        if requested > limit.saturating_sub(pinned) {\n",
       "        if requested > limit.saturating_sub(pinned) {\n"
       "            let pinned = self.protected() + self.reserved();\n")]),
    ("candidates left outside their group", "exchange::an_insert_against_a_limit", EXACT,
     [("src/cache/evictor/listeners/quota.rs", "        self.listeners.quotas.unsorted = self.listeners.quotas.round;\n", "")]),

    # Invalidated blocks and weak leases.
    ("a run that is hidden and left in its map", "invalidation::a_branch_against_an_invalidation", EXACT,
     [(INVALIDATION, "        parent.as_ref().children.remove(run, resources.guard);\n", "")]),
    ("a severed run that is not listed", "invalidation::an_insert_beyond_what_is_invalidated", EXACT,
     [(INVALIDATION, "        self.listeners.hidden.severed.entry(parent.link()).or_default().insert(run.link());\n", "")]),
    ("a run left where no lookup comes", "invalidation::an_insert_beyond_what_is_invalidated", EXACT,
     [(LISTENERS, "            self.sever_if_beyond(run, resources);\n", "")]),
    ("what is hidden left to be evicted", "invalidation::a_release_against_an_invalidation", EXACT,
     [(EVICTOR, "(true, 1..) if must_go > 0 => {", "(true, 1..) if must_go > usize::MAX - 1 => {")]),
    ("a retention kept of what is hidden", "invalidation::a_retention_against_an_invalidation", EXACT,
     [(RETAINED, "let too_many = point.is_cut_off(resources.guard) || self", "let too_many = point.run().space().is_detached() || self")]),
    ("an anchor that outlives its point", "invalidation::an_upgrade_against_the_death_of_its_point", EXACT,
     [(TRIM, "        point.marks.cast_off(resources.guard);\n", "")]),
    ("an anchor for each weak lease", "invalidation::two_weak_leases_are_made_at_once", EXACT,
     [(MARKS, "there.and_then(|record| record.as_ref().anchor.clone()) {\n                return anchor;",
       "there.and_then(|record| record.as_ref().anchor.clone()).filter(|_| false) {\n                return anchor;")]),

    # Requests that are published.
    ("a request published Relaxed", "publications::two_that_serve_each_other", WEAK,
     [(PUBLICATIONS, "state.store(blocks, Release)", "state.store(blocks, Relaxed)")], "E24"),
    ("a request taken up Relaxed", "publications::two_that_serve_each_other", WEAK,
     [(PUBLICATIONS, "compare_exchange(asked, SERVING, Acquire, Relaxed)", "compare_exchange(asked, SERVING, Relaxed, Relaxed)")], "E24"),
    ("a request served Relaxed", "publications::two_that_serve_each_other", EXACT,
     [(PUBLICATIONS, "self.record.state.store(self.then, Release)", "self.record.state.store(self.then, Relaxed)")], "E25"),
    ("blocks of a request taken Relaxed", "publications::two_that_serve_each_other", EXACT,
     [(PUBLICATIONS, "let seen = state.load(Acquire)", "let seen = state.load(Relaxed)")], "E25"),
    ("a request served that was taken back", "publications::a_request_that_is_dropped_beside_its_server", EXACT,
     [(PUBLICATIONS, "record.state.compare_exchange(asked, SERVING, Acquire, Relaxed).is_ok()",
       "{ record.state.store(SERVING, Relaxed); true }")]),
    ("a request taken back that is served", "publications::a_request_that_is_dropped_beside_its_server", EXACT,
     [(PUBLICATIONS, "state.compare_exchange(asked, TAKEN, Relaxed, Relaxed).is_ok()", "{ state.store(TAKEN, Relaxed); true }")]),

    # What checking found.
    ("a point beyond the end taken for it", "creation_trim::a_new_point_beyond_the_end_against_a_trim", EXACT,
     [(TRIM, "point.depth() > cut.start && point.depth() <= cut.end", "point.depth() > cut.start")]),
    ("a point proved at depth zero", "insert::a_branch_inside_a_block_against_the_death_of_its_child", EXACT,
     [(LEASE, "(1..=len).contains(&point.depth())", "point.depth() <= len")]),
    ("a run left to end inside a block", "insert::a_branch_above_a_new_boundary_against_a_trim", EXACT,
     [(EVICTOR, "(true, _) if in_block || blocks == 0 => {", "(true, _) if blocks == 0 => {")]),
]

# What no bug can weaken, because nothing needs it: EDGE, or EDGE and the side, with the reason why it stays.
MARGINS = {
    "E5": "a lease relies on nothing that the proof orders, because a run is never shorter than a held point and arrays reach as far as any held"
          " point; kept, because one ordering is safer than an argument about every reader of a run",
    "E7": "a thread that finds a dead point after the shorter length leases it by a read-modify-write, which sees the newest"
          " word; kept as E5 is",
    "E3 in `prove`": "the push that follows has E8",
    "E4 in `remove_child`": "the evictor alone takes the last child off a point that nobody holds, and entries out",
    "E22": "a thread that leases a point there comes through the points' map, which has E1; the tokens that a walk compares are plain memory,"
    " which no model follows: ThreadSanitizer does",
    "E26": "a thread's loads of its blocks cannot read what a later holder writes, in a model; a processor may let a load pass a later store",
    "E11 in `kill`": "the thread that detached the space took the root's last child off since, and the release of that goes on",
    "E12 in `still_open`": "in models the fence before it orders as much, elsewhere it is sequentially consistent",
}


def edges():
    """The table of docs/proofs.md: for each edge the bugs that weaken it, or why it is margin."""
    weakened = {}
    for bug, model, _, _, *edge in BUGS:
        for name in edge:
            weakened.setdefault(name, []).append(f"{bug} (`{model.split('::')[0]}`)")
    margins = {}
    for name, reason in MARGINS.items():
        margins.setdefault(name.split()[0], []).append(f"margin{name[len(name.split()[0]):]}: {reason}")
    # E2 before E10, and those without a number last.
    order = sorted(weakened.keys() | margins, key=lambda edge: (not edge[1:].isdigit(), len(edge), edge))
    rows = [f"| {edge} | {'; '.join(weakened.get(edge, []) + margins.get(edge, []))} |" for edge in order]
    return "\n".join(["| edge | weakened so, a model fails (its file); or why it is margin |", "|---|---|", *rows])


def part(number, parts):
    """One of so many parts of the bugs: by their models, so that few are built."""
    models = {}
    for bug in BUGS:
        models.setdefault(bug[1].split("::")[0], []).append(bug)
    # The models with the most bugs are spread over the parts.
    drawn = sorted(models, key=lambda model: (-len(models[model]), model))[number::parts]
    return [bug for bug in BUGS if bug[1].split("::")[0] in drawn]


def main():
    if sys.argv[1:] == ["--edges"]:
        print(edges())
        return
    if sys.argv[1:] == ["--texts"]:
        sys.exit("\n".join(strays([(bug, model, edits) for bug, model, _, edits, *_ in BUGS])) or None)
    if sys.argv[1:2] == ["--part"]:
        number, parts = map(int, sys.argv[2].split("/"))
        chosen = part(number, parts)
    else:
        words = " ".join(sys.argv[1:])
        chosen = [bug for bug in BUGS if words in bug[0] or words in bug[1]][int(os.environ.get("TEETH_FROM", "0")):]
    tree, missed, began = Tree("teeth", level=0), [], time.time()
    files = sorted({bug[1].split("::")[0] for bug in chosen})
    refused = tree.build(files)
    if refused:
        sys.exit(refused)
    print(f"{'bug':<48} {'model':<66} {'loads':<6} {'outcome':<12} {'s':>5}", flush=True)
    for bug, model, loads, edits, *_ in chosen:
        test, name = model.split("::")
        start, outcome = time.time(), None
        for path, old, new in edits:
            text = tree.read(path)
            if text.count(old) != 1:
                outcome = "no such text" if old not in text else "text not unique"
                break
            tree.write(path, text.replace(old, new))
        if outcome is None:
            refused = tree.build([test])
            if refused:
                outcome = "not compiled"
                print(refused)
            else:
                outcome, _, seconds = tree.run(test, name, CAP, RADIXKV_LOADS=loads)
        for path, _, _ in edits:
            tree.restore(path)
        found = outcome == "failed"
        if not found:
            missed.append(bug)
        shown = f"found {seconds:.1f}" if found else outcome.upper()
        print(f"{bug:<48} {model:<66} {loads:<6} {shown:<12} {time.time() - start:>5.1f}", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found in {time.time() - began:.0f} s")
    if missed:
        sys.exit("not found: " + "; ".join(missed))


if __name__ == "__main__":
    main()
