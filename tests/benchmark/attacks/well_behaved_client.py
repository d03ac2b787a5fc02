"""Client that measures how long its calls take, as a process of its own.

It executes a small model, opens sessions, and checks the health of the service. With `NAME=VALUE` lines on its standard
input the parent names the phase that the following calls belong to; the end of the input ends the client, which then
prints the durations of all calls as JSON.
"""

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

import nnhal
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor

TIMEOUT_S = 10.0
"""Seconds after which a call counts as failed."""
EXECUTE, SESSION, HEALTH = "execute", "session", "health"
_PAUSES_S = {EXECUTE: 0.02, SESSION: 0.2, HEALTH: 0.05}

_X = tensor(T.TENSOR_FLOAT32, (4,))
_MODEL = model_of(Op.ADD, [(_X, 0), (_X, 0), int32(0)], [_X], constants=False)
_ONES = np.ones(4, np.float32)


class WellBehavedClient:
    """Threads that repeat one kind of call each, and the durations in milliseconds by phase and kind.

    Attributes:
        phase: name of the current phase.
        durations: of successful calls, by phase and kind.
        failures: texts of errors with their counts, by phase and kind.
    """

    def __init__(self, target: str) -> None:
        self.phase = ""
        self.durations: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.failures: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
        self._target = target
        self._over = threading.Event()
        self._prepared: nnhal.PreparedModel | None = None
        self._health = health_pb2_grpc.HealthStub(
            grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)])
        )
        kinds = {EXECUTE: self._execute, SESSION: self._open_session, HEALTH: self._check_health}
        self._threads = [
            threading.Thread(target=self._repeat, args=(kind, call), daemon=True) for kind, call in kinds.items()
        ]

    def start(self) -> None:
        """Start to call."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop to call, and wait for the last calls."""
        self._over.set()
        for thread in self._threads:
            thread.join(3 * TIMEOUT_S)

    def _repeat(self, kind: str, call: Callable[[], None]) -> None:
        while not self._over.is_set():
            phase, start = self.phase, time.perf_counter()
            try:
                call()
            except Exception as error:
                self._prepared = None if kind == EXECUTE else self._prepared
                text = error.code().name if isinstance(error, grpc.Call) else f"{type(error).__name__}: {error}"
                self.failures[phase][kind][text] += 1
            # a failed call counts with its time: a client that waits for an error waits as well
            self.durations[phase][kind].append((time.perf_counter() - start) * 1e3)
            self._over.wait(_PAUSES_S[kind])

    def _execute(self) -> None:
        if self._prepared is None:
            device = nnhal.connect(self._target, timeout=TIMEOUT_S, transport="grpc")
            self._prepared = device.prepare(_MODEL).result(TIMEOUT_S)
        self._prepared.execute([_ONES, _ONES], deadline=TIMEOUT_S)

    def _open_session(self) -> None:
        with nnhal.connect(self._target, timeout=TIMEOUT_S, transport="grpc") as device:
            device.prepare(_MODEL).result(TIMEOUT_S).execute([_ONES, _ONES], deadline=TIMEOUT_S)

    def _check_health(self) -> None:
        self._health.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)


def main() -> None:
    """Run a client of the service that the only argument names."""
    client = WellBehavedClient(sys.argv[1])
    client.start()
    for line in sys.stdin:
        client.phase = line.strip()
    client.stop()
    print(json.dumps({"durations": client.durations, "failures": client.failures}), flush=True)


if __name__ == "__main__":
    main()
