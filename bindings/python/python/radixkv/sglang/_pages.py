"""Pages of SGLang's host pools as blocks of digest-keyed stores.

A page is one contiguous piece of memory, or several: keys and values, or one of each for every
layer. Each piece is a block. Its key is the page's hash; in pools with several pieces, the number
of the piece is appended.
"""

import hashlib
import re

import numpy as np

HASH_BYTES = 32
_HASH = re.compile(r"[0-9a-fA-F]{64}")
# A hash of another length: at least 16 bytes.
_OTHER_HASH = re.compile(r"[0-9a-fA-F]{32,}")
# Maximum bytes of a text in a namespace's settings.
_MOST = 120


def digest(key):
    """The digest of a key. A key that is a page hash of SGLang (SHA-256, in hexadecimal digits) is
    converted to bytes.

    Any other key, such as a hash with a suffix, is hashed. A hash of another length is refused.
    """
    if _HASH.fullmatch(key):
        return bytes.fromhex(key)
    if _OTHER_HASH.fullmatch(key):
        raise ValueError(f"key {key!r} has {len(key)} hexadecimal digits, the SHA-256 of a page has {2 * HASH_BYTES}")
    return hashlib.sha256(b"radixkv hicache key\0" + key.encode()).digest()


def text(value):
    """Shortens a text to the limit of a namespace: the end of a long text is replaced by its
    SHA-256."""
    value = str(value)
    if len(value.encode()) <= _MOST:
        return value
    short = value.encode()[: _MOST - 65].decode(errors="ignore")
    return f"{short} {hashlib.sha256(value.encode()).hexdigest()}"


class Pieces:
    """The pieces of a host pool's pages, and the conversion to blocks."""

    def __init__(self, name, host_pool):
        self.name, self.host_pool = name, host_pool
        self.page_tokens = host_pool.page_size
        self.sizes = tuple(self._meta(_first_page(self.page_tokens))[1])
        if not self.sizes:
            raise ValueError(f"the host pool {name!r} has no memory of its own that could be copied")

    @property
    def key_bytes(self):
        return HASH_BYTES if len(self.sizes) == 1 else HASH_BYTES + 4

    def keys(self, digests, size):
        """The keys of all pieces of this size, page after page."""
        if len(self.sizes) == 1:
            return list(digests)
        tails = [part.to_bytes(4, "little") for part in self._parts(size)]
        return [key + tail for key in digests for tail in tails]

    def addresses(self, host_indices, pages):
        """The addresses of the pieces, by their size. Raises ValueError if the number of indices
        does not match `pages`, or a page is outside of the pool."""
        if host_indices is None or len(host_indices) != pages * self.page_tokens:
            given = "none" if host_indices is None else len(host_indices)
            raise ValueError(
                f"host pool {self.name!r}: {given} host indices for {pages} pages of {self.page_tokens} tokens, "
                f"{pages * self.page_tokens} are needed"
            )
        self._check_within(host_indices[:: self.page_tokens])
        pointers, sizes = self._meta(host_indices)
        if tuple(sizes) != self.sizes * pages:
            raise ValueError(f"host pool {self.name!r}: the sizes of the pieces of its pages have changed")
        pointers = np.array(pointers, dtype=np.uint64).reshape(pages, len(self.sizes))
        return {size: pointers[:, self._parts(size)].reshape(-1) for size in dict.fromkeys(self.sizes)}

    def whole(self, is_done, size):
        """For each page, whether all its pieces of this size are done."""
        return is_done.reshape(-1, len(self._parts(size))).all(axis=1)

    def _check_within(self, starts):
        """Raises ValueError if a page that begins at one of these indices is outside of the pool:
        SGLang computes addresses without a check. A pool without `size` has no known end."""
        size, starts = getattr(self.host_pool, "size", None), np.asarray(starts)
        is_outside = starts < 0
        if size is not None:
            is_outside |= starts > size - self.page_tokens
        if is_outside.any():
            raise ValueError(
                f"host pool {self.name!r}: a page of {self.page_tokens} tokens at host index {starts[is_outside][0]} is "
                f"outside of the pool{'' if size is None else f', which has {size} tokens'}"
            )

    def _parts(self, size):
        return [part for part, its in enumerate(self.sizes) if its == size]

    def _meta(self, host_indices):
        layout = getattr(self.host_pool, "layout", "unknown")
        try:
            meta = self.host_pool.get_page_buffer_meta(host_indices)
        except (AttributeError, NotImplementedError, ValueError) as error:
            raise ValueError(
                f"the host pool {self.name!r} has the layout {layout!r}, whose pages cannot be copied in place: start "
                "SGLang with --hicache-mem-layout page_first or page_first_direct"
            ) from error
        return meta or ((), ())


def _first_page(tokens):
    import torch

    return torch.arange(tokens, dtype=torch.int64)
