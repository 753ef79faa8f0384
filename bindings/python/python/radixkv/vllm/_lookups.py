"""Answers the scheduler's lookups.

The region answers immediately. Tiers below it get one request for all keys of a scheduler's step,
when the step ends; until they have answered, the result is RETRY.
"""

from vllm.v1.kv_offload.base import LookupResult

import radixkv

# A byte of `DigestStore.exists`. A block that another process is writing counts as a miss, so that
# no request waits for a process that may have died.
_PRESENT = b"\1"
_DONE = radixkv.DigestStore.DONE


class _Answer:
    """The result for a key that is not in the region, and how many requests need it."""

    __slots__ = ("requests", "result")

    def __init__(self):
        self.result, self.requests = LookupResult.RETRY, 0


class Lookups:
    def __init__(self, store, has_tiers):
        self._store, self._has_tiers = store, has_tiers
        # The answers that the tiers have not given yet, by their keys. A later request asks again.
        self._pending = {}
        # For each active request, its answers.
        self._answers_of = {}
        # For each of these requests, the keys that were found but could not be loaded.
        self._failed_of = {}
        self._unasked, self._asked = [], {}

    def begin(self, request):
        self._answers_of.setdefault(request, {})

    def find(self, key, request):
        """Whether the region or a tier has the block. Never waits, and does not count as a use."""
        if key in self._failed_of.get(request, ()):
            return LookupResult.MISS
        if self._store.exists(key) == _PRESENT:
            return LookupResult.HIT
        if not self._has_tiers:
            return LookupResult.MISS
        answers = self._answers_of.setdefault(request, {})
        answer = answers.get(key)
        if answer is None:
            answer = self._pending.get(key)
            if answer is None:
                answer = self._pending[key] = _Answer()
                self._unasked.append(key)
            answers[key] = answer
            answer.requests += 1
        return answer.result

    def ask_tiers(self):
        """Asks the tiers for the keys of this step: for as many as fit in flight, and for the rest
        after a later step."""
        keys, self._unasked = self._unasked, []
        for key in keys:
            if not self._pending[key].requests:
                del self._pending[key]
        keys = [key for key in keys if key in self._pending]
        try:
            self._ask(keys)
        except radixkv.FullError as full:
            room = full.most - full.in_flight
            self._ask(keys[:room])
            self._unasked = keys[room:]

    def _ask(self, keys):
        if keys:
            self._asked[self._store.lookup(keys)] = keys

    def answered(self, batch, outcomes):
        """Records the tiers' answers; False if the batch is not one of these lookups."""
        keys = self._asked.pop(batch, None)
        if keys is None:
            return False
        for key, outcome in zip(keys, outcomes, strict=True):
            self._pending.pop(key).result = LookupResult.HIT if outcome == _DONE else LookupResult.MISS
        return True

    def load_failed(self, keys, request):
        """Treats these keys as misses of the request. Otherwise it would find a block that cannot be
        loaded again and again."""
        if request in self._answers_of:
            self._failed_of.setdefault(request, set()).update(keys)

    def forget(self, request):
        """Forgets the answers that only this request needs."""
        for answer in self._answers_of.pop(request, {}).values():
            answer.requests -= 1
        self._failed_of.pop(request, None)

    @property
    def waiting(self):
        """Whether requests to tiers are pending."""
        return bool(self._asked)
