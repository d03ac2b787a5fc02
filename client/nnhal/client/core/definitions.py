"""Definitions: requests that the service has validated once, and that run with nothing but their values.

A request is defined when it is sent for the second time. All of its inputs are values, and so are its outputs.
"""

import threading
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnhal import wire
from nnhal.client.core.arguments import nanoseconds
from nnhal.client.core.arrays import ModelIO, Outputs, output_array
from nnhal.client.core.handles import AnyConnection, release_with
from nnhal.client.core.memory import MAX_MESSAGE_VALUES_BYTES
from nnhal.errors import general_failure
from nnhal.lru import LruDict
from nnhal.run_messages import RunRequestEncoder, read_values
from nnhal.types import OMITTED, UNMEASURED, AnyArray, Memory, Request
from nnhal.v1 import prepared_model_pb2, types_pb2

MAX_DEFINITIONS = 16
"""Number of definitions of one prepared model or burst."""

Arrays = Sequence[AnyArray | None]
Form: TypeAlias = tuple[Hashable, ...]
"""Common properties of the runs of a definition: its target, whether it is measured, and the shapes of the inputs."""


class RequestDefinition:
    """A request that has been defined on the service, which releases it with this object.

    `io` has the inputs and outputs that come and go with each run. `stored`: indexes of the outputs in buffers.
    """

    def __init__(
        self,
        io: ModelIO,
        connection: AnyConnection,
        arrays: Arrays,
        response: prepared_model_pb2.DefineResponse,
        stored: Collection[int] = (),
    ) -> None:
        self._io = io
        self._encoder = RunRequestEncoder(connection.session, response.definition, _sizes(arrays))
        shapes = enumerate(response.output_shapes)
        self._shapes = [tuple(shape.dimensions) for i, shape in shapes if i not in stored]
        self._finalizer: Any = release_with(self, connection.discard, response.definition)

    def encode(self, arrays: Arrays, deadline: float | None, *, stream: bool = False) -> bytes:
        """Return the message of a run; with `stream`, for a stream of the Burst service.

        The arrays are checked, and have the shapes of the definition. The deadline is in seconds from now.
        """
        deadline_ns = OMITTED if deadline is None else nanoseconds(deadline)
        return self._encoder.encode([array for array in arrays if array is not None], deadline_ns, stream=stream)

    def decode(self, encoded: bytes, *, stream: bool = False, copy: bool = True) -> Outputs | None:
        """Return the outputs in a response; None if it contains anything but values.

        With `stream`, it is that of a stream of the Burst service. Without `copy`, the outputs are read-only views of
        it.

        Raises:
            HalError: GENERAL_FAILURE: the values do not match the outputs of the model.
        """
        spans = read_values(encoded, stream=stream)
        if spans is None:
            return None
        if len(spans) != len(self._shapes):
            raise general_failure(f"the service returned {len(spans)} values; expected {len(self._shapes)}")
        data = np.frombuffer(encoded, np.uint8) if encoded else np.empty(0, np.uint8)
        try:
            arrays = [
                output_array(operand, data[start:end], shape, copy=copy)
                for operand, (start, end), shape in zip(self._io.outputs, spans, self._shapes, strict=True)
            ]
        except ValueError as error:
            raise general_failure(f"the service returned a value of another size: {error}") from None
        return Outputs.of(arrays, self._io.output_names, UNMEASURED)


class RequestDefinitions:
    """The definitions of one prepared model or burst. Thread safe.

    To execute, look for the definition with `find`. If there is none, ask `next_request` whether to define one now, and
    give the response of the service to `add`. Without a definition, send the whole request.
    """

    def __init__(self, io: ModelIO) -> None:
        self._io = io
        # None: the request has been sent once; False: it is being defined, or the service has refused that
        self._entries: LruDict[Form, RequestDefinition | bool | None] = LruDict(MAX_DEFINITIONS)
        self._lock = threading.Lock()

    def find(self, form: Form) -> RequestDefinition | None:
        """Return the definition of a form, if there is one."""
        entry = self._entries.get(form)
        return entry if isinstance(entry, RequestDefinition) else None

    def next_request(
        self, form: Form, session: bytes, target: bytes, arrays: Arrays, *, measure_timing: bool
    ) -> prepared_model_pb2.DefineRequest | None:
        """Return the request that defines a form; None if it should not be defined, or not yet.

        `target` is the handle of the prepared model or the burst.
        """
        if not fits_run(arrays):
            return None
        with self._lock:
            is_second = self._entries.get(form, True) is None
            if is_second or form not in self._entries:
                self._entries.put(form, False if is_second else None)
        if not is_second:
            return None
        return define_request(session, target, self._io.build_request(arrays), measure_timing=measure_timing)

    def add(
        self, form: Form, connection: AnyConnection, arrays: Arrays, response: prepared_model_pb2.DefineResponse
    ) -> RequestDefinition:
        """Add the definition of a form, given the response to the request, and return it."""
        definition = RequestDefinition(self._io, connection, arrays, response)
        with self._lock:
            self._entries.put(form, definition)
        return definition


def define_request(
    session: bytes, target: bytes, request: Request, *, measure_timing: bool
) -> prepared_model_pb2.DefineRequest:
    """Return the message that defines a request. The bytes of its memories come with each run."""
    message = wire.request_message(request, lambda pool: types_pb2.Memory())
    for pool, source in zip(message.pools, request.pools, strict=True):
        if isinstance(source, Memory):
            pool.value.size = source.size
    config = types_pb2.ExecutionConfig(measure_timing=measure_timing)
    return prepared_model_pb2.DefineRequest(session=session, target=target, request=message, config=config)


def form_of(target: Hashable, arrays: Arrays, *, measure_timing: bool) -> Form:
    """Return the form of an execution with some inputs."""
    return (target, measure_timing, *[None if array is None else array.shape for array in arrays])


def fits_run(arrays: Arrays) -> bool:
    """Return whether a run can have the inputs as its values. Larger ones need Memory objects, others each time."""
    return sum(_sizes(arrays)) <= MAX_MESSAGE_VALUES_BYTES


def _sizes(arrays: Arrays) -> Iterable[int]:
    """Return the sizes in bytes of the inputs that are present."""
    return [array.nbytes for array in arrays if array is not None]
