"""Priorities of several clients (EXTRA-27)."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import PreparationOptions, RunOptions
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import (
    builtin_case,
    builtin_request,
    expect_correct,
    prepared_model,
    supported_model,
)

LOW, HIGH = 0, 2

HIGH_COUNT = 12
"""Number of clients' threads that execute at priority HIGH without a pause."""
HIGH_NS = 20_000_000
"""Duration of each of their executions."""
ROUNDS = 3


@check("EXTRA-27", exclusive=True)
def clients_of_different_priority(target: Target, recorder: CheckRecorder) -> None:
    """Check that a client of priority LOW makes progress while another one keeps the device busy at HIGH.

    The busy client stops when the other one has finished, or after a number of executions that a device without
    starvation never reaches.
    """
    with target.new_session() as busy, target.new_session() as other, prepared_model(busy, "while_without_end") as _:
        model = busy.prepare(builtin_case("while_without_end").model(), PreparationOptions(priority=HIGH)).model
        quiet = other.prepare(supported_model(other, builtin_case("add_float")), PreparationOptions(priority=LOW)).model
        with _busy_client(busy, model) as load:
            load.started.wait()
            executions = [other.execute(quiet, builtin_request("add_float")) for _ in range(ROUNDS)]
            starved = load.exhausted.is_set()
    stimulus = f"{ROUNDS} executions at LOW, while another client keeps the device busy at HIGH"
    for execution in executions:
        expect_correct(recorder, "add_float", execution, stimulus)
    expected = f"an end before {HIGH_COUNT * Load.LIMIT} executions of the other client"
    recorder.expect(not starved, stimulus, expected, "all of them came first")


class Load:
    """State of a client that executes without a pause.

    `started` is set when an execution has ended, so that the others are running or waiting. `exhausted` is set when a
    thread has reached its limit of executions. The check sets `stopped` to stop the threads.
    """

    LIMIT = 25
    """Executions of a thread."""

    def __init__(self) -> None:
        self.started, self.exhausted, self.stopped = threading.Event(), threading.Event(), threading.Event()

    def run(self, target: Target, model: bytes) -> None:
        """Execute until the check stops the load."""
        run, request = RunOptions(loop_timeout_ns=HIGH_NS), builtin_request("while_without_end")
        for _ in range(self.LIMIT):
            if self.stopped.is_set():
                return
            target.execute(model, request, run)
            self.started.set()
        self.exhausted.set()


@contextmanager
def _busy_client(target: Target, model: bytes) -> Iterator[Load]:
    load = Load()
    with ThreadPoolExecutor(HIGH_COUNT) as threads:
        running = [threads.submit(load.run, target, model) for _ in range(HIGH_COUNT)]
        try:
            yield load
        finally:
            load.stopped.set()
    for thread in running:
        thread.result()
