"""A `CachePolicy` for vLLM 0.33 that evicts the least recently used request first, from its end.

Chunks that a later request reused are evicted after chunks with only one request, so that one-time
prompts do not displace shared chunks. The cost of a call depends on the number of its keys or
evicted chunks, not on the size of the cache.
"""

import itertools
from dataclasses import dataclass

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, order_request_keys

# Reused chunks are protected up to this part of the capacity; the oldest ones beyond it are not.
PROTECTED = 0.8


class _Bucket:
    """Chunks with equal recency, and the position of each: the last one is evicted first."""

    __slots__ = ("is_sorted", "keys", "last", "number", "segment")

    def __init__(self, segment, number):
        self.segment, self.number = segment, number
        self.keys, self.last, self.is_sorted = {}, 0, True

    def add(self, key, position):
        self.keys[key] = position
        self.is_sorted &= position >= self.last
        self.last = position

    def from_the_end(self):
        """The keys in order of eviction."""
        if not self.is_sorted:
            self.keys = dict(sorted(self.keys.items(), key=lambda item: item[1]))
            self.last, self.is_sorted = next(reversed(self.keys.values())), True
        return reversed(self.keys)


class _Segment:
    """Buckets, from the least to the most recently used."""

    __slots__ = ("_numbers", "buckets", "size")

    def __init__(self):
        self.buckets, self.size = {}, 0
        self._numbers = itertools.count()

    def open(self):
        bucket = _Bucket(self, next(self._numbers))
        self.buckets[bucket] = None
        return bucket

    def take_over(self, bucket):
        """Moves a bucket from another segment to the most recent position of this one."""
        del bucket.segment.buckets[bucket]
        bucket.segment.size -= len(bucket.keys)
        self.size += len(bucket.keys)
        bucket.segment, bucket.number = self, next(self._numbers)
        self.buckets[bucket] = None

    def in_order(self):
        """The keys in order of eviction."""
        for bucket in self.buckets:
            yield from bucket.from_the_end()


@dataclass
class _Active:
    """The buckets of an active request; stored in its context."""

    policy: object
    generation: int
    buckets: dict


class RadixKVCachePolicy(CachePolicy):
    """Evicts chunks used by one request first, then reused ones, each in order of recency."""

    def __init__(self, cache_capacity, **unknown):
        super().__init__(cache_capacity)
        self._generation = 0
        self.clear()

    def clear(self):
        self._generation += 1
        self._chunks, self._bucket_of = {}, {}
        self._once, self._reused = _Segment(), _Segment()

    def get(self, key):
        return self._chunks.get(key)

    def insert(self, key, chunk, req_context):
        self._chunks[key] = chunk
        position = req_context.get_offload_key_position(key)
        if position is None:
            self._place(key, self._once.open(), 0)
        else:
            self._place(key, self._active_bucket(self._once, req_context), position)

    def remove(self, key):
        del self._chunks[key]
        self._unplace(key)

    # Uses.

    def touch(self, keys, req_context):
        opened = {}
        for at, key in enumerate(keys):
            if key in self._chunks:
                segment = self._bucket_of[key].segment
                if segment not in opened:
                    opened[segment] = segment.open()
                self._move(key, opened[segment], at)

    def on_store_miss(self, keys, req_context):
        """Does nothing: keys that are not cached have no recency."""

    def on_request_access(self, keys, req_context):
        for key in keys:
            if key not in self._chunks:
                continue
            position = req_context.get_offload_key_position(key)
            if position is not None:
                bucket = self._active_bucket(self._bucket_of[key].segment, req_context)
                # An earlier request must not make the chunk older.
                if bucket.number > self._bucket_of[key].number:
                    self._move(key, bucket, position)

    def on_request_finished(self, key_groups, insertion_only_keys, reused_keys, req_context):
        once, reused = self._once.open(), self._reused.open()
        for at, key in enumerate(order_request_keys(key_groups, req_context)):
            bucket = self._bucket_of.get(key)
            if bucket is not None:
                is_reused = bucket.segment is self._reused or key in reused_keys
                self._move(key, reused if is_reused else once, at)
        for bucket in (once, reused):
            self._drop_if_empty(bucket)
        while self._reused.size > PROTECTED * self.cache_capacity:
            self._once.take_over(next(iter(self._reused.buckets)))

    # Evictions.

    def evict(self, n, protected):
        found = []
        for segment in (self._once, self._reused):
            for key in segment.in_order() if len(found) < n else ():
                if key not in protected and self._chunks[key].ref_cnt == 0:
                    found.append(key)
                    if len(found) == n:
                        break
        if len(found) < n:
            return None
        evicted = []
        for key in found:
            evicted.append((key, self._chunks[key]))
            self.remove(key)
        return evicted

    # Buckets.

    def _active_bucket(self, segment, req_context):
        """The bucket of an active request."""
        active = req_context.get_state(_Active)
        if active is None or active.policy is not self or active.generation != self._generation:
            active = _Active(self, self._generation, {})
            req_context.set_state(active)
        bucket = active.buckets.get(segment)
        if bucket is None or bucket not in segment.buckets:
            bucket = active.buckets[segment] = segment.open()
        return bucket

    def _place(self, key, bucket, position):
        bucket.add(key, position)
        bucket.segment.size += 1
        self._bucket_of[key] = bucket

    def _unplace(self, key):
        bucket = self._bucket_of.pop(key)
        del bucket.keys[key]
        bucket.segment.size -= 1
        self._drop_if_empty(bucket)

    def _move(self, key, bucket, position):
        old = self._bucket_of[key]
        if old is not bucket:
            del old.keys[key]
            old.segment.size -= 1
            if not old.keys:
                self._drop_if_empty(old)
            self._place(key, bucket, position)

    @staticmethod
    def _drop_if_empty(bucket):
        if not bucket.keys:
            bucket.segment.buckets.pop(bucket, None)
