"""Named tuples for listings and events. `namespace` is the tuple of a namespace's name parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from radixkv._radixkv import Reservation


class CachedRun(NamedTuple):
    """A cached run: consecutive tokens of one insert, a node of the tree."""

    id: int
    """Its number in this walk, from 0."""
    parent: int | None
    """The id of the run before it, or None."""
    start: int
    """The number of tokens before it in its sequences."""
    tokens: npt.NDArray[np.uint32]
    blocks: npt.NDArray[np.int32]
    leases: int
    last_used: int
    uses: int


class Evicted(NamedTuple):
    """Evicted blocks of one sequence, which stay reserved until `blocks` is released."""

    namespace: tuple[str, ...]
    start: int
    """The number of tokens before the blocks in the sequence."""
    tokens: npt.NDArray[np.uint32]
    """The sequence from its beginning to the end of the blocks."""
    blocks: Reservation
    reason: str
    """"capacity", "quota", "age" or "invalidated"."""


class Stored(NamedTuple):
    """Blocks were cached."""

    namespace: tuple[str, ...]
    parent: int | None
    """The block before them in the sequence, or None."""
    start: int
    """The number of tokens before them in the sequence."""
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
    """Events, in the order in which they happened."""

    number: int
    """Consecutive: a gap means lost batches."""
    events: list[Stored | Removed | Cleared]
