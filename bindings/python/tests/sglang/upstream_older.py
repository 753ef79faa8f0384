"""Names of SGLang 0.5.18 in SGLang's tests, put to the interface of 0.5.23.

SGLang's repository holds its tests, and the wheel does not. Tests of another version than the
wheel's are run as far as they fit: `Older` gives SGLang's tree and ours the calls of 0.5.18, made of
calls of 0.5.23, and `spelled` renames fields. Tests of 0.5.23 need none of it.
"""

import collections
import re
import types

SPELLINGS = (
    (r"\bself\.kv = SimpleNamespace\((?=kv_allocated_len)", "self.kv = row_of(self, "),
    (
        r"\b(\w+)\.kv = ReqKvInfo\(kv_allocated_len=([^,()]+(?:\([^()]*\))?), swa_evicted_seqlen=0\)",
        r"\1.kv.kv_allocated_len = \2",
    ),
    (r"\.root_node\.id\b", ".root_node_handle()"),
    (
        r"\breq\.(req_pool_idx|kv_committed_len|cache_protected_len|mamba_pool_idx|mamba_last_track_seqlen)\b",
        r"req.kv.\1",
    ),
    (r"\breq\.effective_kv_committed_len\(\)", "req.kv.kv_committed_len"),
    (r"\breq\.set_extend_range\([^()]*(?:\([^()]*\)[^()]*)*\)", "req.full_untruncated_fill_ids"),
    (r"\breq\.extend_range\.end\b", "len(req.full_untruncated_fill_ids)"),
    (r"\breq\.swa_prefix_lock_released\b(?! =)", "False"),
    (r"\bDecLockRefParams\(\s*swa_uuid_for_lock=[^()]*(?:\([^()]*\))?[^()]*\)", "DecLockRefParams()"),
    (r"\.metadata\.cache_salt\b", ".cache_salt"),
)
RENAMED = {"unified_cache.components.tree_component": "unified_cache.components.base"}


def spelled(source):
    for old, new in SPELLINGS:
        source = re.sub(old, new, source)
    return source


def row_of(req, **fields):
    """The `ReqKvInfo` of a request that had these fields itself."""
    from sglang.srt.managers.schedule_batch import ReqKvInfo

    for name in ("lock", "session_id", "kv_rotation_base"):
        setattr(req, name, getattr(req, name, None))
    req.finished = lambda: getattr(req, "finished_reason", None) is not None
    names = ("req_pool_idx", "cache_protected_len", "kv_committed_len")
    return ReqKvInfo(**{name: getattr(req, name) for name in names if hasattr(req, name)}, **fields)


class Older:
    """A base before a tree of 0.5.23: calls and results of 0.5.18."""

    def match_prefix(self, params):
        found = _found_class()(*super().match_prefix(params))
        found.cache = self
        return found

    # A receipt of a lock must be replayed; in 0.5.18 there was none.

    def inc_lock_ref(self, node, *rest, **named):
        receipt = super().inc_lock_ref(node, *rest, **named)
        self._receipts(node).append(receipt)
        return receipt

    def dec_lock_ref(self, node, params=None, **rest):
        receipts = self._receipts(node)
        receipt = receipts.pop() if receipts else None
        if receipt is not None and getattr(params, "node_id", None) is None:
            params = receipt.to_dec_params()
        return super().dec_lock_ref(node, params, **rest)

    def _receipts(self, node):
        return self.__dict__.setdefault("receipts_of_tests", collections.defaultdict(list))[node]

    def _own_lock(self, req):
        """The lock that a test took on the request's node is the request's."""
        from sglang.srt.mem_cache.base_prefix_cache import TreeLock

        if req.lock is None and (receipts := self._receipts(req.last_node)):
            req.lock = TreeLock(req.last_node, receipts[-1].to_dec_params())

    def cache_finished_req(self, req, is_insert=True, kv_len_to_handle=None, **rest):
        self._own_lock(req)
        length = len(req.full_untruncated_fill_ids) if kv_len_to_handle is None else kv_len_to_handle
        req.finished_reason = getattr(req, "finished_reason", None) or types.SimpleNamespace(length=0)
        if is_insert:
            self.checkpoint(req, up_to=length)
        self.free_kv_row(req.kv, [(req.kv.cache_protected_len, length)])
        self.unlock(req.lock)
        req.lock = None

    def cache_unfinished_req(self, req, **rest):
        self._own_lock(req)
        self.checkpoint(req, up_to=len(req.full_untruncated_fill_ids))
        req.prefix_indices = self.path_device_indices(req.last_node)


def _found_class(made=[]):
    if not made:
        from sglang.srt.mem_cache.base_prefix_cache import MatchResult

        class Found(MatchResult):
            """A result that can say its slots."""

            @property
            def device_indices(self):
                return self.cache.path_device_indices(self.last_device_node)[: self.device_prefix_len]

            def _replace(self, **fields):
                changed = super()._replace(**fields)
                changed.cache = self.cache
                return changed

        made.append(Found)
    return made[0]
