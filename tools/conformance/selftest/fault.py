"""What a fault is, and where faults register: one function each, with the ids that must catch it."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, error_pb2, session_pb2, types_pb2
from tools.conformance.ids import CHECKS, known
from tools.conformance.selftest import faults
from tools.conformance.selftest.proxy import Call, Hook, Refusal, detail_of
from tools.conformance.selftest.relay import DataHook, Relay

SUPPORTED = "Device.GetSupportedOperations"
PREPARE = "Device.PrepareModel*"
EXECUTE = "PreparedModel.ExecuteSynchronously*"
ALL = "*"

TOGETHER_S = 0.02
"""How long a fault of parallel calls holds each of them, so that they do meet."""

VECTORS = ("add_float", "add_quant8")
"""Built-in vectors that do for most faults: two shapes, two inputs, a quantised model."""


@dataclass(frozen=True)
class Fault:
    """One way in which a device can be wrong.

    Attributes:
        name: of the function, with dashes.
        checks: ids, each of which must be among those that fail.
        text: what the device does wrong.
        hooks: see Proxy.
        select: what else to run of the suites of its ids: built-in vectors, and further checks by patterns.
        paths: codes of the paths that vectors are executed on; () for the default.
        restarts: it shows only where the service can be restarted.
        local: it shows only where the service's data socket is on this machine.
    """

    name: str
    checks: tuple[str, ...]
    text: str
    hooks: dict[str, Hook]
    select: tuple[str, ...]
    paths: tuple[str, ...] = ()
    restarts: bool = False
    local: bool = False

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites of its ids."""
        return tuple(dict.fromkeys(CHECKS[check].suite for check in self.checks))


FAULTS: dict[str, Fault] = {}


def fault(
    *checks: str, on: tuple[str, ...], select: tuple[str, ...] = VECTORS, restarts: bool = False
) -> Callable[[Hook], Hook]:
    """Registers a fault; the first paragraph of the function's docstring says what the device does wrong.

    Args:
        checks: the ids that must catch it.
        on: patterns of the methods that it takes part in.
        select, restarts: see Fault.
    """

    def register(hook: Hook) -> Hook:
        _register(hook, checks, dict.fromkeys(on, hook), select=select, restarts=restarts)
        return hook

    return register


def data_fault(
    *checks: str, paths: tuple[str, ...] = (), select: tuple[str, ...] = VECTORS
) -> Callable[[DataHook], DataHook]:
    """Registers a fault of the data socket, as `fault` does: sessions are told the name of a relay that has it.

    Args:
        checks: the ids that must catch it.
        paths, select: see Fault.
    """

    def register(hook: DataHook) -> DataHook:
        _register(hook, checks, {"Session.Open": partial(_relayed, hook)}, select=select, paths=paths, local=True)
        return hook

    return register


def _register(made: Any, checks: tuple[str, ...], hooks: dict[str, Hook], **more: Any) -> None:
    name = made.__name__.replace("_", "-")
    text = " ".join((made.__doc__ or "").split("\n\n")[0].split())
    FAULTS[name] = Fault(name, tuple(map(known, checks)), text, hooks, **more)


def _relayed(hook: DataHook, call: Call, request: Any) -> Iterator[session_pb2.SessionEvent]:
    """The events of a session, whose data socket has a relay before it as long as they come."""
    events = call.forward(request)
    first = next(events)
    with Relay(first.opened, hook) as relay:
        first.opened.data_socket = relay.name
        yield first
        yield from events


def load() -> None:
    """Imports every module of faults."""
    for module in pkgutil.iter_modules(faults.__path__, f"{faults.__name__}."):
        importlib.import_module(module.name)


# ---- What faults have in common -----------------------------------------------------------------------------


def preparation(*events: device_pb2.Launched | device_pb2.Notify) -> Iterator[device_pb2.PrepareModelEvent]:
    """The stream of a preparation that a fault makes up."""
    for event in events:
        if isinstance(event, device_pb2.Notify):
            yield device_pb2.PrepareModelEvent(notify=event)
        else:
            yield device_pb2.PrepareModelEvent(launched=event)


def accepted(call: Call, request: Any) -> Any:
    """Says yes to a model without looking at it: every operation is supported, or here is its prepared model."""
    if call.method == SUPPORTED:
        return device_pb2.GetSupportedOperationsResponse(supported=[True] * len(request.model.main.operations))
    return preparation(device_pb2.Launched(), device_pb2.Notify(prepared_model=b"made up"))


def executed() -> types_pb2.ExecutionResult:
    """The result of an execution that never was."""
    return types_pb2.ExecutionResult(
        output_sufficient_size=True, timing=types_pb2.Timing(time_on_device_ns=-1, time_in_driver_ns=-1)
    )


def kept_models(call: Call, request: Any) -> Iterator[device_pb2.PrepareModelEvent]:
    """A preparation as it is; what it notifies is kept by the model's handle, for hooks of executions."""
    for event in call.forward(request):
        if event.notify.prepared_model:
            call.kept[event.notify.prepared_model] = event.notify
        yield event


def with_errors(call: Call, request: Any, change: Callable[[grpc.RpcError], Exception]) -> Any:
    """Forwards a call; where it fails, it fails with what `change` makes of the error."""
    if call.streams:
        return _with_errors(call, request, change)
    try:
        return call.forward(request)
    except grpc.RpcError as error:
        raise change(error) from None


def _with_errors(call: Call, request: Any, change: Callable[[grpc.RpcError], Exception]) -> Iterator[Any]:
    try:
        yield from call.forward(request)
    except grpc.RpcError as error:
        raise change(error) from None


def forgiven(call: Call, request: Any, instead: Any, status: ErrorStatus) -> Any:
    """Forwards a call with one answer; where it fails with a status, it succeeds with `instead`."""
    try:
        return call.forward(request)
    except grpc.RpcError as error:
        detail = detail_of(error)
        if detail is None or detail.status != int(status):
            raise
        return instead


def changed_detail(change: Callable[[error_pb2.ErrorDetail], None]) -> Callable[[grpc.RpcError], Exception]:
    """For with_errors: changes the detail of errors that have one."""

    def apply(error: grpc.RpcError) -> Exception:
        detail = detail_of(error)
        if detail is None:
            return error
        change(detail)
        assert isinstance(error, grpc.Call)
        return Refusal(error.code(), detail)

    return apply


def invalid_argument(reason: str) -> Refusal:
    """A refusal in the contract's form."""
    detail = error_pb2.ErrorDetail(status=4, reason=reason)  # type: ignore[arg-type]
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, detail)
