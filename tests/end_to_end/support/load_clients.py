"""Clients that execute on every path until they are told to stop, and check each answer."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import nnhal
import nnhal.aio
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.concurrency import wait_until

SIZE = 1000
WEIGHTS = np.arange(SIZE, dtype=np.float32)
TIMEOUT_S = 120
"""Timeout of a client. A service that is gone for longer than this counts as lost."""

Call = Literal["execute", "burst", "submit"]
CALLS: Sequence[Call] = ("execute", "burst", "submit")


def adding_model(rank: int = 1) -> nnhal.Model:
    """Return a model that adds constants to its input, whose last dimension has `SIZE` elements."""
    b = nnhal.ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, _shape(rank))
    b.output(b.add(Op.ADD, x, WEIGHTS.reshape(_shape(rank)), 0, output=x.description))
    return b.build()


def _shape(rank: int) -> tuple[int, ...]:
    return (*[1] * (rank - 1), SIZE)


@dataclass(frozen=True, slots=True)
class Path:
    """Way to execute.

    Attributes:
        is_async: whether the client is that of asyncio.
        transport: "grpc", or "auto" for shared memory.
        call: the method.
    """

    is_async: bool
    transport: Literal["auto", "grpc"]
    call: Call

    def __str__(self) -> str:
        return f"{'asyncio' if self.is_async else 'sync'} {self.transport} {self.call}"


class LoadClient:
    """One client on a thread of its own. Call `stop` at the end.

    Attributes:
        path: how it executes.
        rank: rank of its model.
        answers: times of its answers (`time.monotonic()`).
        failures: what ended it.
    """

    def __init__(self, target: str, path: Path, rank: int = 1) -> None:
        self.path = path
        self.rank = rank
        self.answers: list[float] = []
        self.failures: list[BaseException] = []
        self._target = target
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=str(path), daemon=True)
        self._thread.start()

    def has_answered_since(self, moment: float) -> bool:
        """Return whether it got an answer after a moment, or has failed."""
        return bool(self.failures) or (bool(self.answers) and self.answers[-1] > moment)

    def stop(self) -> None:
        """Stop it. Check that nothing failed."""
        self._stopped = True
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.path} hangs"
        assert self.failures == [], (str(self.path), self.failures)

    def _run(self) -> None:
        try:
            asyncio.run(self._work_async()) if self.path.is_async else self._work()
        except BaseException as error:
            self.failures.append(error)

    def _input(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.full(_shape(self.rank), len(self.answers), np.float32)

    def _check(self, outputs: Sequence[Any]) -> None:
        np.testing.assert_array_equal(outputs[0], self._input() + WEIGHTS)
        self.answers.append(time.monotonic())

    def _work(self) -> None:
        with ExitStack() as stack:
            device = stack.enter_context(nnhal.connect(self._target, timeout=TIMEOUT_S, transport=self.path.transport))
            prepared = stack.enter_context(device.prepare(adding_model(self.rank), cache=True).result(TIMEOUT_S))
            execute: Callable[[Any], Any] = prepared.execute
            if self.path.call != "execute":
                burst = stack.enter_context(prepared.burst())
                execute = burst.execute
                if self.path.call == "submit":
                    execute = lambda inputs: burst.submit(inputs).result(TIMEOUT_S)  # noqa: E731
            while not self._stopped:
                self._check(execute([self._input()]))

    async def _work_async(self) -> None:
        async with AsyncExitStack() as stack:
            connection = nnhal.aio.connect(self._target, timeout=TIMEOUT_S, transport=self.path.transport)
            device = await stack.enter_async_context(connection)
            prepared = await device.prepare(adding_model(self.rank), cache=True)
            execute: Callable[[Any], Awaitable[Any]] = prepared.execute
            if self.path.call != "execute":
                burst = await stack.enter_async_context(prepared.burst())
                execute = burst.execute
            while not self._stopped:
                self._check(await execute([self._input()]))


def wait_for_answers(clients: Sequence[LoadClient]) -> None:
    """Wait until each client has an answer from now on."""
    now = time.monotonic()
    assert wait_until(lambda: all(client.has_answered_since(now) for client in clients), TIMEOUT_S)
    for client in clients:
        assert client.failures == [], (str(client.path), client.failures)
