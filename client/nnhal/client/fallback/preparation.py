"""Preparation of a model in parts: options, reasons and errors."""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypedDict

from nnhal import wire
from nnhal.client.core.arguments import InputShapes, enum_value
from nnhal.client.core.cache import PreparationSpec, is_session_lost
from nnhal.client.fallback.division import Part
from nnhal.client.fallback.placement import THIS_MACHINE, Refusals, describe_refusals
from nnhal.errors import HalError
from nnhal.types import ErrorKind, ErrorStatus, ExecutionPreference, Model, Priority, Refusal
from nnhal.v1 import device_pb2

_UNSUPPORTED = (ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT)
_NO_REASON = Refusal("device", "not supported")


class PrepareOptions(TypedDict, total=False):
    """Options of `Device.prepare`, as a caller gives them."""

    cache: bool
    token: bytes | None
    preference: int | str
    priority: int | str
    deadline: float | None
    signature: str | None
    shapes: InputShapes | None


@dataclass(frozen=True)
class PreparationArguments:
    """Options of a preparation, apart from its deadline.

    Attributes:
        cache: whether to use the cache, with a derived token.
        token: use the cache with this token.
    """

    preference: int
    priority: int
    cache: bool
    token: bytes | None

    @staticmethod
    def of(preference: int | str, priority: int | str, cache: bool, token: bytes | None) -> "PreparationArguments":
        """Return the options that a caller gives.

        Raises:
            TypeError: a preference or priority of a wrong type.
            HalError: INVALID_ARGUMENT: an unknown name.
        """
        numbers = enum_value(ExecutionPreference, preference), enum_value(Priority, priority)
        return PreparationArguments(*numbers, cache, token)

    def spec(self, model: Model, device: str) -> PreparationSpec:
        """Return the spec of a preparation. Hashes the model if the preparation uses the cache.

        Raises:
            HalError: INVALID_ARGUMENT: the length of the token.
            TypeError: the token is not bytes.
        """
        uses_cache = self.cache or self.token is not None
        return PreparationSpec.of(model, device, self.preference, self.priority, self.token, uses_cache=uses_cache)

    def for_operations(self, operations: tuple[int, ...], *, is_fallback: bool) -> "PreparationArguments":
        """Return the options for a part of the model with some operations. It has a token of its own."""
        if self.token is None:
            return self
        part = struct.pack(f"<?{len(operations)}q", is_fallback, *operations)
        return replace(self, token=hashlib.sha256(bytes(self.token) + part).digest())


class PartRefusedError(Exception):
    """A part that the device does not prepare, although it reports support for its operations."""

    def __init__(self, part: Part, error: HalError) -> None:
        super().__init__(part, error)
        self.refusals = failed_operations(part.operations, error)


def may_be_unsupported(error: HalError) -> bool:
    """Return whether a preparation may have failed because the device does not support an operation."""
    return error.status in _UNSUPPORTED and error.kind != ErrorKind.LIMIT and not is_session_lost(error)


def failed_operations(operations: Iterable[int], error: HalError) -> Refusals:
    """Return operations that a device reports support for, and fails to prepare, with the reason."""
    return dict.fromkeys(operations, (Refusal("device", f"it failed to prepare this: {error.reason}"),))


def find_refusals(response: device_pb2.GetSupportedOperationsResponse) -> Refusals:
    """Return the operations of main that a device does not support, with the reasons."""
    placement = wire.to_placement(response.placement)
    reasons = {each.operation: each.refusals for each in placement.operations if each.subgraph == 0}
    return {i: reasons.get(i) or (_NO_REASON,) for i, is_supported in enumerate(response.supported) if not is_supported}


def no_local_service(refusals: Refusals, error: HalError) -> HalError:
    """Return the error of a model that needs a fallback, when no service starts on the client's machine."""
    return HalError(
        ErrorStatus.GENERAL_FAILURE,
        f"{_describe(refusals)}; to run such operations on {THIS_MACHINE}, install the extra nnhal[server] "
        f"(pip install 'nnhal[server]'): {error.reason}",
    )


def not_supported_anywhere(refusals: Refusals, error: HalError) -> HalError:
    """Return the error of a model with operations that neither the device nor the client's machine supports."""
    reason = f"{_describe(refusals)}; on {THIS_MACHINE}: {error.reason}"
    return HalError(error.status, reason, rule=error.rule, kind=error.kind, limit=error.limit)


def not_supported_as_a_whole(error: HalError) -> HalError:
    """Return the error of an execution that only the whole model could complete."""
    reason = (
        "an intermediate result is empty, and a request cannot contain it; "
        f"{THIS_MACHINE} cannot run the whole model instead: {error.reason}"
    )
    return HalError(error.status, reason, rule=error.rule, kind=error.kind, limit=error.limit)


def _describe(refusals: Refusals) -> str:
    numbers = ", ".join(map(str, sorted(refusals)))
    plural = "s" * (len(refusals) > 1)
    return f"the device does not support operation{plural} {numbers} ({describe_refusals(refusals)})"
