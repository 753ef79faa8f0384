#!/usr/bin/env python3
"""The seeded bugs, and for each the model that must find it.

A bug is one or more replacements of exact text; where the text is no longer present the run fails, so the table follows
the code. Each is put into a scratch copy (`target/teeth`), and only the model that is named for it runs.
"""

import os
import sys
import time

from scratch import Tree

# Loads as loads (values that a weak memory returns), or as read-modify-writes (every order of events).
WEAK, EXACT = "weak", "exact"
CAP = 60

WORD, RUN, LEASE, INSERT = "src/tree/word.rs", "src/tree/run.rs", "src/tree/lease.rs", "src/tree/insert.rs"
QUEUE, MAP, POOL = "src/tree/queue.rs", "src/tree/map.rs", "src/block/pool.rs"
EVICTOR, TRIM, SWEEP = "src/cache/evictor/mod.rs", "src/cache/evictor/trim.rs", "src/cache/evictor/sweep.rs"
SESSION = "src/cache/session.rs"

# (bug, model, loads, [(file, text, replacement)...])
BUGS = [
    # The point word.
    ("lease on a dead word", "point_word::a_lease_against_a_kill", EXACT,
     [(WORD, "            if word & DEAD != 0 {\n                return Leased::Dead;\n            }\n", "")]),
    ("release Relaxed", "point_word::a_lease_against_a_kill", WEAK,
     [(WORD, "let order = if last { AcqRel } else { Release };", "let order = if last { Acquire } else { Relaxed };")]),
    ("kill without Acquire", "point_word::a_lease_against_a_kill", WEAK,
     [(WORD, "compare_exchange_weak(word, word | DEAD, AcqRel, Relaxed)",
       "compare_exchange_weak(word, word | DEAD, Release, Relaxed)")]),
    ("kill by load and store", "point_word::a_lease_against_a_kill", EXACT,
     [(WORD, "            match self.0.compare_exchange_weak(word, word | DEAD, AcqRel, Relaxed) {\n"
             "                Ok(_) => return Some(Seen(word)),\n                Err(seen) => word = seen,\n            }",
       "            self.0.store(word | DEAD, AcqRelease);\n            return Some(Seen(word));".replace("AcqRelease", "Release"))]),
    ("remove_child Relaxed", "point_word::a_child_against_a_kill", WEAK,
     [(WORD, "compare_exchange_weak(word, next, AcqRel, Relaxed) {\n                Ok(_) => return push,",
       "compare_exchange_weak(word, next, Relaxed, Relaxed) {\n                Ok(_) => return push,")]),
    ("QUEUED set by a second operation", "queue::the_last_release_against_the_kill", EXACT,
     [(WORD, "            let (next, push) = Seen(word).stepped(word - LEASE, last);\n", "            let next = word - LEASE;\n"),
      (WORD, "            match self.0.compare_exchange_weak(word, next, order, Relaxed) {\n                Ok(_) => return push,",
       "            match self.0.compare_exchange_weak(word, next, order, Relaxed) {\n"
       "                Ok(_) if last && word & NEW == 0 => return self.0.fetch_or(QUEUED, AcqRel) & QUEUED == 0,\n"
       "                Ok(_) => return false,")]),
    ("a step by idle instead of by leases", "together::a_lease_above_a_child", EXACT,
     [(WORD, "let last = word & LEASES == LEASE;", "let last = word & (LEASES | CHILDREN) == LEASE;")]),
    ("a lease that is no step", "queue::a_lease_against_a_drain_and_an_eviction", EXACT,
     [(WORD, "stepped(word + LEASE, word & LEASES == 0)", "stepped(word + LEASE, false)")]),
    ("proving without a step", "creation_trim::a_new_point_at_the_target", EXACT,
     [(WORD, "            let next = (word & !NEW) | QUEUED;\n", "            let next = word & !NEW;\n"),
      (WORD, "match self.0.compare_exchange_weak(word, next, Release, Relaxed) {\n                Ok(_) => return true,\n"
             "                Err(seen) => word = seen,\n            }\n        }\n        false\n    }\n\n"
             "    /// Gives back a lease on a point that lies",
       "match self.0.compare_exchange_weak(word, next, Release, Relaxed) {\n                Ok(_) => return false,\n"
       "                Err(seen) => word = seen,\n            }\n        }\n        false\n    }\n\n"
       "    /// Gives back a lease on a point that lies")]),
    ("take_out without Acquire", "together::a_hit_against_a_drain", WEAK,
     [(WORD, "fetch_and(!QUEUED, AcqRel)", "fetch_and(!QUEUED, Release)")]),
    ("take_out without Release", "queue::two_releases_of_one_point_against_drains", WEAK,
     [(WORD, "fetch_and(!QUEUED, AcqRel)", "fetch_and(!QUEUED, Acquire)")]),

    # Creation and trim.
    ("no bump", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(RUN, "RunWord(self.word.fetch_add(BUMP, AcqRel))", "RunWord(self.word.load(Acquire))")]),
    ("bump without Release", "creation_trim::a_new_point_against_a_trim", WEAK,
     [(RUN, "RunWord(self.word.fetch_add(BUMP, AcqRel))", "RunWord(self.word.fetch_add(BUMP, Acquire))")]),
    ("run word loaded Relaxed", "creation_trim::a_new_point_against_a_trim", WEAK,
     [(RUN, "RunWord(self.word.load(Acquire))", "RunWord(self.word.load(std::sync::atomic::Ordering::Relaxed))")]),
    ("failed shorten Relaxed", "creation_trim::a_new_point_against_a_trim", WEAK,
     [(RUN, "seen.with_len(len).0, AcqRel, Acquire)", "seen.with_len(len).0, AcqRel, std::sync::atomic::Ordering::Relaxed)")]),
    ("version ignored", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(RUN, "match self.word.compare_exchange(seen.0, seen.with_len(len).0, AcqRel, Acquire) {",
       "let seen = self.word();\n        match self.word.compare_exchange(seen.0, seen.with_len(len).0, AcqRel, Acquire) {")]),
    ("no second scan", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(TRIM, "        let end = loop {\n            let end = self.kill_beyond(run, target..len, &mut flowing, works);\n",
       "        let end = self.kill_beyond(run, target..len, &mut flowing, works);\n        let end = loop {\n")]),
    ("NEW trusted without proof", "creation_trim::two_creators_of_one_point_against_the_end_of_all", EXACT,
     [(LEASE, "Leased::Unproven => return prove(at.run, point, queue, guard),", "Leased::Unproven => return Ok(point),")]),
    ("proof that looks at nothing", "creation_trim::a_new_point_against_a_trim", EXACT,
     [(LEASE, "if (1..=len).contains(&point.depth()) {", "if (1..=len).contains(&point.depth()) || len < u32::MAX {")]),
    ("no point published at the target", "together::two_evictors", EXACT,
     [(TRIM, "        if target > 0 {\n            publish_idle", "        if target > len {\n            publish_idle")]),
    ("scan that ignores a held point", "creation_trim::the_end_against_a_partial_trim", EXACT,
     [(TRIM, "                None => return point.depth(),", "                None => {}")]),
    ("the new last point not ranked", "together::two_evictors", EXACT,
     [(TRIM, "            self.revisit.push(now_last.link());\n", "")]),
    ("the unlink before the length", "creation_trim::a_new_point_against_the_end_of_all", EXACT,
     [(TRIM, "        let mut flowing = Tally::NONE;\n",
       "        let mut flowing = Tally::NONE;\n        if let Some(parent) = run.parent().filter(|_| target == 0) {\n"
       "            parent.as_ref().children.remove(run, works.guard);\n        }\n")]),

    # Inserting and the death of a run.
    ("child never counted", "insert::a_run_and_its_lease_against_kills", EXACT,
     [(INSERT, "let counted = branch.word.add_child();", "let counted = true;")]),
    ("lease given up before the child is counted", "insert::a_branch_inside_a_block_against_a_trim", EXACT,
     [(INSERT, "            let hung = hang(branch, sequence, queue, guard);\n            release(branch, queue);\n",
       "            release(branch, queue);\n            let hung = hang(branch, sequence, queue, guard);\n")]),
    ("dead run taken for live", "death::an_insert_of_the_same_first_token", EXACT,
     [(INSERT, "if there.is_some_and(|run| run.word().len() > 0) {", "if there.is_some() {")]),
    ("the unlink by store", "death::an_insert_of_the_same_first_token", EXACT,
     [(TRIM, "            parent.as_ref().children.remove(run, works.guard);\n",
       "            while let Some(there) = parent.as_ref().children.get(run.first(), works.guard) {\n"
       "                parent.as_ref().children.remove(there, works.guard);\n            }\n")]),
    ("the loser's blocks kept by both", "insert::the_same_sequence_twice", EXACT,
     [(SESSION, "        reservation.blocks.truncate(published.duplicates);\n", "")]),
    ("the loser's blocks lost", "insert::the_same_sequence_twice", EXACT,
     [(SESSION, "        reservation.blocks.truncate(published.duplicates);\n", "        reservation.blocks.truncate(0);\n")]),

    # The queue.
    ("link read after take_out", "queue::two_points_against_a_drain", EXACT,
     [(QUEUE, "        self.0 = point.link.get();\n        Some(point)\n    }",
       "        Some(point)\n    }\n\n    pub(crate) fn advance(&mut self, point: Ref<'_, Point>) {\n"
       "        self.0 = point.link.get();\n    }"),
      (EVICTOR, "                self.take_out(point, works);\n",
       "                self.take_out(point, works);\n                self.chain.advance(point);\n")]),
    ("push Relaxed", "together::a_new_run_and_a_point_on_it_against_drains", WEAK,
     [(QUEUE, "compare_exchange_weak(head, point.as_ptr(), Release, Relaxed)",
       "compare_exchange_weak(head, point.as_ptr(), Relaxed, Relaxed)")]),
    ("drain Relaxed", "together::a_new_run_and_a_point_on_it_against_drains", WEAK,
     [(QUEUE, "swap(std::ptr::null_mut(), Acquire)", "swap(std::ptr::null_mut(), Relaxed)")]),
    ("retired at once although QUEUED", "queue::a_lease_against_a_drain_and_an_eviction", EXACT,
     [(TRIM, "        if !before.is_queued() {\n            works.guard.retire(point);\n        }", "        works.guard.retire(point);\n        let _ = before;")]),
    ("a dead entry not retired", "queue::a_lease_against_a_drain_and_an_eviction", EXACT,
     [(EVICTOR, "            works.guard.retire(point);\n            return;", "            return;")]),
    ("retired before it is unlinked", "queue::a_lease_against_a_drain_and_an_eviction", EXACT,
     [(TRIM, "        // If this fails somebody has put a live point in its place.\n",
       "        if !before.is_queued() {\n            works.guard.retire(point);\n        }\n"),
      (TRIM, "        self.strike(point, works);\n        if !before.is_queued() {\n            works.guard.retire(point);\n        }\n",
       "        self.strike(point, works);\n")]),

    # The accounts.
    ("registration on the end's entry only", "together::a_new_run_and_a_point_on_it_against_drains", EXACT,
     [(EVICTOR, "        self.register(point.run(), works);\n",
       "        if point.run().word().len() == point.depth() {\n            self.register(point.run(), works);\n        }\n")]),
    ("a kill that leaves the accounts for later", "creation_trim::two_creators_at_two_depths_against_a_trim", EXACT,
     [(TRIM, "        self.strike(point, works);\n", "        self.unfile(point);\n")]),
    ("statistics of the dead dropped", "together::a_hit_against_the_death_of_its_point", EXACT,
     [(TRIM, "            now_last.statistics.take_in(flowing);\n", "")]),

    # Arrays.
    ("arrays read beyond their end", "together::shrinking_arrays_against_a_reader", EXACT,
     [(RUN, "&tokens[..len.min(tokens.len())]", "&tokens[..len]")]),
    ("arrays published Relaxed", "together::shrinking_arrays_against_a_reader", WEAK,
     [(RUN, "length.\n        self.arrays.swap(new.as_ptr(), AcqRel)", "length.\n        self.arrays.swap(new.as_ptr(), Acquire)")]),
    ("old arrays retired before the swap", "together::shrinking_arrays_against_a_reader", EXACT,
     [(RUN, "        self.arrays.swap(new.as_ptr(), AcqRel);\n        guard.retire(old);\n",
       "        guard.retire(old);\n        guard.retire(new);\n")]),

    # The map.
    ("get without Acquire", "map::a_reader_against_shrinking_and_growing", WEAK,
     [(MAP, "            match Held::<T>::of(slot.load(Acquire), guard) {\n                Held::Nothing => return None,",
       "            match Held::<T>::of(slot.load(std::sync::atomic::Ordering::Relaxed), guard) {\n                Held::Nothing => return None,")]),
    ("change without Release", "map::two_inserts_grow_a_branch", WEAK,
     [(MAP, "if slot.compare_exchange(word, replacement, Release, Relaxed).is_ok() {",
       "if slot.compare_exchange(word, replacement, Acquire, Relaxed).is_ok() {")]),
    ("a frozen slot taken for an open one", "map::an_insert_against_a_tidying_removal", EXACT,
     [(MAP, "            if is_frozen(word) {\n                self.thaw", "            if is_frozen(word) && false {\n                self.thaw")]),
    ("a branch replaced unfrozen", "map::an_insert_against_a_tidying_removal", EXACT,
     [(MAP, "let frozen = word.map_addr(|address| address | FROZEN);", "let frozen = word;")]),
    ("the branch retired although the swap failed", "map::two_removals_of_two_keys", EXACT,
     [(MAP, "            guard.retire(branch);\n        }", "        }\n        guard.retire(branch);")]),
    ("an entry replaced that nobody named", "map::a_replacement_against_a_removal", EXACT,
     [(MAP, "                    if current != Some(entry) {", "                    if current.is_none() {")]),

    # The pool.
    ("claim Relaxed", "pool::two_returners_against_a_taker_of_one", WEAK,
     [(POOL, "fetch_and(!wanted, Acquire)", "fetch_and(!wanted, Relaxed)")]),
    ("give_back Relaxed", "pool::two_returners_against_a_taker_of_one", WEAK,
     [(POOL, "fetch_or(bits, Release)", "fetch_or(bits, Relaxed)")]),
    ("the count by load and store", "pool::two_takers_and_one_block", EXACT,
     [(POOL, "            match self.free.compare_exchange_weak(free, left, Acquire, Relaxed) {\n"
             "                Ok(_) => break,\n                Err(seen) => free = seen,\n            }",
       "            self.free.store(left, Release);\n            free = left;\n            let _ = free;\n            break;")]),
    ("blocks claimed without a look at what was got", "pool::two_takers_in_one_word", EXACT,
     [(POOL, "fetch_and(!wanted, Acquire) & wanted;", "fetch_and(!wanted, Acquire) & wanted | wanted;")]),

    # Namespaces.
    ("the root's permanent child kept", "namespaces::a_release_against_a_clear", EXACT,
     [(SWEEP, "        if root.word.remove_child() {", "        if false {")]),
    ("ends of a detached space ranked", "namespaces::a_release_against_a_clear", EXACT,
     [(EVICTOR, "(true, _) if run.space().is_detached() => {", "(true, usize::MAX) => {")]),
    ("the dead root unlinked from its trunk", "namespaces::a_match_against_a_clear", EXACT,
     [(SWEEP, "        if !before.is_queued() {", "        trunk.as_ref().points.remove(root, works.guard);\n        if !before.is_queued() {")]),
    ("the dead root read Relaxed", "namespaces::an_empty_lease_against_a_clear", WEAK,
     [(LEASE, "                    let _ = point.word.load(Acquire);\n", "")]),
    ("the root read Relaxed", "namespaces::an_empty_lease_against_a_clear", WEAK,
     [("src/cache/namespace.rs", "Ref::from_ptr(self.root.load(Acquire), guard)",
       "Ref::from_ptr(self.root.load(std::sync::atomic::Ordering::Relaxed), guard)")]),
    # What checking found.
    ("a point beyond the end taken for it", "creation_trim::a_new_point_beyond_the_end_against_a_trim", EXACT,
     [(TRIM, "point.depth() > cut.start && point.depth() <= cut.end", "point.depth() > cut.start")]),
    ("a point proved at depth zero", "insert::a_branch_inside_a_block_against_the_death_of_its_child", EXACT,
     [(LEASE, "(1..=len).contains(&point.depth())", "point.depth() <= len")]),
]


def main():
    words = " ".join(sys.argv[1:])
    chosen = [bug for bug in BUGS if words in bug[0] or words in bug[1]][int(os.environ.get("TEETH_FROM", "0")):]
    tree, missed, began = Tree("teeth"), [], time.time()
    files = sorted({bug[1].split("::")[0] for bug in chosen})
    refused = tree.build(files)
    if refused:
        sys.exit(refused)
    print(f"{'bug':<48} {'model':<66} {'loads':<6} {'outcome':<12} {'s':>5}", flush=True)
    for bug, model, loads, edits in chosen:
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
