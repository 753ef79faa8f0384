"""Tokens of more than 32 bits: SGLang represents images by 62-bit sentinels."""

import numpy as np

# Sentinels get numbers above all vocabularies. The most recently used sentinels are remembered.
FIRST, END = 1 << 31, 1 << 32
KEPT = 1 << 20


class Sentinels:
    """Maps each sentinel to a unique 32-bit number. A forgotten sentinel gets a new number."""

    def __init__(self):
        self._numbers, self._next = {}, FIRST

    def __bool__(self):
        return bool(self._numbers)

    def narrow(self, tokens):
        """Converts the tokens to 32-bit integers."""
        tokens = np.asarray(tokens, dtype=np.int64)
        (places,) = np.nonzero(tokens >= FIRST)
        if len(places) == 0:
            return tokens
        found, which = np.unique(tokens[places], return_inverse=True)
        narrowed = tokens.astype(np.uint32)
        narrowed[places] = np.array([self._number(sentinel) for sentinel in found.tolist()], dtype=np.uint32)[which]
        return narrowed

    def _number(self, sentinel):
        number = self._numbers.pop(sentinel, None)
        if number is None:
            if self._next == END:
                raise OverflowError(f"more than {END - FIRST} images: reset the cache")
            number, self._next = self._next, self._next + 1
        self._numbers[sentinel] = number
        if len(self._numbers) > KEPT:
            del self._numbers[next(iter(self._numbers))]
        return number
