"""Waiting for blocks on asyncio's event loop, without a thread.

Each loop has one queue, and watches its socket while requests wait. A thread that makes blocks
available adds the request to the queue, and the loop polls the request.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref

from radixkv._radixkv import WakeQueue


class _Line:
    """The waiting requests of one event loop."""

    def __init__(self):
        self._queue = WakeQueue()
        self._numbers = itertools.count()
        self._waiting = {}

    async def wait(self, request):
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        try:
            served = request.poll(self._queue, number)
            if served is not None:
                return served
            future = loop.create_future()
            if not self._waiting:
                loop.add_reader(self._queue.fileno(), self._poll)
            self._waiting[number] = (request, future)
            return await future
        finally:
            if self._waiting.pop(number, None) and not self._waiting:
                loop.remove_reader(self._queue.fileno())
            # Gives back the blocks of a request whose result was not taken.
            request.close()

    def _poll(self):
        for number in self._queue.take():
            request, future = self._waiting.get(number, (None, None))
            if request is None or future.done():
                continue
            try:
                served = request.poll(self._queue, number)
            except Exception as error:
                future.set_exception(error)
            else:
                if served is not None:
                    future.set_result(served)


_lines: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


async def wait(request):
    """Waits for the request, and returns its result."""
    loop = asyncio.get_running_loop()
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line()
    return await line.wait(request)
