"""A forked child: every verb on a handle of the parent raises ForkError."""

import asyncio
import hashlib
import os
import signal

import numpy as np
import pytest

import radixkv
from radixkv import _radixkv

PROMPT = np.arange(16, dtype=np.int32)
KEYS = [hashlib.sha256(bytes([number])).digest() for number in range(2)]
FACTS = {"key_bytes": 32, "block_bytes": 4096, "model": "a model", "dtype": "bf16", "hash_scheme": "sha256"}
NO_ERROR = (None, None, None)


class World:
    """A handle of every class, each of which can carry out every verb of `VERBS`."""

    def __init__(self):
        self.cache = radixkv.PrefixCache(4, 64, growable_to=128)
        self.space = self.cache.namespace("tenant")
        self.hit, self.blocks = self.cache.acquire(PROMPT)
        self.inserted = self.cache.insert(self.hit, PROMPT, self.blocks.split(4))
        self.blocks.append(self.cache.reserve(2))
        self.weak = self.inserted.downgrade()
        self.lease = self.inserted.clone()
        other = np.array([0, 1, 2, 3, 4, 9, 9, 9], dtype=np.int32)
        self.first = self.cache.match_prefix(other)
        self.partial = self.cache.match_partial(self.first, other)
        self.fork, self.fresh = self.blocks.fork(), self.cache.reserve(1)
        self.pending = self.fork.make_unique(0, self.cache.reserve(1))
        self.events = self.cache.subscribe(4)
        self.watched = radixkv.PrefixCache(4, 64, eviction=(4, 8))
        self.clocked = radixkv.PrefixCache(4, 64, clock="logical")
        self.pool = radixkv.PrefixCache(4, 64, external=True)
        self.adopted = self.pool.adopt([0, 1])
        self.device = np.zeros((64, 64), dtype=np.uint8)
        self.host = radixkv.HostTier(4, 64, block_bytes=64)
        self.below = radixkv.PrefixCache(4, 64)
        self.tiers = radixkv.TieredCache(self.below, self.host, self.device)
        self.start = self.tiers.acquire(PROMPT)
        self.region = radixkv.DigestRegion(None, 4096, 1 << 20)
        self.store = radixkv.DigestStore(self.region, "tests", **FACTS)
        self.memory = np.zeros((2, 4096), dtype=np.uint8)
        self.addresses = [self.memory.ctypes.data, self.memory.ctypes.data + 4096]
        self.batch = self.store.lookup(KEYS)
        self.rooms, self.sources = self.store.reserve(KEYS), self.store.locate(KEYS)
        self.queue = _radixkv.WakeQueue()
        self.coroutine = self.cache.reserve_async(1)
        self.waiting = self.coroutine.cr_frame.f_locals["request"]
        self.out, self.wide = np.zeros(64, dtype=np.int32), np.zeros(64, dtype=np.int64)

    def end(self):
        self.coroutine.close()
        self.rooms.release()
        self.store.close()


LEASE = {
    "release": lambda w, h: h.release(),
    "clone": lambda w, h: h.clone(),
    "downgrade": lambda w, h: h.downgrade(),
    "is_invalidated": lambda w, h: h.is_invalidated(),
    "__exit__": lambda w, h: h.__exit__(*NO_ERROR),
}
RELEASE = {"release": lambda w, h: h.release(), "__exit__": lambda w, h: h.__exit__(*NO_ERROR)}
CLOSE = {"close": lambda w, h: h.close(), "__exit__": lambda w, h: h.__exit__(*NO_ERROR)}
IDS = {
    "blocks": lambda w, h: h.blocks(),
    "slots": lambda w, h: h.slots(),
    "blocks_into": lambda w, h: h.blocks_into(w.out),
    "slots_into": lambda w, h: h.slots_into(w.wide),
}
# For each class: where a world has a handle of it, and a call of each verb.
VERBS = {
    "PrefixCache": ("cache", {
        "namespace": lambda w, h: h.namespace("new"),
        "match_prefix": lambda w, h: h.match_prefix(PROMPT),
        "peek": lambda w, h: h.peek(PROMPT),
        "acquire": lambda w, h: h.acquire(PROMPT),
        "acquire_async": lambda w, h: h.acquire_async(PROMPT).close(),
        "insert": lambda w, h: h.insert(w.inserted, PROMPT, h.reserve(0)),
        "resume": lambda w, h: h.resume(w.lease, PROMPT),
        "match_partial": lambda w, h: h.match_partial(w.lease, PROMPT),
        "upgrade": lambda w, h: h.upgrade(w.weak),
        "reserve": lambda w, h: h.reserve(1),
        "reserve_async": lambda w, h: h.reserve_async(1).close(),
        "evict": lambda w, h: h.evict(1),
        "evict_into": lambda w, h: h.evict_into(1),
        "adopt": lambda w, h: w.pool.adopt([5]),
        "take_evicted": lambda w, h: w.pool.take_evicted(),
        "grow": lambda w, h: h.grow(1),
        "clear": lambda w, h: h.clear(),
        "invalidate_blocks": lambda w, h: h.invalidate_blocks([60]),
        "set_policy": lambda w, h: h.set_policy("lfu"),
        "set_watermarks": lambda w, h: w.watched.set_watermarks(2, 4),
        "set_time_to_idle": lambda w, h: h.set_time_to_idle(1.0),
        "set_time": lambda w, h: w.clocked.set_time(1),
        "run_once": lambda w, h: h.run_once(),
        "settle": lambda w, h: h.settle(),
        "renew": lambda w, h: h.renew(w.lease),
        "count_use": lambda w, h: h.count_use(w.lease),
        "prioritize": lambda w, h: h.prioritize(w.lease, 1),
        "retain": lambda w, h: h.retain(w.lease, 1.0),
        "release_retained": lambda w, h: h.release_retained(w.lease),
        "demote": lambda w, h: h.demote(w.lease),
        "stats": lambda w, h: h.stats(),
        "block_counts": lambda w, h: h.block_counts(),
        "lookups_by_namespace": lambda w, h: h.lookups_by_namespace(),
        "subscribe": lambda w, h: h.subscribe(4),
        "snapshot": lambda w, h: h.snapshot(),
        "shared_spans": lambda w, h: h.shared_spans([w.lease]),
        "validate": lambda w, h: h.validate(),
    }),
    "Namespace": ("space", {
        "set_quota": lambda w, h: h.set_quota(cached_blocks=8),
        "stats": lambda w, h: h.stats(),
        "walk": lambda w, h: h.walk(),
        "clear": lambda w, h: h.clear(),
        "clear_if_unused": lambda w, h: h.clear_if_unused(),
        "remove": lambda w, h: h.remove(),
        "evict": lambda w, h: h.evict(1),
        "evict_idle": lambda w, h: h.evict_idle(1.0),
        "__eq__": lambda w, h: h == w.space,
        "__ne__": lambda w, h: h != w.space,
        "__hash__": lambda w, h: hash(h),
    }),
    "Lease": ("lease", LEASE),
    "PrefixMatch": ("hit", {**LEASE, **IDS}),
    "Inserted": ("inserted", {
        **LEASE,
        "blocks": IDS["blocks"],
        "take_duplicates": lambda w, h: h.take_duplicates(),
    }),
    "WeakLease": ("weak", {}),
    "PartialHit": ("partial", RELEASE),
    "Reservation": ("blocks", {
        **RELEASE,
        **IDS,
        "__len__": lambda w, h: len(h),
        "split": lambda w, h: h.split(1),
        "append": lambda w, h: h.append(w.fresh),
        "fork": lambda w, h: h.fork(),
        "is_shared": lambda w, h: h.is_shared(0),
        "make_unique": lambda w, h: h.make_unique(1, w.fresh),
        "take_blocks": lambda w, h: w.adopted.take_blocks(),
    }),
    "PendingCopy": ("pending", RELEASE),
    "Subscription": ("events", {**CLOSE, "__next__": lambda w, h: next(h, None)}),
    "WakeQueue": ("queue", {"fileno": lambda w, h: h.fileno(), "take": lambda w, h: h.take()}),
    "Waiting": ("waiting", {"poll": lambda w, h: h.poll(w.queue, 0), "close": lambda w, h: h.close()}),
    "DigestRegion": ("region", {
        **CLOSE,
        "set_process_quota": lambda w, h: h.set_process_quota(8),
        "stats": lambda w, h: h.stats(),
        "recover": lambda w, h: h.recover(),
        "clear": lambda w, h: h.clear(),
        "unlink": lambda w, h: h.unlink(),
    }),
    "DigestStore": ("store", {
        **CLOSE,
        "exists": lambda w, h: h.exists(KEYS),
        "prefix": lambda w, h: h.prefix(KEYS),
        "lookup": lambda w, h: h.lookup(KEYS),
        "store": lambda w, h: h.wait(h.store(KEYS, w.memory)),
        "load": lambda w, h: h.wait(h.load(KEYS, w.memory)),
        "store_from": lambda w, h: h.wait(h.store_from(KEYS, w.addresses)),
        "load_into": lambda w, h: h.wait(h.load_into(KEYS, w.addresses)),
        "remove": lambda w, h: h.remove(KEYS),
        "poll": lambda w, h: h.poll(),
        "wait": lambda w, h: h.wait(w.batch),
        "cancel": lambda w, h: h.cancel(w.batch),
        "set_quota": lambda w, h: h.set_quota(8),
        "clear": lambda w, h: h.clear(),
        "reserve": lambda w, h: h.reserve(KEYS).release(),
        "locate": lambda w, h: h.locate(KEYS),
        "touch": lambda w, h: h.touch(KEYS),
        "stats": lambda w, h: h.stats(),
    }),
    "DigestRooms": ("rooms", {**RELEASE, "publish": lambda w, h: h.publish()}),
    "DigestSources": ("sources", {"intact": lambda w, h: h.intact()}),
    "HostTier": ("host", {
        "peek": lambda w, h: h.peek(PROMPT),
        "clear": lambda w, h: h.clear(),
        "settle": lambda w, h: h.settle(1),
        "leftovers": lambda w, h: h.leftovers(),
        "stats": lambda w, h: h.stats(),
        "validate": lambda w, h: h.validate(),
    }),
    "TieredCache": ("tiers", {
        "acquire": lambda w, h: h.acquire(PROMPT),
        "acquire_async": lambda w, h: h.acquire_async(PROMPT).close(),
        "insert": lambda w, h: h.insert(w.start.lease, PROMPT, w.start.blocks),
        "reserve": lambda w, h: h.reserve(1),
        "evict": lambda w, h: h.evict(1),
        "demote": lambda w, h: h.demote(PROMPT),
        "prefetch": lambda w, h: h.prefetch(PROMPT),
        "clear": lambda w, h: h.clear(),
        "clear_namespace": lambda w, h: h.clear_namespace(w.below.namespace("new")),
        "stats": lambda w, h: h.stats(),
    }),
    "TieredStart": ("start", RELEASE),
    # Has only properties, and belongs to a call of a mover.
    "BlockCopy": (None, {}),
}
# They use no value of the core: they return the handle itself or text, compare nothing, or refuse
# in every process.
SAME_IN_EVERY_PROCESS = {"__new__", "__repr__", "__reduce__", "__enter__", "__iter__"}
ORDERS = {"__lt__", "__le__", "__gt__", "__ge__"}


def verbs_of(name):
    """All methods that the native class has."""
    found = set()
    for of in getattr(_radixkv, name).__mro__[:-1]:
        found |= {verb for verb, value in vars(of).items() if callable(value)}
    return found - SAME_IN_EVERY_PROCESS - ORDERS


def in_child(check):
    """Runs `check` in a forked child, and returns the problems that it lists."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)  # ends a child that waits for a lock of the parent
            os.write(writer, repr(check()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answers:
        answer = answers.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return eval(answer)


def test_the_table_has_every_class_and_every_verb():
    classes = {name for name, value in vars(_radixkv).items() if isinstance(value, type)}
    assert classes == set(VERBS)
    assert {name: verbs_of(name) for name in VERBS} == {name: set(calls) for name, (_, calls) in VERBS.items()}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_raises_in_a_forked_child(name):
    at, calls = VERBS[name]
    for call in calls.values():  # the calls are valid: the parent carries them out
        world = World()
        call(world, getattr(world, at))
        world.end()
    if not calls:
        return
    world = World()

    def refused():
        problems = []
        for verb, call in calls.items():
            try:
                call(world, getattr(world, at))
            except radixkv.ForkError:
                continue
            except BaseException as error:
                problems.append(f"{verb} raises {error!r}")
            else:
                problems.append(f"{verb} works")
        return problems

    assert in_child(refused) == []
    world.end()


def test_repr_agrees_with_released_in_a_forked_child():
    world = World()
    held = [world.lease, world.hit, world.inserted, world.blocks]
    ended = [world.lease.clone(), world.cache.match_prefix(PROMPT), world.cache.reserve(1)]
    for handle in ended:
        handle.release()

    def differing():
        both = [(handle.released, "released" in repr(handle)) for handle in held + ended]
        return [] if both == [(False, False)] * 4 + [(True, True)] * 3 else both

    assert differing() == [] and in_child(differing) == []
    world.end()


def test_a_coroutine_of_the_parent_raises_in_a_forked_child():
    world = World()

    def refused():
        try:
            asyncio.new_event_loop().run_until_complete(world.coroutine)
        except radixkv.ForkError:
            return []
        return ["it waits"]

    assert in_child(refused) == []
    world.end()
