"""Sessions that are not opened: the cause and what to do about it, and redirects to other addresses."""

import errno
import os
import socket

import grpc

from nnhal.address import Address
from nnhal.client.core.rpc_errors import FinishedCall, hal_error
from nnhal.client.core.session import timeout_error
from nnhal.client.security.security import SecurityProblem
from nnhal.errors import DeadObjectError, HalError, general_failure
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import session_pb2


class NothingListensError(DeadObjectError):
    """No program accepts connections at the address."""


def read_redirect(
    target: str, event: session_pb2.SessionEvent, request: session_pb2.OpenRequest
) -> session_pb2.SessionRedirect:
    """Return the redirect in the first event of the stream that `request` has opened.

    Raises:
        HalError: GENERAL_FAILURE: the event is not a redirect that the request accepts.
    """
    if not (request.accept_redirect and event.redirect.address):
        kind = event.WhichOneof("event") or "unknown"
        raise general_failure(f"{target} did not open a session, but sent an event of kind {kind}")
    return event.redirect


def redirected(target: str, address: str) -> str:
    """Return the address to connect to after the service at `target` has sent a redirect to `address`.

    Raises:
        HalError: GENERAL_FAILURE: the address is invalid.
    """
    try:
        return Address.parse(target).redirected(address)
    except ValueError as error:
        raise general_failure(f"{target} sent an invalid redirect: {error}") from None


def open_error(target: str, timeout: float, error: grpc.RpcError | None, problem: OSError | None) -> HalError:
    """Return the error of a session that could not be opened.

    Args:
        target: address of the service.
        timeout: seconds that the attempt could take.
        error: error of the call, or None if the attempt took too long.
        problem: error of a plain connection to the address, see `nnhal.probe`; or else the reason of TLS. The
            error is then a DeadObjectError only if another attempt may succeed.
    """
    failure = timeout_error(target, timeout) if error is None else hal_error(error)
    if failure.kind == ErrorKind.STOPPING:
        return failure
    if isinstance(error, FinishedCall) and error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return HalError(failure.status, f"{target} is a gRPC service, but not one of nnhal")
    if not isinstance(failure, DeadObjectError):
        return failure
    if isinstance(problem, SecurityProblem):
        return (HalError if problem.is_certain else DeadObjectError)(ErrorStatus.DEVICE_UNAVAILABLE, str(problem))
    if problem is not None:
        reason = f"no response from {target}: {_cause(problem)}"
    elif error is None:
        reason = f"{failure.reason}, though a connection was accepted; is it a service of nnhal?"
    else:
        details = error.details() or "" if isinstance(error, FinishedCall) else str(error)
        reason = f"no gRPC service responds at {target} ({details.rpartition('last error: ')[2]})"
    is_down = problem is not None and not _was_accepted(error, problem)
    return (NothingListensError if is_down else DeadObjectError)(ErrorStatus.DEVICE_UNAVAILABLE, reason)


def _was_accepted(error: grpc.RpcError | None, problem: OSError) -> bool:
    """Return whether a connection that failed had been accepted, though the address refuses another one since."""
    if not isinstance(problem, ConnectionRefusedError | FileNotFoundError) or not isinstance(error, FinishedCall):
        return False
    return os.strerror(problem.errno or 0) not in (error.details() or "")


def _cause(problem: OSError) -> str:
    match problem:
        case ConnectionRefusedError():
            return "connection refused; is the service running? start one with `nnhal serve`"
        case FileNotFoundError():
            return "there is no such socket; is the service running? start one with `nnhal serve`"
        case OSError(errno=errno.ENOTSOCK):
            return "the path is not that of a socket"
        case socket.gaierror():
            return f"the host name cannot be resolved ({problem.strerror})"
        case _:
            return (problem.strerror or str(problem)).lower()
