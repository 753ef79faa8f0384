"""Waiting for blocks on asyncio's event loop, without a thread.

Each loop has one queue, and watches its socket while requests wait. A thread that makes blocks
available adds the request to the queue, and the loop polls the request.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref

from radixkv._radixkv import WakeQueue


class _Waiting(dict):
    """The requests of one event loop that wait, with their futures, which refer to the loop.

    Only the loop and the requests' coroutines refer to it: `_lines` must not keep a loop alive whose
    requests would stay in line for good.
    """

    __slots__ = ("__weakref__",)


class _Line:
    """The waiting requests of one event loop."""

    def __init__(self):
        self._queue = WakeQueue()
        self._numbers = itertools.count()
        # A weak reference, once a request has waited.
        self._waiting = lambda: None

    async def wait(self, request):
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        waiting = future = None
        try:
            served = request.poll(self._queue, number)
            if served is not None:
                return served
            future = loop.create_future()
            waiting = self._waiting()
            if waiting is None:
                waiting = _Waiting()
                self._waiting = weakref.ref(waiting)
            if not waiting:
                loop.add_reader(self._queue.fileno(), self._poll, waiting)
            waiting[number] = (request, future)
            return await future
        finally:
            if waiting is not None and waiting.pop(number, None) and not waiting:
                loop.remove_reader(self._queue.fileno())
            # A traceback keeps this frame: it must keep neither a result that was not taken nor other
            # requests.
            waiting = future = None
            # Gives back the blocks of a request whose result was not taken.
            request.close()

    def _poll(self, waiting):
        for number in self._queue.take():
            request, future = waiting.get(number, (None, None))
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
