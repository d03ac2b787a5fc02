"""Registry of faults, and helpers that they share. A fault is a function with the ids that must catch it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, error_pb2, session_pb2, types_pb2
from nnhal_tools.conformance.device.calls import detail_of
from nnhal_tools.conformance.device.interposer import Trace, unchanged
from nnhal_tools.conformance.ids import CHECKS, validate_id
from tests.tools.conformance.selftest.proxy import Hook, InjectedError, ProxyCall
from tests.tools.conformance.selftest.relay import DataHook, Relay

SUPPORTED = "Device.GetSupportedOperations"
PREPARE = "Device.PrepareModel*"
EXECUTE = "PreparedModel.ExecuteSynchronously*"
ALL = "*"

OVERLAP_S = 0.02
"""Delay of each call in faults of parallel calls, so that the calls overlap."""

VECTORS = ("add_float", "add_quant8")
"""Built-in vectors for most faults: two shapes, two inputs, and a quantized model."""


@dataclass(frozen=True)
class Fault:
    """Defect of a device that the harness must detect.

    Attributes:
        name: the name of the function, with dashes.
        checks: the ids that must fail.
        description: the wrong behavior of the device.
        hooks: the hooks of the proxy; see Proxy.
        select: patterns of built-in vectors and further checks to run from the suites of its ids.
        paths: the codes of the paths that vectors are executed on; () for the default paths.
        needs: the commands of ServiceControl without which the fault does not show.
        recovery_s: the time limit for the service to respond again in trials of a fault that shows only when it has
            passed; None for that of the target.
        needs_data_socket: the fault shows only if the service's data socket is reachable from this machine.
        edit_trace: returns what a plug-in would record in a host with the fault.
    """

    name: str
    checks: tuple[str, ...]
    description: str
    hooks: dict[str, Hook]
    select: tuple[str, ...]
    paths: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    recovery_s: float | None = None
    needs_data_socket: bool = False
    edit_trace: Callable[[Trace], Trace] = unchanged

    @property
    def suites(self) -> tuple[str, ...]:
        """Suites of its ids."""
        return tuple(dict.fromkeys(CHECKS[check].suite for check in self.checks))


FAULTS: dict[str, Fault] = {}


def fault(
    *checks: str,
    on: tuple[str, ...],
    select: tuple[str, ...] = VECTORS,
    needs: tuple[str, ...] = (),
    recovery_s: float | None = None,
) -> Callable[[Hook], Hook]:
    """Register a fault. The first paragraph of the function's docstring describes the wrong behavior.

    Args:
        checks: the ids that must fail.
        on: the patterns of the methods that it affects.
        select: see Fault.
        needs: see Fault.
        recovery_s: see Fault.
    """

    def register(hook: Hook) -> Hook:
        _register(hook, checks, dict.fromkeys(on, hook), select=select, needs=needs, recovery_s=recovery_s)
        return hook

    return register


def data_fault(
    *checks: str, paths: tuple[str, ...] = (), select: tuple[str, ...] = VECTORS, needs: tuple[str, ...] = ()
) -> Callable[[DataHook], DataHook]:
    """Register a fault of the data socket. Sessions receive the name of a relay that injects it.

    Args:
        checks: the ids that must fail.
        paths: see Fault.
        select: see Fault.
        needs: see Fault.
    """

    def register(hook: DataHook) -> DataHook:
        _register(
            hook,
            checks,
            {"Session.Open": partial(_with_relay, hook)},
            select=select,
            paths=paths,
            needs=needs,
            needs_data_socket=True,
        )
        return hook

    return register


def trace_fault(*checks: str) -> Callable[[Callable[[Trace], Trace]], Callable[[Trace], Trace]]:
    """Register a fault of a host of plug-ins: a function that edits what a plug-in has recorded.

    Args:
        checks: the ids that must fail.
    """

    def register(edit: Callable[[Trace], Trace]) -> Callable[[Trace], Trace]:
        _register(edit, checks, {}, select=(), edit_trace=edit)
        return edit

    return register


def _register(function: Any, checks: tuple[str, ...], hooks: dict[str, Hook], **options: Any) -> None:
    name = function.__name__.replace("_", "-")
    description = " ".join((function.__doc__ or "").split("\n\n")[0].split())
    FAULTS[name] = Fault(name, tuple(map(validate_id, checks)), description, hooks, **options)


def _with_relay(hook: DataHook, call: ProxyCall, request: Any) -> Iterator[session_pb2.SessionEvent]:
    """Yield the events of a session. A relay serves as its data socket until the stream ends."""
    events = call.forward(request)
    first = next(events)
    with Relay(first.opened, hook) as relay:
        first.opened.data_socket = relay.socket_name
        yield first
        try:
            yield from events
        except grpc.RpcError:
            relay.drain()
            raise


# ---- Helpers of several faults ------------------------------------------------------------------------------


def preparation_events(*events: device_pb2.Launched | device_pb2.Notify) -> Iterator[device_pb2.PrepareModelEvent]:
    """Yield the events of a fabricated preparation stream."""
    for event in events:
        if isinstance(event, device_pb2.Notify):
            yield device_pb2.PrepareModelEvent(notify=event)
        else:
            yield device_pb2.PrepareModelEvent(launched=event)


def accept_model(call: ProxyCall, request: Any) -> Any:
    """Accept any model: report all its operations as supported, or return a fabricated prepared model."""
    if call.method == SUPPORTED:
        return device_pb2.GetSupportedOperationsResponse(supported=[True] * len(request.model.main.operations))
    return preparation_events(device_pb2.Launched(), device_pb2.Notify(prepared_model=b"made up"))


def fake_result() -> types_pb2.ExecutionResult:
    """Return the result of an execution that did not take place."""
    return types_pb2.ExecutionResult(
        output_sufficient_size=True, timing=types_pb2.Timing(time_on_device_ns=-1, time_in_driver_ns=-1)
    )


def remember_models(call: ProxyCall, request: Any) -> Iterator[device_pb2.PrepareModelEvent]:
    """Yield a preparation unchanged, and store its Notify in the call's state, by the handle of the model."""
    for event in call.forward(request):
        if event.notify.prepared_model:
            call.state[event.notify.prepared_model] = event.notify
        yield event


def replace_errors(call: ProxyCall, request: Any, change: Callable[[grpc.RpcError], Exception]) -> Any:
    """Forward a call. If it fails, raise the error that `change` returns."""
    if call.streams_responses:
        return _with_errors(call, request, change)
    try:
        return call.forward(request)
    except grpc.RpcError as error:
        raise change(error) from None


def _with_errors(call: ProxyCall, request: Any, change: Callable[[grpc.RpcError], Exception]) -> Iterator[Any]:
    try:
        yield from call.forward(request)
    except grpc.RpcError as error:
        raise change(error) from None


def ignore_error(call: ProxyCall, request: Any, instead: Any, status: ErrorStatus) -> Any:
    """Forward a unary call. If it fails with `status`, return `instead`."""
    try:
        return call.forward(request)
    except grpc.RpcError as error:
        detail = detail_of(error)
        if detail is None or detail.status != int(status):
            raise
        return instead


def edit_detail(change: Callable[[error_pb2.ErrorDetail], None]) -> Callable[[grpc.RpcError], Exception]:
    """Return a `change` for replace_errors that edits the details of errors."""

    def apply(error: grpc.RpcError) -> Exception:
        detail = detail_of(error)
        if detail is None:
            return error
        change(detail)
        assert isinstance(error, grpc.Call)
        return InjectedError(error.code(), detail)

    return apply


def invalid_argument(reason: str) -> InjectedError:
    """Return an INVALID_ARGUMENT error with a reason."""
    detail = error_pb2.ErrorDetail(status=4, reason=reason)  # type: ignore[arg-type]
    return InjectedError(grpc.StatusCode.INVALID_ARGUMENT, detail)
