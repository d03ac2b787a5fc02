"""Thread pool: threads are created on demand up to the limit, and end when they are idle."""

import gc
import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from nnhal_service.grpc_support.thread_pool import ElasticThreadPool
from tests.concurrency import new_threads, wait_until


def test_results_and_errors() -> None:
    pool = ElasticThreadPool(2, 1, "test")
    assert pool.submit(pow, 2, 5).result(60) == 32
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(60)
    assert pool.submit(int, "7", base=8).result(60) == 7
    pool.shutdown()


def test_threads_are_created_up_to_the_limit() -> None:
    pool = ElasticThreadPool(3, 60, "test")
    go, running = threading.Event(), threading.Semaphore(0)

    def work() -> int:
        running.release()
        go.wait(60)
        return threading.get_ident()

    futures = [pool.submit(work) for _ in range(3)]
    for _ in range(3):
        assert running.acquire(timeout=60)
    futures += [pool.submit(work) for _ in range(3)]
    assert len(pool._alive) == 3
    assert not running.acquire(timeout=0.05)
    go.set()
    assert len({future.result(60) for future in futures}) == 3
    pool.shutdown()


@pytest.mark.parametrize(("newest_first", "order"), [(False, [0, 1, 2]), (True, [2, 1, 0])])
def test_order_of_work_that_waits_for_a_thread(newest_first: bool, order: list[int]) -> None:
    pool = ElasticThreadPool(1, 60, "test", newest_first=newest_first)
    go, done = threading.Event(), list[int]()
    futures: list[Future[Any]] = [pool.submit(go.wait, 60)]
    assert wait_until(futures[0].running)
    futures += [pool.submit(done.append, number) for number in range(3)]
    go.set()
    for future in futures:
        future.result(60)
    assert done == order
    pool.shutdown()


def test_idle_thread_is_reused() -> None:
    pool = ElasticThreadPool(10, 60, "test")
    idents = set()
    for _ in range(20):
        idents.add(pool.submit(threading.get_ident).result(60))
        assert wait_until(lambda: len(pool._idle) == 1)
    assert len(idents) == 1
    pool.shutdown()


def test_idle_threads_end_and_the_pool_still_works() -> None:
    before = threading.enumerate()
    pool = ElasticThreadPool(10, 0.05, "test")
    for _ in range(3):
        for future in [pool.submit(time.sleep, 0.01) for _ in range(10)]:
            future.result(60)
        assert wait_until(lambda: not new_threads(before))
        assert not pool._idle
    assert pool.submit(pow, 2, 3).result(60) == 8
    pool.shutdown()


def test_no_work_is_lost_when_threads_end() -> None:
    pool = ElasticThreadPool(4, 0.0005, "test")
    for i in range(2000):
        assert pool.submit(lambda i=i: i).result(60) == i  # type: ignore[misc]
        if i % 3 == 0:
            time.sleep(0.0005)
    pool.shutdown()


def test_work_goes_to_the_thread_that_became_idle_last() -> None:
    pool = ElasticThreadPool(5, 60, "test")
    start_threads(pool, 5)
    idents = set()
    for _ in range(50):
        idents.add(pool.submit(threading.get_ident).result(60))
        assert wait_until(lambda: len(pool._idle) == 5)
    assert len(idents) == 1
    pool.shutdown()


def test_surplus_threads_end_while_one_works() -> None:
    before = threading.enumerate()
    pool = ElasticThreadPool(5, 0.2, "test")
    start_threads(pool, 5)

    def only_one_is_left() -> bool:
        pool.submit(threading.get_ident).result(60)
        return len(new_threads(before)) == 1

    assert wait_until(only_one_is_left)
    pool.shutdown()


def start_threads(pool: ElasticThreadPool, count: int) -> None:
    """Let a pool start its threads, and wait until they have worked."""
    barrier = threading.Barrier(count)
    assert len({future.result(60) for future in [pool.submit(barrier.wait) for _ in range(count)]}) == count
    assert wait_until(lambda: len(pool._idle) == count)


def test_ending_thread_can_be_replaced() -> None:
    pool = ElasticThreadPool(1, 0.0002, "test")
    for i in range(3000):
        assert pool.submit(lambda i=i: i).result(60) == i  # type: ignore[misc]
        time.sleep(0.0002)
    pool.shutdown()


def test_shutdown_finishes_queued_work_and_rejects_more() -> None:
    before = threading.enumerate()
    pool = ElasticThreadPool(2, 60, "test")
    futures = [pool.submit(time.sleep, 0.01) for _ in range(10)]
    pool.shutdown()
    assert all(future.done() for future in futures)
    assert not new_threads(before)
    with pytest.raises(RuntimeError):
        pool.submit(print)


def test_idle_thread_does_not_keep_work_alive() -> None:
    class Thing:
        pass

    pool = ElasticThreadPool(1, 60, "test")
    thing = Thing()
    gone = weakref.ref(thing)
    pool.submit(id, thing).result(60)
    del thing
    gc.collect()
    assert wait_until(lambda: gone() is None)
    pool.shutdown()


def test_work_waits_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception would end the thread that serves all calls."""
    pool = ElasticThreadPool(3, 60, "test")

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", start)
        first = pool.submit(pow, 2, 3)
    assert not first.done()
    assert pool.submit(pow, 2, 4).result(60) == 16
    assert first.result(60) == 8
    pool.shutdown()
