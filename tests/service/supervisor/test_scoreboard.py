"""Scoreboard: another process reads what a worker writes."""

import os
import signal
from dataclasses import replace

from nnhal_driver.activity import ActivityTable, Stage, read_activities
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_service.supervisor.addresses import WorkerAddresses
from nnhal_service.supervisor.scoreboard import MAX_WORKERS, NOBODY, ROWS, Scoreboard, WorkerState
from nnhal_service.supervisor.worker_directory import WorkerDirectory
from tests.concurrency import in_own_process, wait_until

BOARD = Scoreboard()


def serving(slot: int, sessions: int = 0) -> WorkerDirectory:
    BOARD.set_port(slot, slot + 1)
    status = replace(NOBODY, pid=slot + 1, slot=slot)
    directory = WorkerDirectory(BOARD, slot, status, WorkerAddresses((), slot + 1, "unix:/s"))
    directory.report(WorkerState.SERVING, 1, sessions, 0)
    return directory


@in_own_process
def test_rows_are_read_by_another_process() -> None:
    board = Scoreboard()
    status = replace(
        NOBODY, pid=5, slot=2, state=WorkerState.SERVING, heartbeat_ns=3, sessions=4, redirects=(7,) * MAX_WORKERS
    )
    pid = os.fork()
    if pid == 0:
        board.write(ROWS - 1, status)
        ActivityTable(board.activities(ROWS - 1)).begin(Stage.LOADING, b"d" * 32 + b"c" * 16)
        os._exit(0)
    os.waitpid(pid, 0)
    assert board.read(ROWS - 1) == status
    assert list(board.serving()) == [status]
    (activity,) = read_activities(board.activities(ROWS - 1), [])
    assert (activity.stage, activity.digest, activity.client) == (Stage.LOADING, b"d" * 32, b"c" * 16)
    board.clear(ROWS - 1)
    assert board.read(ROWS - 1) == NOBODY and list(board.serving()) == []
    assert read_activities(board.activities(ROWS - 1), []) == []


@in_own_process
def test_a_row_is_never_read_half_written() -> None:
    board = Scoreboard()
    reports = [replace(NOBODY, pid=5, state=WorkerState.SERVING, heartbeat_ns=at, sessions=at) for at in (1, 2)]
    board.write(0, reports[0])
    pid = os.fork()
    if pid == 0:
        for number in range(1_000_000):
            board.write(0, reports[number % 2])
        os._exit(0)
    try:
        assert wait_until(lambda: board.read(0) == reports[1])
        seen = {board.read(0) for _ in range(10_000)}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert seen <= set(reports)


def test_writing_a_row_leaves_its_work() -> None:
    board = Scoreboard()
    ActivityTable(board.activities(0)).begin(Stage.EXECUTING, b"", cancellation=Cancellation())
    board.write(0, replace(NOBODY, pid=1))
    assert len(read_activities(board.activities(0), [])) == 1


def test_new_clients_go_to_the_least_loaded_worker() -> None:
    serving(1, sessions=5), serving(2, sessions=3)
    own = serving(0, sessions=4)
    assert own.choose("ipv4", 4, b"") == ":3"
    assert own.choose("ipv4", 4, b"") == ":1", "the client that was sent away counts there"
    assert own.choose("ipv4", 4, b"") in (":2", ":3", ":1")


def test_unix_clients_stay_at_a_worker_that_is_not_busier() -> None:
    serving(1, sessions=1), serving(2, sessions=1)
    own = serving(0)
    assert own.choose("unix", 0, b"") == ""
    assert own.choose("unix", 9, b"") in ("unix:/s.1", "unix:/s.2")


def test_resumptions_go_to_the_owner() -> None:
    own = serving(0)
    assert own.choose("ipv4", 0, b"token\x01") == ":2"
    assert own.choose("unix", 0, b"token\x02") == "unix:/s.2"
    assert own.choose("unix", 0, b"token\x00") == ""
    assert own.choose("ipv4", 0, b"foreign\xff") == ""


def test_redirects_of_other_workers_count() -> None:
    other = serving(1)
    own = serving(0)
    serving(2, sessions=1)
    other.choose("ipv4", 0, b"")  # it keeps this one
    other.report(WorkerState.SERVING, 2, 0, 0)
    assert own.choose("ipv4", 0, b"") == ":1"
    assert BOARD.read(1).redirects[1] == 1


def test_drained_workers_get_no_clients() -> None:
    serving(2, sessions=9)
    drained = serving(1)
    drained.report(WorkerState.DRAINING, 2, 0, 0)
    own = serving(0, sessions=20)
    assert own.choose("ipv4", 20, b"") == ":3"
