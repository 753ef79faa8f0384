"""The exceptions of radixkv. Numbers in their messages are also attributes."""


class Error(Exception):
    """The base class of all exceptions of radixkv."""

    def __init__(self, message: str = "", **carried: int | str) -> None:
        super().__init__(message)
        self.__dict__.update(carried)


class InternalError(Error, RuntimeError):
    """A bug of radixkv: please report it."""


class InvariantError(Error, RuntimeError):
    """`PrefixCache.validate` found a broken invariant: a bug of radixkv."""


class ForkError(Error, RuntimeError):
    """The object belongs to the parent process. Build a new cache in the child."""


class ReleasedError(Error, ValueError):
    """The handle was released, or another method has taken its value."""


class ForeignHandleError(Error, ValueError):
    """The handle belongs to another cache."""


class SequenceError(Error, ValueError):
    """Fewer tokens were given than the lease covers. `given` and `needed` are tokens."""

    given: int
    needed: int


class BuildError(Error, ValueError):
    """A cache could not be built. `kind` is one of zero_block_size, zero_capacity,
    capacity_too_large (`capacity`), block_size_too_large (`block_size`), watermarks (`low`, `high`,
    `capacity`), shards (`shards`, `most`), no_thread."""

    kind: str


class SettingError(Error, ValueError):
    """A setting was not changed. `kind` is not_background, or watermarks (`low`, `high`,
    `capacity`)."""

    kind: str


class ReserveError(Error):
    """Blocks were not reserved; nothing was taken."""


class ExhaustedError(ReserveError):
    """Leases and reservations hold too many blocks: retry when some end. `requested` blocks were
    requested, `available` were free or evictable."""

    requested: int
    available: int


class TimedOutError(ReserveError, TimeoutError):
    """The timeout passed before enough blocks became available. `requested` blocks were requested,
    `available` were free or evictable."""

    requested: int
    available: int


class OverQuotaError(ReserveError):
    """The namespace's quota does not allow `requested` more blocks: `pinned` of `limit` are used."""

    requested: int
    pinned: int
    limit: int


class TooLargeError(ReserveError):
    """The cache has fewer blocks (`capacity`) than were `requested`."""

    requested: int
    capacity: int


class ExternalPoolError(ReserveError):
    """The engine owns the blocks. For `adopt` and `take_evicted`: the cache owns the blocks."""


class InsertError(Error):
    """Nothing was inserted, and the reservation is unchanged. `kind` is one of block_count
    (`needed`, `given`), too_long (`tokens`), over_quota (`requested`, `pinned`, `limit`),
    shared_block (`index`), namespace_dropped, invalidated, too_many_branches."""

    kind: str


class AdoptError(Error, ValueError):
    """Blocks were not adopted. `kind` is out_of_range (`block`, `capacity`) or held (`block`)."""

    kind: str
    block: int


class GrowError(Error, ValueError):
    """`requested` blocks cannot be added to `capacity`: the cache was built for at most `limit`."""

    requested: int
    capacity: int
    limit: int


class RetainError(Error):
    """A prefix was not retained. `kind` is one of namespace_dropped, invalidated, too_many_leases."""

    kind: str


class TooManyLeasesError(Error):
    """The prefix has 2**28 leases."""


class NamespaceInUseError(Error):
    """The namespace was not emptied: it has `leased` blocks in leases and `reserved` in
    reservations."""

    leased: int
    reserved: int


class ReplayError(Error, ValueError):
    """A trace could not be read or replayed."""


class RegionError(Error, ValueError):
    """A region, a namespace or a tier was not opened; existing data has not changed. `kind` is
    mismatch (`field`, `stored`, `asked`), version or other_owner (`stored`, `asked`), key_bytes
    (`got`, `least`, `most`), block_bytes (`got`, `most`), text_too_long (`field`, `got`), too_small
    (`got`, `needed`), too_many_namespaces or too_many_processes (`most`), in_use, not_built
    (`feature`), unknown_tier, not_a_region, not_a_store, damaged, layout, namespace, io."""

    kind: str


class TierError(Error, ValueError):
    """A host tier, or a cache over one, was not built; nothing has changed. `kind` is one of
    zero_block_size, zero_capacity, too_many_blocks (`blocks`), too_little_memory (`needed`,
    `given`), no_memory (`bytes`), remote_layout (`field`), layout, nothing_in_flight, no_thread,
    block_sizes or exclusive_in_pieces (`device`, `host`), uneven_bytes (`bytes`, `parts`),
    exclusive_through, external, has_sink."""

    kind: str


class BatchError(Error, ValueError):
    """A batch was refused as a whole. `kind` is key_bytes or out_of_buffer
    (`index`, `got`, `expected`), counts (`keys`, `blocks`), overlap (`index`, `expected`),
    read_only, encrypted, other."""

    kind: str


class FullError(Error):
    """Too many blocks are in flight: `in_flight` of at most `most`; `asked` more were requested.
    Poll, then retry."""

    asked: int
    in_flight: int
    most: int
