"""SGLang's KV events. They need the hashes of pages, which the cache itself does not store."""

from array import array

import numpy as np
from sglang.srt.disaggregation.kv_events import BlockRemoved, StorageMedium, namespaced_block_hash
from sglang.srt.mem_cache.radix_cache import RadixKey, TreeNode
from sglang.srt.mem_cache.utils import hash_str_to_int64


class Hashes:
    """Reports stored and removed pages to SGLang's recorder. Keeps the hashes of cached pages."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._of_page = {}

    def stored(self, key, before, old, pages, session_id=None):
        """Reports that the key's units from `before` on are cached in `pages`, after `old`."""
        names = _encodable(key.extra_key), _encodable(key.cache_salt)
        key = RadixKey(_without_signs(key.token_ids), names[0], is_bigram=key.is_bigram, cache_salt=names[1])
        root = TreeNode()
        parent, node = root, TreeNode()
        if before:
            parent = TreeNode()
            parent.parent = root
            last, of_event, _ = self._of_page[int(old[-1])]
            parent.key, parent.hash_value, parent.event_hash_value = key[:before], [last], [of_event]
        else:
            root.hash_value, root.key = [], key[:0]
        node.parent, node.key = parent, key[before:]
        recorder = self._recorder
        recorder.record_store(node, session_id=_encodable(session_id))
        of_events, seed = recorder._node_event_hash_values(node), recorder._namespace_seed(node)
        for page, hashed, of_event in zip(pages.tolist(), node.hash_value, of_events, strict=True):
            sent = namespaced_block_hash(hash_str_to_int64(of_event), namespace_seed=seed)
            self._of_page[page] = (hashed, of_event, sent)

    def removed(self, pages):
        """Reports that pages were removed."""
        gone = [self._of_page.pop(page)[2] for page in pages]
        self._recorder.enqueue(BlockRemoved(block_hashes=gone, medium=StorageMedium.GPU))


def _without_signs(tokens):
    """The tokens as numbers of 63 bits: SGLang hashes no negative ones."""
    numbers = np.asarray(tokens, dtype=np.int64)
    return array("q", (numbers & np.int64((1 << 63) - 1)).tobytes()) if (numbers < 0).any() else tokens


def _encodable(text):
    """The text without lone surrogates: events are UTF-8."""
    return text and text.encode(errors="backslashreplace").decode()
