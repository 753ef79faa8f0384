"""What verbs list, as named tuples. `namespace` is the tuple of the parts of a namespace's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from radixkv._radixkv import Reservation


class CachedRun(NamedTuple):
    """A piece of cached sequences: tokens of one insert that follow one another."""

    id: int
    """Its number in this walk, from 0."""
    parent: int | None
    """The run that it follows, or None."""
    start: int
    """Tokens of its sequences before it."""
    tokens: npt.NDArray[np.uint32]
    blocks: npt.NDArray[np.int32]
    leases: int
    last_used: int
    uses: int


class Evicted(NamedTuple):
    """Evicted blocks of one sequence, which stay reserved until `blocks` is released."""

    namespace: tuple[str, ...]
    start: int
    """Tokens of the sequence before those of the blocks."""
    tokens: npt.NDArray[np.uint32]
    """The sequence from its beginning to the end of the blocks."""
    blocks: Reservation
    reason: str
    """"capacity", "quota", "age" or "invalidated"."""


class Stored(NamedTuple):
    """Blocks were cached."""

    namespace: tuple[str, ...]
    parent: int | None
    """The block that they follow, or None."""
    start: int
    """Tokens of the sequence before theirs."""
    tokens: npt.NDArray[np.uint32]
    blocks: npt.NDArray[np.int32]


class Removed(NamedTuple):
    """Cached blocks were removed."""

    namespace: tuple[str, ...]
    start: int
    blocks: npt.NDArray[np.int32]
    reason: str
    """"capacity", "quota", "age" or "invalidated"."""


class Cleared(NamedTuple):
    """A namespace was emptied."""

    namespace: tuple[str, ...]


class EventBatch(NamedTuple):
    """Events in the order in which they took place."""

    number: int
    """Counts up by one; a gap is lost batches."""
    events: list[Stored | Removed | Cleared]
