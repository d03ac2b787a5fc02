# Generated from aio/stream.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Streams: step-by-step executions of a model with states, which stay on the device between the steps.

with prepared.stream() as stream:
    for window in windows:
        (score,) = stream.step([window])
"""

from typing import Any, Protocol

from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.handles import Closeable
from nnhal.client.core.streams import StreamIO, lost_stream
from nnhal.client.sync.concurrency import Lock
from nnhal.errors import DeadObjectError, SessionLostError


class StateHolder(Protocol):
    """Place for the value of a state."""

    def close(self) -> None:
        """Free the value."""


class StatefulModel(Protocol):
    """Prepared model, as a stream uses it."""

    def execute(self, inputs: Any, *, outputs: Any, deadline: float | None, measure_timing: bool) -> Any:
        """Run the model with buffers: see `PreparedModel.execute`."""

    def allocate_state(self, input_: int, output: int) -> StateHolder:
        """Return a place, such as a buffer, for a state, given the positions of its input and its output."""

    def renew(self) -> None:
        """Connect and prepare the model again if the service has restarted."""


class Stream(Closeable):
    """Stream of executions of one prepared model. Each step starts with the states that the previous one left.

    Driver-managed buffers hold the states, two for each: one is read while the other is written. If the client's
    machine runs a part of the model, the client holds them. Steps run one after
    the other. The states are lost when the service restarts; `reset` begins anew.
    """

    def __init__(self, model: StatefulModel, io: StreamIO) -> None:
        self._model = model
        self._io = io
        self._lock = Lock()
        self._buffers: list[tuple[StateHolder, StateHolder]] = []
        self._is_lost = self._has_state = False

    def step(self, inputs: Inputs, *, deadline: float | None = None, measure_timing: bool = False) -> Outputs:
        """Run the model once. If it fails, the states remain what they were.

        Args:
            inputs: one array per input of the model that is not a state, by position or by name.
            deadline: seconds from now.
            measure_timing: whether to fill `timing` of the result.

        Returns:
            one array per output that is not a state.

        Raises:
            SessionLostError: the states were lost with the session. Call `reset`, or open another stream.
            HalError: an input does not match its operand; MISSED_DEADLINE_*; or the execution failed.
        """
        with self._lock:
            if self._is_lost:
                raise lost_stream()
            try:
                return self._step(inputs, deadline, measure_timing)
            except (SessionLostError, DeadObjectError) as error:
                self._is_lost = True
                raise lost_stream() from error

    def _step(self, inputs: Inputs, deadline: float | None, measure_timing: bool) -> Outputs:
        if not self._buffers:
            self._buffers = [
                (self._model.allocate_state(*pair), self._model.allocate_state(*pair))
                for pair in self._io.state_positions
            ]
        states = [current for current, _ in self._buffers] if self._has_state else self._io.initial
        outputs = self._model.execute(
            self._io.with_states(inputs, states),
            outputs=self._io.state_outputs([spare for _, spare in self._buffers]),
            deadline=deadline,
            measure_timing=measure_timing,
        )
        self._buffers = [(spare, current) for current, spare in self._buffers]
        self._has_state = True
        return self._io.without_states(outputs)

    def reset(self) -> None:
        """Return to the initial states. After a restart of the service, connect to it again."""
        with self._lock:
            self._release()
            self._model.renew()
            self._is_lost = self._has_state = False

    def close(self) -> None:
        """Release the buffers."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        for pair in self._buffers:
            for buffer in pair:
                buffer.close()
        self._buffers = []
        self._has_state = False
