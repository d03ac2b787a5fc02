"""What the prepared models of both clients have in common, and the requests that preparation and execution send."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Generic, NamedTuple, TypeAlias

from nnhal import wire
from nnhal.errors import HalError, SessionLostError
from nnhal.owned import C, goes_with
from nnhal.templates import Templates
from nnhal.tensors import Ends, Outputs, output_array
from nnhal.types import Bytes, ErrorStatus, ExecutionResult, Model, Operand, Placement
from nnhal.v1 import device_pb2, prepared_model_pb2, types_pb2

Names: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of a model's inputs and outputs: they do not travel, so the client keeps them."""


class Place(NamedTuple, Generic[C]):
    """Where a prepared model is."""

    connection: C
    handle: bytes


def names_of(model: Model) -> Names:
    """The names in a model."""
    return model.input_names, model.output_names


def support_request(
    session: bytes, device: str, model: types_pb2.Model, *, explain: bool
) -> device_pb2.GetSupportedOperationsRequest:
    """Asks what of a model a device would run; `explain`: and where."""
    return device_pb2.GetSupportedOperationsRequest(session=session, device=device, model=model, explain=explain)


def prepare_request(
    session: bytes, device: str, model: types_pb2.Model, preference: int, priority: int, deadline: float | None
) -> device_pb2.PrepareModelRequest:
    """The request of a preparation."""
    return device_pb2.PrepareModelRequest(
        session=session,
        device=device,
        model=model,
        preference=preference,  # type: ignore[arg-type]
        priority=priority,  # type: ignore[arg-type]
        deadline_ns=nanoseconds(deadline),
    )


def nanoseconds(deadline: float | None) -> int | None:
    """A deadline in seconds as the contract has it."""
    return None if deadline is None else int(deadline * 1e9)


def failure(notify: device_pb2.Notify) -> HalError | None:
    """The error that a callback brought, if it did."""
    if int(notify.status) == ErrorStatus.NONE:
        return None
    return HalError(notify.status, notify.reason, rule=notify.rule)


def never_notified() -> HalError:
    """The error of a preparation that ended without a callback."""
    return HalError(ErrorStatus.GENERAL_FAILURE, "the service never notified")


def in_memory(returned: Iterable[types_pb2.ReturnedOutput]) -> list[bytes]:
    """Handles of the Memory objects that hold outputs; they are the client's to release."""
    return [handle for output in returned if (handle := output.memory)]


def read_results(ends: Ends, response: types_pb2.ExecutionResult, memories: Mapping[bytes, Bytes]) -> Outputs:
    """The outputs of a result. `memories`: the bytes of those that came as Memory objects, by handle."""
    triples = zip(ends.outputs, response.returned, response.output_shapes, strict=True)
    arrays = [
        output_array(operand, _returned(message, memories), tuple(shape.dimensions))
        for operand, message, shape in triples
    ]
    return Outputs.of(arrays, ends.output_names, wire.to_timing(response.timing))


def read_result(response: types_pb2.ExecutionResult, memories: Mapping[bytes, Bytes]) -> ExecutionResult:
    """A result with the bytes of its outputs. `memories`: of those that came as Memory objects, by handle."""
    return wire.to_result(response, lambda message: _returned(message, memories))


def _returned(message: types_pb2.ReturnedOutput, memories: Mapping[bytes, Bytes]) -> Bytes | None:
    if handle := message.memory:
        return memories[handle]
    return wire.read_inline_output(message)


def execute_request(
    session: bytes,
    handle: bytes,
    request: types_pb2.Request,
    deadline: float | None,
    measure_timing: bool,
) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    """The request of an execution."""
    message = new_execute_request(session, handle, deadline, measure_timing)
    message.request.CopyFrom(request)
    return message


def new_execute_request(
    session: bytes, handle: bytes, deadline: float | None, measure_timing: bool
) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    """The request of an execution, without its arguments."""
    return prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=session, prepared_model=handle, measure_timing=measure_timing, deadline_ns=nanoseconds(deadline)
    )


def encoded_deadline(deadline: float) -> bytes:
    """What gives an encoded request of an execution a deadline, in seconds, when it is put after it."""
    return prepared_model_pb2.ExecuteSynchronouslyRequest(deadline_ns=nanoseconds(deadline)).SerializeToString()


class PreparedModelBase:
    """A model that is ready to run; the clients add how to.

    Raises:
        HalError: the preparation failed.

    Attributes:
        inputs, outputs: operands, in order.
        input_names, output_names: one each, or none.
        warnings: what went wrong without making the preparation fail.
        cache: what the compilation cache did: HIT; SAVED, and why it was no hit; NOT_SAVED, and why not.
    """

    def __init__(self, notify: device_pb2.Notify, names: Names, discard: Callable[[bytes], None]) -> None:
        if (failed := failure(notify)) is not None:
            raise failed
        inputs, outputs = wire.to_notified_operands(notify)
        self._ends = Ends(inputs, outputs, *names)
        self._templates = Templates(self._ends)
        self._tell(notify)
        self._finalizer = goes_with(self, discard, notify.prepared_model)

    def _tell(self, notify: device_pb2.Notify) -> None:
        self._placement = notify.placement
        vars(self).pop("placement", None)
        self.warnings = list(notify.warnings)
        self.cache = wire.to_cache_outcome(notify.cache)
        self._handle = notify.prepared_model

    def _move(self, notify: device_pb2.Notify, discard: Callable[[bytes], None]) -> None:
        """Takes the place of a model that went with its session.

        Raises:
            HalError: the preparation failed; or SessionLostError: the model has been closed meanwhile.
        """
        if (failed := failure(notify)) is not None:
            raise failed
        if self._finalizer.detach() is None:
            discard(notify.prepared_model)
            raise SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, "the prepared model has been closed")
        self._tell(notify)
        self._finalizer = goes_with(self, discard, notify.prepared_model)

    @cached_property
    def placement(self) -> Placement:
        """Which backend runs what, and why."""
        return wire.to_placement(self._placement)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Operands of the inputs."""
        return self._ends.inputs

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """Operands of the outputs."""
        return self._ends.outputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, or ()."""
        return self._ends.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, or ()."""
        return self._ends.output_names

    @property
    def handle(self) -> bytes:
        """What the service knows it by."""
        return self._handle

    def end(self, end: int | str, *, is_output: bool) -> tuple[int, Operand]:
        """Number and operand of an input (output), given by number or by name.

        Raises:
            HalError: INVALID_ARGUMENT: there is none.
        """
        index = self._ends.index(end, is_output=is_output)
        return index, (self.outputs if is_output else self.inputs)[index]
