"""Observation of executions: what has come of one, for the recorder and the shadow."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from nnhal import wire
from nnhal.errors import HalError, well_formed
from nnhal.types import DTYPES, AnyArray, ErrorStatus, ExecutionResult, Memory
from nnhal_driver.execution.buffer import ResolvedBuffer
from nnhal_driver.execution.plan_model import model_of
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest
from nnhal_service.metrics.calls import MeteredCall, status_label

Arrays: TypeAlias = Sequence[AnyArray | None]
ModelFacts: TypeAlias = tuple[str, Mapping[str, int]]
_FACTS: WeakKeyDictionary[PreparedModel, ModelFacts] = WeakKeyDictionary()


def encoded_model(model: PreparedModel) -> bytes:
    """Return the message of a model."""
    return wire.model_message(model_of(model.plan)).SerializeToString()


def model_facts(model: PreparedModel) -> ModelFacts:
    """Return the digest of a model, and the number of its operations by backend."""
    facts = _FACTS.get(model)
    if facts is None:
        digest = model.digest or hashlib.sha256(encoded_model(model)).digest()
        backends = Counter(operation.backend for operation in model.placement.operations)
        facts = _FACTS[model] = digest.hex(), dict(backends)
    return facts


@dataclass(frozen=True, slots=True)
class ObservedExecution:
    """Execution that has ended, before its client has the result.

    Attributes:
        status: "ok", or the name of the error in lower case.
        duration_ns: since its receipt.
        inputs: copies of the inputs; None for an omitted one.
        outputs: views of the outputs, which the client may change later; None where there is no value.
    """

    identity: str
    model: PreparedModel
    call: MeteredCall
    status: str
    duration_ns: int
    inputs: Arrays
    outputs: Arrays

    def document(self, share: float, *, has_values: bool = True) -> dict[str, Any]:
        """Return the JSON object of its record (docs/recording.md)."""
        digest, backends = model_facts(self.model)
        return {
            "model": digest,
            "backends": backends,
            "device": self.model.device,
            "path": self.call.path,
            "started": time.time() - self.duration_ns / 1e9,
            "duration_ns": self.duration_ns,
            "queued_ns": self.call.queued_ns,
            "device_ns": self.call.device_ns,
            "status": self.status,
            "inputs": [_describe(array, has_values=has_values) for array in self.inputs],
            "outputs": [_describe(array, has_values=has_values) for array in self.outputs],
            "has_values": has_values,
            "share": share,
        }

    @property
    def values(self) -> dict[str, AnyArray]:
        """Its arrays, by their names in a record."""
        named = (("input", self.inputs), ("output", self.outputs))
        return {f"{kind}{i}": a for kind, arrays in named for i, a in enumerate(arrays) if a is not None}


def _describe(array: AnyArray | None, *, has_values: bool) -> Mapping[str, Any] | None:
    """Return the shape of a tensor, and its digest if that takes the place of its values."""
    if array is None:
        return None
    described: dict[str, Any] = {"shape": array.shape, "dtype": array.dtype.name}
    if not has_values:
        described["sha256"] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return described


class Observation:
    """Execution that is observed, for each of some receivers.

    Args:
        receivers: called with the execution at its end, before the client has its result. They must not raise.
    """

    def __init__(
        self,
        call: MeteredCall,
        identity: str,
        model: PreparedModel,
        receivers: Sequence[Callable[[ObservedExecution], None]],
    ) -> None:
        self._call = call
        self._identity = identity
        self._model = model
        self._receivers = receivers

    def observe(self, request: ValidRequest, run: Callable[[], ExecutionResult]) -> ExecutionResult:
        """Run an execution, and hand it to the receivers. See `ExecutionObserver`."""
        inputs = [
            np.array(array) if isinstance(array, np.ndarray) else None
            for array in BoundRequest(request, self._model.outputs, private=False).inputs
        ]
        try:
            result = run()
        except BaseException as error:
            status = well_formed(error).status if isinstance(error, HalError) else ErrorStatus.GENERAL_FAILURE
            self._hand_over(inputs, (), status)
            raise
        if result.output_sufficient_size:
            self._hand_over(inputs, self._outputs(request, result), ErrorStatus.NONE)
        else:
            self._hand_over(inputs, (), ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)
        return result

    def _hand_over(self, inputs: Arrays, outputs: Arrays, status: int) -> None:
        call, label, duration_ns = self._call, status_label(status), time.perf_counter_ns() - self._call.received_ns
        observed = ObservedExecution(self._identity, self._model, call, label, duration_ns, inputs, outputs)
        for receive in self._receivers:
            receive(observed)

    def _outputs(self, request: ValidRequest, result: ExecutionResult) -> Arrays:
        """Return the outputs, as views of where the execution has written them."""
        arrays: list[AnyArray | None] = []
        returned = result.returned or (None,) * len(result.output_shapes)
        rows = zip(self._model.outputs, request.output_bindings, result.output_shapes, returned, strict=True)
        for operand, binding, shape, data in rows:
            pool = request.pools[binding.pool] if binding is not None else None
            if isinstance(pool, ResolvedBuffer):
                data = pool.state.value.read() if pool.state.value is not None else None
            elif isinstance(pool, Memory) and binding is not None:
                data = pool.view[binding.start : binding.end]
            if data is None:
                arrays.append(None)
                continue
            dtype = DTYPES.get(operand.type)
            size = int(np.prod(shape.dimensions)) * dtype.itemsize if dtype is not None else data.size
            raw = np.ascontiguousarray(data[:size])
            arrays.append(raw if dtype is None else raw.view(dtype).reshape(shape.dimensions))
        return arrays
