//! Models of the concurrent protocols, for loom and shuttle. Each file under `tests` checks one
//! protocol. Its head has the property that must hold, the memory-order edges that it needs
//! (`docs/proofs.md`), and the seeded bugs: `seeded_bugs.py` of this package puts each of them into
//! the code, and a model of the file must then fail.
