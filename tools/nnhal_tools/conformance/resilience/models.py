"""Models that no service has seen before.

A service may refuse a model that was in progress in several crashes, so that no two ends of a process may concern the
same model.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckFailed, ConnectionLost, Skipped
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome, PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.requests import inline_request

F32, I32, BOOL8 = "TENSOR_FLOAT32", "TENSOR_INT32", "TENSOR_BOOL8"

SIZE, LARGE = 32, 250_000
"""Numbers of elements of a tensor: by default, and of one that takes some time to save."""
LIMIT = 8
"""Constants and inputs are integers of at most this size, so that sums of float32 are exact."""
SHORT, LONG = 3, 400
"""Numbers of operations: of a model that is prepared at once, and of one that takes some time."""

_RNG = np.random.default_rng()


def random_values(size: int = SIZE) -> AnyArray:
    """Return small integers as float32."""
    return _RNG.integers(-LIMIT, LIMIT + 1, size).astype(np.float32)


def require_alive(outcome: CallOutcome) -> CallOutcome:
    """Return an outcome, unless it reports the end of the service or of the session.

    Raises:
        ConnectionLost: it does.
    """
    if outcome.status == ErrorStatus.DEVICE_UNAVAILABLE:
        raise ConnectionLost(str(outcome))
    return outcome


@dataclass(frozen=True)
class AddChain:
    """Chain of additions of the same random constant."""

    length: int
    constant: AnyArray

    @staticmethod
    def random(length: int = SHORT, size: int = SIZE) -> "AddChain":
        """Return a chain that differs from all others."""
        return AddChain(length, random_values(size))

    @cached_property
    def model(self) -> types_pb2.Model:
        """The model."""
        graph, shape = CaseGraph(), self.constant.shape
        constant, activation = graph.constant(F32, self.constant), graph.int32(0)
        graph.chain(F32, shape, [("ADD", [constant, activation])] * self.length)
        zeros = np.zeros(shape)
        return make_case("chain", graph, [zeros], [zeros]).model()

    @staticmethod
    def request(values: AnyArray) -> types_pb2.Request:
        """Return a request: the input inline in pool 0, the output in a ReturnedPool."""
        return inline_request([values], [values.nbytes])

    def expect_correct(self, id_: str, stimulus: str, values: AnyArray, execution: ExecutionOutcome) -> None:
        """Check that an execution succeeded with the right output.

        Raises:
            ConnectionLost: it ended with the service.
            CheckFailed: it failed otherwise, or its output is wrong.
        """
        require_alive(execution.outcome)
        if execution.outcome.status != ErrorStatus.NONE:
            raise CheckFailed(id_, stimulus, "NONE, or UNAVAILABLE", execution.outcome)
        self.expect_values(id_, stimulus, values, b"".join(execution.output_bytes))

    def expect_values(self, id_: str, stimulus: str, values: AnyArray, output: bytes) -> None:
        """Check the bytes of the output for an input."""
        expected = values + np.float32(self.length) * self.constant
        got = np.frombuffer(output, np.float32) if len(output) == expected.nbytes else f"{len(output)} bytes"
        if not np.array_equal(got, expected):
            raise CheckFailed(id_, f"{stimulus}: the output", f"{expected[:4]}...", got)

    def check_execution(self, id_: str, stimulus: str, session: Target, model: bytes) -> None:
        """Execute the prepared model on a random input, and check the output; see `expect_correct`."""
        values = random_values(self.constant.size)
        self.expect_correct(id_, stimulus, values, session.execute(model, self.request(values)))

    def prepared(self, session: Target) -> bytes:
        """Prepare the model, and return its handle; see `require_model`."""
        return require_model(session.prepare(self.model))


def endless_loop() -> tuple[types_pb2.Model, types_pb2.Request]:
    """Return a WHILE that only the loop timeout ends, and a request for it."""
    condition, body, main = CaseGraph(), CaseGraph(), CaseGraph()
    counter = condition.input(I32, (1,))
    condition.input(F32, (SIZE,))
    condition.apply("LESS", [counter, condition.constant(I32, [1])], [condition.output(BOOL8, (1,))])
    counter, value = body.input(I32, (1,)), body.input(F32, (SIZE,))
    activation = body.int32(0)
    body.apply("ADD", [counter, body.constant(I32, [0]), activation], [body.output(I32, (1,))])
    body.apply("ADD", [value, body.constant(F32, random_values()), activation], [body.output(F32, (SIZE,))])
    inputs = [main.subgraph(0), main.subgraph(1), main.input(I32, (1,)), main.input(F32, (SIZE,))]
    main.apply("WHILE", inputs, [main.output(I32, (1,)), main.output(F32, (SIZE,))])
    values = [np.zeros(1, np.int32), np.zeros(SIZE, np.float32)]
    request = inline_request(values, [value.nbytes for value in values])
    return make_case("endless", main, values, values, referenced=[condition, body]).model(), request


def require_model(preparation: PreparationOutcome) -> bytes:
    """Return the prepared model.

    Raises:
        ConnectionLost: the preparation ended with the service.
        Skipped: X1.
    """
    require_alive(preparation.launch)
    if not preparation.model:
        raise Skipped("X1", f"the model is not prepared: {require_alive(preparation.callback)}")
    return preparation.model
