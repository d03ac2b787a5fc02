"""The synchronous client.

import nnhal, nnhal.tflite

with nnhal.connect("localhost:50051") as device:
    prepared = device.prepare(nnhal.tflite.load("model.tflite")).result()
    outputs = prepared.execute([image])
"""

import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import TypeAlias, overload

import grpc
import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.connection import Connection
from nnhal.errors import HalError, invalid_argument
from nnhal.failures import hal_error
from nnhal.types import (
    DTYPES,
    AnyArray,
    Bytes,
    Capabilities,
    DataLocation,
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    Extension,
    Memory,
    Model,
    Operand,
    Placement,
    Priority,
    Request,
    RequestArgument,
    ReturnedPool,
    Timing,
    is_fully_specified,
)
from nnhal.v1 import device_pb2, prepared_model_pb2, types_pb2

Inputs: TypeAlias = Sequence[ArrayLike | None] | Mapping[str, ArrayLike | None]


def connect(target: str, *, device: str = "", timeout: float = 10.0) -> "Device":
    """Opens a session on a service.

    Args:
        target: "HOST:PORT" or "unix:PATH".
        device: name of the device; the server's first by default.
        timeout: seconds to wait for the service.

    Raises:
        DeadObjectError: the service does not answer.
    """
    return Device(Connection(target, timeout), device)


class Device:
    """A device of a service, in a session of its own. Close it, or use it as a context manager."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection

    @cached_property
    def capabilities(self) -> Capabilities:
        """Performance figures."""
        return wire.to_capabilities(self._connection.call(self._connection.device.GetCapabilities, self._request))

    @cached_property
    def type(self) -> DeviceType:
        """What the device is."""
        return DeviceType(self._connection.call(self._connection.device.GetType, self._request).type)

    @cached_property
    def version(self) -> str:
        """Version of driver and backends."""
        return self._connection.call(self._connection.device.GetVersionString, self._request).version

    @cached_property
    def interface_version(self) -> int:
        """Version of the HAL interface."""
        return self._connection.call(self._connection.device.GetInterfaceVersion, self._request).version

    @cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """Extensions that the device supports."""
        response = self._connection.call(self._connection.device.GetSupportedExtensions, self._request)
        return tuple(map(wire.to_extension, response.extensions))

    @property
    def _request(self) -> device_pb2.DeviceRequest:
        return device_pb2.DeviceRequest(device=self.name)

    def backends(self) -> list[device_pb2.BackendInfo]:
        """The device's backends: ready, skipped or failed, and why."""
        return list(self._connection.call(self._connection.device.ListBackends, self._request).backends)

    def supported_operations(self, model: Model) -> list[bool]:
        """For each operation of model.main whether the device would run it.

        Raises:
            HalError: INVALID_ARGUMENT: the model is invalid.
        """
        handles: list[bytes] = []
        request = device_pb2.GetSupportedOperationsRequest(
            session=self._connection.session, device=self.name, model=self._message(model, handles)
        )
        response = self._connection.call(self._connection.device.GetSupportedOperations, request)
        self._connection.discard(*handles)
        return list(response.supported)

    def prepare(
        self,
        model: Model,
        *,
        preference: int = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int = Priority.MEDIUM,
        deadline: float | None = None,
    ) -> "Preparation":
        """Starts to prepare a model.

        Args:
            preference: an ExecutionPreference.
            priority: a Priority, among this client's own models.
            deadline: seconds from now; the preparation ends with MISSED_DEADLINE_* when it is not met.

        Returns:
            a future of the prepared model. Errors come from its `result()`.
        """
        handles: list[bytes] = []
        request = device_pb2.PrepareModelRequest(
            session=self._connection.session,
            device=self.name,
            model=self._message(model, handles),
            preference=preference,  # type: ignore[arg-type]
            priority=priority,  # type: ignore[arg-type]
            deadline_ns=None if deadline is None else int(deadline * 1e9),
        )
        return Preparation(self._connection, request, handles, (model.input_names, model.output_names))

    def _message(self, model: Model, handles: list[bytes]) -> types_pb2.Model:
        return wire.model_message(model, lambda pool: self._connection.send_memory(pool, handles, lasting=True))

    def close(self) -> None:
        """Ends the session; what it owned is freed by the service."""
        self._connection.close()

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Preparation(Future["PreparedModel"]):
    """A preparation in progress: a `concurrent.futures.Future` of the prepared model.

    `result()` raises the HalError that the callback brought. `cancel()` abandons the work on the service.
    """

    def __init__(
        self,
        connection: Connection,
        request: device_pb2.PrepareModelRequest,
        handles: Sequence[bytes],
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        super().__init__()
        self._connection = connection
        self._handles = handles
        self._names = names
        self._stream = connection.device.PrepareModel(request)
        threading.Thread(target=self._read, name="nnhal-preparation", daemon=True).start()

    def cancel(self) -> bool:
        """Abandons the work, unless it has finished."""
        cancelled = super().cancel()
        if cancelled:
            self._stream.cancel()
        return cancelled

    def _read(self) -> None:
        prepared: PreparedModel | None = None
        failure: HalError | None = None
        try:
            for event in self._stream:
                if event.WhichOneof("event") == "notify":
                    prepared, failure = self._notified(event.notify)
        except grpc.RpcError as error:
            failure = failure or hal_error(error)
        self._connection.discard(*self._handles)
        if not self.set_running_or_notify_cancel():
            return
        if prepared is not None:
            self.set_result(prepared)
        else:
            self.set_exception(failure or HalError(ErrorStatus.GENERAL_FAILURE, "the service never notified"))

    def _notified(self, notify: device_pb2.Notify) -> "tuple[PreparedModel | None, HalError | None]":
        if int(notify.status) != ErrorStatus.NONE:
            return None, HalError(notify.status, notify.reason, rule=notify.rule)
        return PreparedModel(self._connection, notify, self._names), None


class Outputs(tuple[AnyArray, ...]):
    """Outputs of an execution, in order; also by name. `timing`: what was measured, or -1s."""

    names: tuple[str, ...]
    timing: Timing

    @staticmethod
    def of(arrays: Iterable[AnyArray], names: tuple[str, ...], timing: Timing) -> "Outputs":
        """Puts outputs together."""
        made = Outputs(arrays)
        made.names, made.timing = names, timing
        return made

    @overload  # type: ignore[override]
    def __getitem__(self, key: int | str) -> AnyArray: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[AnyArray, ...]: ...

    def __getitem__(self, key: int | str | slice) -> AnyArray | tuple[AnyArray, ...]:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(f"there is no output {key!r}; there are {', '.join(self.names) or 'no names'}")
        return super().__getitem__(self.names.index(key))


class PreparedModel:
    """A model that is ready to run. Thread safe. The service lets it go when this object is closed or collected."""

    def __init__(
        self, connection: Connection, notify: device_pb2.Notify, names: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> None:
        self.inputs, self.outputs = wire.to_notified_operands(notify)
        self.input_names, self.output_names = names
        self.placement: Placement = wire.to_placement(notify.placement)
        self.warnings = list(notify.warnings)
        self._connection = connection
        self._handle = notify.prepared_model
        self._finalizer = weakref.finalize(self, connection.discard, notify.prepared_model)
        self._finalizer.atexit = False

    def execute(self, inputs: Inputs, *, deadline: float | None = None, measure_timing: bool = False) -> Outputs:
        """Runs the model.

        Args:
            inputs: one array per input, by position or by name; None omits an optional one. An array has the dtype of
                its operand (lists and numbers are converted) and its shape.
            deadline: seconds from now.
            measure_timing: fill `timing` of the result.

        Returns:
            one array per output, as large as needed.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit; MISSED_DEADLINE_*; or the execution failed.
        """
        arrays = self._arrays(inputs)
        handles: list[bytes] = []
        request = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=self._connection.session,
            prepared_model=self._handle,
            request=wire.request_message(
                self._request(arrays), lambda pool: self._connection.send_memory(pool, handles, lasting=False)
            ),
            measure_timing=measure_timing,
            deadline_ns=None if deadline is None else int(deadline * 1e9),
        )
        response = self._connection.call(self._connection.prepared_model.ExecuteSynchronously, request)
        self._connection.discard(*handles)
        result = wire.to_result(response, self._returned)
        shapes = (shape.dimensions for shape in result.output_shapes)
        triples = zip(self.outputs, result.returned, shapes, strict=True)
        return Outputs.of((_array(*triple) for triple in triples), self.output_names, result.timing)

    def _arrays(self, inputs: Inputs) -> list[AnyArray | None]:
        """Inputs by position, checked."""
        if isinstance(inputs, Mapping):
            if unknown := set(inputs) - set(self.input_names):
                raise invalid_argument(
                    f"no input is named {sorted(unknown)[0]!r}; there are {', '.join(self.input_names) or 'no names'}"
                )
            inputs = [inputs.get(name) for name in self.input_names]
        if len(inputs) != len(self.inputs):
            raise invalid_argument(f"{len(inputs)} inputs given; the model takes {len(self.inputs)}")
        return [self._checked(i, value) for i, value in enumerate(inputs)]

    def _checked(self, index: int, value: ArrayLike | None) -> AnyArray | None:
        if value is None:
            return None
        operand = self.inputs[index]
        dtype = DTYPES[operand.type]
        if isinstance(value, np.ndarray) and value.dtype != dtype:
            raise invalid_argument(f"{self._input_name(index)} is {value.dtype}; the model takes {dtype}")
        array = np.ascontiguousarray(np.asarray(value, dtype))
        declared = operand.dimensions
        fits = len(declared) == array.ndim and all(d in (0, a) for d, a in zip(declared, array.shape, strict=True))
        if not fits and (declared or array.size != 1):
            raise invalid_argument(
                f"{self._input_name(index)} has shape {list(array.shape)}; the model takes {list(declared)}"
            )
        return array

    def _input_name(self, index: int) -> str:
        return f"input {index}" + (f" ({self.input_names[index]})" if self.input_names else "")

    def _request(self, arrays: Sequence[AnyArray | None]) -> Request:
        """One pool for each input, and one that grows for all outputs."""
        pools: list[Memory | ReturnedPool] = []
        arguments = []
        for operand, array in zip(self.inputs, arrays, strict=True):
            if array is None:
                arguments.append(RequestArgument(has_no_value=True))
                continue
            dimensions = () if is_fully_specified(operand.type, operand.dimensions) else array.shape
            arguments.append(RequestArgument(False, DataLocation(len(pools), 0, array.nbytes), dimensions))
            pools.append(Memory.of(array))
        outputs = (RequestArgument(False, DataLocation(len(pools))),) * len(self.outputs)
        return Request(tuple(arguments), outputs, (*pools, ReturnedPool()))

    def _returned(self, message: types_pb2.ReturnedOutput) -> Bytes | None:
        if message.WhichOneof("data") == "memory":
            return self._connection.read_memory(message.memory)
        return wire.read_inline_output(message)

    def close(self) -> None:
        """Lets the model go. Executions in progress finish."""
        self._finalizer()

    def __enter__(self) -> "PreparedModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _array(operand: Operand, data: Bytes | None, shape: tuple[int, ...]) -> AnyArray:
    assert data is not None
    array = data.view(DTYPES[operand.type]).reshape(shape)
    return array if array.flags.writeable else array.copy()
