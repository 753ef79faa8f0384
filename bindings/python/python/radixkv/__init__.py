"""radixkv: a concurrent prefix cache for LLM inference engines.

It maps token sequences to the KV blocks that hold their keys and values, so that a prompt that
begins like an earlier one starts from cached KV. `PrefixCache` is where to begin; the README has an
example.
"""

import numpy as _numpy  # noqa: F401  Arrays are made through its C interface.

from radixkv._errors import (
    AdoptError,
    BuildError,
    Error,
    ExhaustedError,
    ExternalPoolError,
    ForeignHandleError,
    ForkError,
    GrowError,
    InsertError,
    InternalError,
    InvariantError,
    NamespaceInUseError,
    OverQuotaError,
    ReleasedError,
    ReplayError,
    ReserveError,
    RetainError,
    SequenceError,
    SettingError,
    TimedOutError,
    TooLargeError,
    TooManyLeasesError,
)
from radixkv._radixkv import (
    Inserted,
    Lease,
    Namespace,
    PartialHit,
    PendingCopy,
    PrefixCache,
    PrefixMatch,
    Reservation,
    Subscription,
    WeakLease,
    replay,
)
from radixkv._records import CachedRun, Cleared, EventBatch, Evicted, Removed, Stored

__all__ = [
    "AdoptError",
    "BuildError",
    "CachedRun",
    "Cleared",
    "Error",
    "EventBatch",
    "Evicted",
    "ExhaustedError",
    "ExternalPoolError",
    "ForeignHandleError",
    "ForkError",
    "GrowError",
    "InsertError",
    "Inserted",
    "InternalError",
    "InvariantError",
    "Lease",
    "Namespace",
    "NamespaceInUseError",
    "OverQuotaError",
    "PartialHit",
    "PendingCopy",
    "PrefixCache",
    "PrefixMatch",
    "ReleasedError",
    "Removed",
    "ReplayError",
    "Reservation",
    "ReserveError",
    "RetainError",
    "SequenceError",
    "SettingError",
    "Stored",
    "Subscription",
    "TimedOutError",
    "TooLargeError",
    "TooManyLeasesError",
    "WeakLease",
    "replay",
]
