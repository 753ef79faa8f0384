"""Waiting for blocks: with a timeout, and on an event loop without a thread."""

import asyncio
import gc
import threading
import time

import numpy as np
import pytest

import radixkv


def test_a_wait_ends_with_the_timeout_and_its_numbers(cache):
    held = cache.reserve(60)
    for wait in (lambda: cache.reserve(8, timeout=0.01), lambda: cache.acquire(list(range(32)), timeout=0.01)):
        with pytest.raises(TimeoutError) as refused:
            wait()
        assert isinstance(refused.value, radixkv.TimedOutError)
        assert (refused.value.requested, refused.value.available) == (8, 4)
    assert len(held) == 60
    for timeout, error in [(-1, ValueError), (float("nan"), ValueError), ("soon", TypeError)]:
        with pytest.raises(error, match="timeout is"):
            cache.reserve(1, timeout=timeout)


def test_other_threads_run_while_one_waits(cache):
    held, got = cache.reserve(60), []
    waiter = threading.Thread(target=lambda: got.append(cache.reserve(8, timeout=60)))
    waiter.start()
    while cache.stats()["waiting_requests"] == 0:
        time.sleep(0.001)
    held.release()
    waiter.join(60)
    assert [len(blocks) for blocks in got] == [8]


def test_many_tasks_wait_without_a_thread(cache):
    async def request(number):
        if number % 2:
            blocks = await cache.reserve_async(16)
        else:
            prompt = np.arange(64, dtype=np.int32) + 1000 * number
            hit, blocks = await cache.acquire_async(prompt)
            assert hit.len_tokens == 0
        await asyncio.sleep(0)
        served.append(number)
        assert len(blocks) == 16
        blocks.release()

    async def main():
        with cache.reserve(64):
            tasks = [asyncio.create_task(request(number)) for number in range(100)]
            await asyncio.sleep(0.01)
            assert cache.stats()["waiting_requests"] == 100 and not served
            assert threading.active_count() == threads
        await asyncio.wait_for(asyncio.gather(*tasks), 60)

    served, threads = [], threading.active_count()
    asyncio.run(main())
    assert sorted(served) == list(range(100)) and served[0] == 0
    assert cache.stats()["waiting_requests"] == 0 and cache.free_blocks == 64


def test_a_thread_wakes_a_loop(cache):
    async def main():
        held = cache.reserve(64)
        threading.Timer(0.02, held.release).start()
        blocks = await asyncio.wait_for(cache.reserve_async(64), 60)
        return len(blocks)

    assert [asyncio.run(main()) for _ in range(3)] == [64, 64, 64]


def test_a_cancelled_wait_leaves_the_line(cache):
    async def main():
        held = cache.reserve(60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await cache.reserve_async(60)
        assert cache.stats()["waiting_requests"] == 0
        first = asyncio.create_task(cache.reserve_async(60))
        second = asyncio.create_task(cache.reserve_async(4))
        await asyncio.sleep(0)
        assert not second.done()
        first.cancel()
        assert len(await asyncio.wait_for(second, 60)) == 4
        return len(held)

    assert asyncio.run(main()) == 60


def test_what_can_never_be_served_raises_at_once(cache):
    async def main():
        with pytest.raises(radixkv.TooLargeError):
            await cache.reserve_async(65)
        tenant = cache.namespace("tenant")
        tenant.set_quota(pinned_blocks=2)
        with pytest.raises(radixkv.OverQuotaError) as refused:
            await cache.reserve_async(3, paid_by=tenant)
        assert refused.value.limit == 2
        with pytest.raises(TypeError):
            cache.acquire_async("tokens")

    asyncio.run(main())


def test_a_running_sequence_goes_first(cache):
    async def main():
        held, order = cache.reserve(64), []

        async def take(name, **how):
            blocks = await cache.reserve_async(1, **how)
            order.append(name)
            blocks.release()

        admitted = asyncio.create_task(take("admitted"))
        await asyncio.sleep(0)
        running = asyncio.create_task(take("running", running=True))
        await asyncio.sleep(0)
        held.release()
        await asyncio.wait_for(asyncio.gather(admitted, running), 60)
        return order

    assert asyncio.run(main()) == ["running", "admitted"]


def test_requests_of_a_loop_that_was_given_up_leave_the_line(cache):
    held = cache.reserve(64)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # "Task was destroyed but it is pending"
    task = loop.create_task(cache.reserve_async(64))
    loop.run_until_complete(asyncio.sleep(0))
    assert cache.stats()["waiting_requests"] == 1
    loop.close()
    del task, loop
    gc.collect()
    assert cache.stats()["waiting_requests"] == 0
    held.release()
    assert len(cache.reserve(64, timeout=10)) == 64


def test_what_a_cancelled_request_was_just_given_is_free(cache):
    async def main():
        held = cache.reserve(64)
        task = asyncio.create_task(cache.reserve_async(64))
        await asyncio.sleep(0)
        assert cache.stats()["waiting_requests"] == 1
        held.release()
        # One turn until the loop sees the socket, and serves the request; the task runs in the next.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert cache.stats()["waiting_requests"] == 0 and cache.free_blocks == 0
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return cache.free_blocks, task  # the task, and so its exception, is still there

    free, task = asyncio.run(main())
    assert free == 64 and task.cancelled()


def test_a_traceback_that_is_kept_keeps_no_other_request_in_line(cache):
    held, kept = cache.reserve(64), []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # "Task was destroyed but it is pending"

    async def keeping():
        try:
            await cache.reserve_async(64)
        except asyncio.CancelledError as cancelled:
            kept.append(cancelled)

    cancelled, given_up = loop.create_task(keeping()), loop.create_task(cache.reserve_async(64))
    loop.run_until_complete(asyncio.sleep(0))
    assert cache.stats()["waiting_requests"] == 2
    cancelled.cancel()
    loop.run_until_complete(cancelled)
    loop.close()
    del cancelled, given_up, loop
    gc.collect()
    assert kept and cache.stats()["waiting_requests"] == 0
    held.release()
