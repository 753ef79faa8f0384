#!/usr/bin/env python3
"""Seeded bugs of the host tier, and the model or test that must find each. `teeth.py [WORDS]`: only bugs whose name has them.

As `ci/teeth.py` does for the core: exact text is replaced in a scratch copy (`target/teeth-host`), and only what is named for the
bug runs. `--texts` checks that each text stands in the sources, once.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../ci"))
import seeded

HERE = "crates/radixkv-host/src"
OFFLOAD, SLOTS, OFFLOADING = f"{HERE}/offload.rs", f"{HERE}/slots.rs", f"{HERE}/tiered/offloading.rs"

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
     [(OFFLOADING, "        // First: what is evicted from now on is of no clear that comes before this.\n        let offload = self.host.offload();\n", ""),
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
]


if __name__ == "__main__":
    seeded.main("radixkv-host", BUGS, cap=600, level=0)
