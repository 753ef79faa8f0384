//! Models of the protocols; each file under `tests` is one protocol.
