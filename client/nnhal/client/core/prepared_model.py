"""Common base of the prepared models of both clients, and the messages of preparations and executions."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, NamedTuple

from nnhal import wire
from nnhal.client.core.arguments import optional_nanoseconds
from nnhal.client.core.arrays import ModelIO, Outputs, TensorInfo, output_array
from nnhal.client.core.handles import C, description, release_with
from nnhal.client.core.request_templates import RequestTemplates
from nnhal.errors import HalError, SessionLostError, reported_type
from nnhal.litert_extension import element_dtypes
from nnhal.types import (
    Bytes,
    ErrorStatus,
    ExecutionResult,
    Model,
    ModelState,
    Operand,
    Placement,
    PreparationWarning,
)
from nnhal.v1 import device_pb2, prepared_model_pb2, types_pb2


class RemoteModel(NamedTuple, Generic[C]):
    """Prepared model on the service: the connection and the handle there."""

    connection: C
    handle: bytes


# ---- Preparation ----------------------------------------------------------------------------------------


def notify_error(notify: device_pb2.Notify) -> HalError | None:
    """Return the error that a preparation reported, or None if it succeeded."""
    if int(notify.status) == ErrorStatus.NONE:
        return None
    return reported_type(notify.status)(notify.status, notify.reason, rule=notify.rule, request=notify.request)


def constants_changed() -> SessionLostError:
    """Return the error of a model that cannot be prepared again, because it is no longer the same."""
    reason = "the session has ended, and the model's constants have changed since; prepare it again"
    return SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, reason)


def missing_notify_error() -> HalError:
    """Return the error of a preparation that ended without reporting a result."""
    return HalError(ErrorStatus.GENERAL_FAILURE, "the service ended the preparation without a result")


# ---- Execution ------------------------------------------------------------------------------------------


def empty_execute_request(
    session: bytes, handle: bytes, deadline: float | None, measure_timing: bool
) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    """Return the message of an execution, without its arguments."""
    return prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=session,
        prepared_model=handle,
        measure_timing=measure_timing,
        deadline_ns=optional_nanoseconds(deadline),
    )


def memory_handles(returned: Iterable[types_pb2.ReturnedOutput]) -> list[bytes]:
    """Return the handles of the Memory objects that hold outputs. The client must release them."""
    return [handle for output in returned if (handle := output.memory)]


def decode_outputs(io: ModelIO, response: types_pb2.ExecutionResult, memories: Mapping[bytes, Bytes]) -> Outputs:
    """Return the outputs of an execution as arrays, given the bytes of Memory objects by handle."""
    triples = zip(io.outputs, response.returned, response.output_shapes, strict=True)
    arrays = [
        output_array(operand, _output_bytes(message, memories), tuple(shape.dimensions))
        for operand, message, shape in triples
    ]
    return Outputs.of(arrays, io.output_names, wire.to_timing(response.timing))


def decode_result(response: types_pb2.ExecutionResult, memories: Mapping[bytes, Bytes]) -> ExecutionResult:
    """Return the result of an execution, given the bytes of Memory objects by handle."""
    return wire.to_result(response, lambda message: _output_bytes(message, memories))


def _output_bytes(message: types_pb2.ReturnedOutput, memories: Mapping[bytes, Bytes]) -> Bytes | None:
    if handle := message.memory:
        return memories[handle]
    return wire.read_inline_output(message)


class DescribedModel:
    """Inputs, outputs and states of a prepared model.

    Attributes:
        owner: the device if it belongs to the model, as of `nnhal.load`, and is closed with it.
    """

    owner: Any = None

    def __init__(
        self,
        inputs: tuple[TensorInfo, ...],
        outputs: tuple[TensorInfo, ...],
        names: tuple[tuple[str, ...], tuple[str, ...]],
        states: tuple[ModelState, ...],
    ) -> None:
        self._inputs, self._outputs, self._states = inputs, outputs, states
        self._io = ModelIO(inputs, outputs, *names)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Inputs, each with `name`, `shape` and `dtype`."""
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Outputs, each with `name`, `shape` and `dtype`."""
        return self._outputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, or ()."""
        return self._io.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, or ()."""
        return self._io.output_names

    @property
    def states(self) -> tuple[ModelState, ...]:
        """Variables that are an input and an output: see `stream`."""
        return self._states


class PreparedModelBase(DescribedModel):
    """Prepared model of either client, without the calls.

    Raises:
        HalError: the preparation failed.

    Attributes:
        warnings: problems that did not make the preparation fail.
        cache: outcome of the compilation cache: HIT; SAVED, with the reason of the miss; or NOT_SAVED, with the reason.
    """

    def __init__(self, notify: device_pb2.Notify, model: Model, device: str, discard: Callable[[bytes], None]) -> None:
        if (error := notify_error(notify)) is not None:
            raise error
        names = model.input_names, model.output_names
        operands = wire.to_notified_operands(notify)
        dtypes = element_dtypes(model.extension_name_to_prefix)
        inputs, outputs = (
            TensorInfo.all_of(*values[:2], dtypes, wire.to_extension_types(notify), values[2])
            for values in zip(operands, names, (model.normalizations, ()), strict=True)
        )
        super().__init__(inputs, outputs, names, model.states)
        self._device = device
        self._templates = RequestTemplates(self._io)
        self._update(notify)
        self._finalizer = release_with(self, discard, notify.prepared_model)

    def _update(self, notify: device_pb2.Notify) -> None:
        self._placement = notify.placement
        vars(self).pop("placement", None)  # the cached property
        self.warnings = [PreparationWarning(warning.code, warning.text) for warning in notify.warnings]
        self.cache = wire.to_cache_outcome(notify.cache)
        self._handle = notify.prepared_model
        self._digest = notify.model_digest

    def _rebind(self, notify: device_pb2.Notify, discard: Callable[[bytes], None]) -> None:
        """Replace the model on the service, which was lost with its session.

        Raises:
            HalError: the preparation failed.
            SessionLostError: the model has been closed or changed meanwhile.
        """
        if (error := notify_error(notify)) is not None:
            raise error
        if self._digest and notify.model_digest and notify.model_digest != self._digest:
            discard(notify.prepared_model)
            raise constants_changed()
        if self._finalizer.detach() is None:
            discard(notify.prepared_model)
            raise SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, "the prepared model has been closed")
        self._update(notify)
        self._finalizer = release_with(self, discard, notify.prepared_model)

    @cached_property
    def placement(self) -> Placement:
        """Backend of each operation, with reasons."""
        return wire.to_placement(self._placement)

    @property
    def handle(self) -> bytes:
        """Handle of the model on the service."""
        return self._handle

    def io_operand(self, key: int | str, *, is_output: bool) -> tuple[int, Operand]:
        """Return the position and the operand of an input or output, given by position or name.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input or output.
        """
        index = self._io.io_index(key, is_output=is_output)
        return index, (self.outputs if is_output else self.inputs)[index]

    def __repr__(self) -> str:
        return description(self, self._io.description, closed=not self._finalizer.alive)
