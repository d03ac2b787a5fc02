"""The pool of calls: as many threads as are needed, at most the limit, and none for long without work."""

import gc
import threading
import time
import weakref

import pytest

from service.threads import CallPool


def until(condition: object, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def test_results_and_errors() -> None:
    pool = CallPool(2, 1, "test")
    assert pool.submit(pow, 2, 5).result(5) == 32
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(5)
    assert pool.submit(int, "7", base=8).result(5) == 7
    pool.shutdown()


def test_as_many_threads_as_there_is_work_up_to_the_limit() -> None:
    pool = CallPool(3, 5, "test")
    go, running = threading.Event(), threading.Semaphore(0)

    def work() -> int:
        running.release()
        go.wait(5)
        return threading.get_ident()

    futures = [pool.submit(work) for _ in range(3)]
    for _ in range(3):
        assert running.acquire(timeout=5)
    futures += [pool.submit(work) for _ in range(3)]
    assert len(pool._alive) == 3
    assert not running.acquire(timeout=0.05)
    go.set()
    assert len({future.result(5) for future in futures}) == 3
    pool.shutdown()


def test_an_idle_thread_is_used_again() -> None:
    pool = CallPool(10, 5, "test")
    idents = set()
    for _ in range(20):
        idents.add(pool.submit(threading.get_ident).result(5))
        assert until(lambda: len(pool._idle) == 1)
    assert len(idents) == 1
    pool.shutdown()


def test_idle_threads_end_and_work_comes_after_all() -> None:
    before = threading.active_count()
    pool = CallPool(10, 0.05, "test")
    for _ in range(3):
        for future in [pool.submit(time.sleep, 0.01) for _ in range(10)]:
            future.result(5)
        assert until(lambda: threading.active_count() == before)
        assert not pool._idle
    assert pool.submit(pow, 2, 3).result(5) == 8
    pool.shutdown()


def test_nothing_is_lost_when_threads_end_all_the_time() -> None:
    pool = CallPool(4, 0.0005, "test")
    for i in range(2000):
        assert pool.submit(lambda i=i: i).result(5) == i  # type: ignore[misc]
        if i % 3 == 0:
            time.sleep(0.0005)
    pool.shutdown()


def test_work_goes_to_the_thread_that_got_ready_last() -> None:
    before = threading.active_count()
    pool = CallPool(5, 0.3, "test")
    barrier = threading.Barrier(5)
    crowd = {future.result(5) for future in [pool.submit(barrier.wait) for _ in range(5)]}
    assert len(crowd) == 5
    assert until(lambda: len(pool._idle) == 5)
    idents = set()
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        idents.add(pool.submit(threading.get_ident).result(5))
        assert until(lambda: pool._idle)
        time.sleep(0.01)
    assert len(idents) == 1
    assert threading.active_count() == before + 1, "the others have ended though there was work all the time"
    pool.shutdown()


def test_the_only_thread_makes_place_as_it_ends() -> None:
    pool = CallPool(1, 0.0002, "test")
    for i in range(3000):
        assert pool.submit(lambda i=i: i).result(5) == i  # type: ignore[misc]
        time.sleep(0.0002)
    pool.shutdown()


def test_shutdown_finishes_what_is_queued_and_refuses_more() -> None:
    before = threading.active_count()
    pool = CallPool(2, 5, "test")
    futures = [pool.submit(time.sleep, 0.01) for _ in range(10)]
    pool.shutdown()
    assert all(future.done() for future in futures)
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        pool.submit(print)


def test_an_idle_thread_keeps_nothing_alive() -> None:
    class Thing:
        pass

    pool = CallPool(1, 5, "test")
    thing = Thing()
    gone = weakref.ref(thing)
    pool.submit(id, thing).result(5)
    del thing
    gc.collect()
    assert until(lambda: gone() is None)
    pool.shutdown()


def test_work_waits_where_there_is_no_memory_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error would end the thread that serves all calls."""
    pool = CallPool(3, 5, "test")

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", start)
        first = pool.submit(pow, 2, 3)
    assert not first.done()
    assert pool.submit(pow, 2, 4).result(5) == 16
    assert first.result(5) == 8
    pool.shutdown()
