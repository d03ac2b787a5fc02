"""Limits on what clients may use: one table, enforced here and documented in docs/limits.md.

Every error names its limit, in the text and in `ErrorDetail.limit`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from nnhal import wire
from nnhal.errors import limit_exceeded
from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2

MEBIBYTE, GIBIBYTE = 2**20, 2**30

TRANSIENT = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
PERSISTENT = ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
MISSED = ErrorStatus.MISSED_DEADLINE_PERSISTENT


SHARE = 3
"""A client may use this many times what it leaves to all others. So one client gets three quarters of what the service
has, and the next one finds some, however many there are."""
DERIVED = 2**62
"""Default of a limit that the service derives from the memory of its process when it starts."""
_UNITS = {"objects": "handles", "shared": "descriptors"}


@dataclass(frozen=True)
class Limit:
    """Row of the table of limits.

    Attributes:
        status: of the error; transient where waiting or releasing objects helps.
        meaning: what the limit counts, for the documentation.
    """

    name: str
    default: int
    meaning: str
    status: ErrorStatus = TRANSIENT

    @property
    def unit(self) -> str:
        """Plural of what the limit counts: the last word of its name, if it has no other one."""
        return _UNITS.get(self.name, self.name.rpartition("_")[2])


_TABLE = (
    Limit("message_bytes", 4 * MEBIBYTE, "One gRPC message, in either direction.", PERSISTENT),
    Limit("inline_bytes", 2 * MEBIBYTE, "Bytes of pools inside one message; use Memory objects.", PERSISTENT),
    Limit("pool_bytes", 2 * GIBIBYTE, "One Memory object, or one ReturnedPool.", PERSISTENT),
    Limit("memory_bytes", 64 * GIBIBYTE, "All Memory objects and buffers of one identity."),
    Limit(
        "service_memory_bytes",
        DERIVED,
        "All memory that clients use, touched or not, requests in progress, and responses that they have not "
        "read. A session may use three times what it leaves to others.",
    ),
    Limit("tensor_bytes", 2 * GIBIBYTE, "One tensor that an execution computes.", PERSISTENT),
    Limit("pools", 10_000, "Pools of one model or request.", PERSISTENT),
    Limit("operands", 200_000, "One model, all its subgraphs together.", PERSISTENT),
    Limit("operations", 100_000, "One model, all its subgraphs together.", PERSISTENT),
    Limit("arguments", 1_000_000, "Inputs and outputs of a model and its operations, or of one request.", PERSISTENT),
    Limit("operation_arguments", 100_000, "Inputs and outputs of one operation.", PERSISTENT),
    Limit("dimensions", 1_000_000, "All operands of one model together.", PERSISTENT),
    Limit("elements", 100_000, "Lists of one message that have no limit of their own.", PERSISTENT),
    Limit("subgraphs", 10_000, "Referenced subgraphs of one model.", PERSISTENT),
    Limit(
        "sessions",
        1024,
        "Open sessions of the service. An identity, or the anonymous clients of one host, may have three times "
        "what it leaves to others.",
    ),
    Limit("session_calls", 384, "Executions of one session that occupy a thread at once."),
    Limit("session_streams", 16, "Open keep-alive streams of one session."),
    Limit("objects", 10_000, "Handles of one session: prepared models, memories, ..."),
    Limit("prepared_models", 1000, "Prepared models of one session."),
    Limit("buffers", 1000, "Driver-managed buffers of one session."),
    Limit("fences", 1000, "Fences of one session."),
    Limit("fenced_executions", 1000, "Fenced executions of one session that have not ended."),
    Limit("reusable_executions", 1000, "Reusable executions of one session."),
    Limit("cache_files", 1000, "Named cache files of one identity."),
    Limit("cache_file_bytes", 4 * GIBIBYTE, "All named cache files of one identity."),
    Limit("open_cache_files", 128, "Cache files that one session has open."),
    Limit("bursts", 1000, "Bursts of one session."),
    Limit("burst_memories", 1000, "Memories that one burst keeps under identifiers."),
    Limit("shared", 256, "Memories and files that one session shares (same machine)."),
    Limit(
        "data_connections", 128, "Data connections of the service (same machine), shared by clients as `sessions` are."
    ),
    Limit("session_data_connections", 16, "Data connections of one session."),
    Limit("data_requests", 256, "Requests that one data connection has defined."),
    Limit("defined_requests", 1000, "Requests that one session has defined over gRPC."),
    Limit("burst_streams", 192, "Open Burst.Streams and ModelStreamInfers of the service, shared as `sessions` are."),
    Limit("sequences", 64, "Sequences of requests of one client to models by name."),
    Limit("queued_preparations", 256, "Preparations of a device in the queue."),
    Limit("preparation_seconds", 600, "One preparation, including its time in the queue.", MISSED),
    Limit("queued_executions", 1024, "Executions of a device in the queue."),
)
LIMITS = {limit.name: limit for limit in _TABLE}
"""Every limit, by name."""


class Limits(dict[str, int]):
    """The limits of one service, by name.

    Args:
        overrides: values that differ from the defaults, by name.

    Raises:
        ValueError: a name is unknown, or a value is less than 1.
    """

    def __init__(self, overrides: Mapping[str, int] | None = None) -> None:
        overrides = overrides or {}
        for name, value in overrides.items():
            if name not in LIMITS:
                raise ValueError(f"unknown limit {name!r}; expected one of {', '.join(LIMITS)}")
            if value < 1:
                raise ValueError(f"limit {name} is {value}; expected at least 1")
        super().__init__({name: overrides.get(name, limit.default) for name, limit in LIMITS.items()})

    def lower(self, name: str, value: int) -> None:
        """Lower a limit to what this process can provide, if it is higher."""
        self[name] = max(1, min(self[name], value))

    def require(self, name: str, value: int, subject: str) -> None:
        """Raise an error if a value exceeds a limit. Its text begins with `subject`, for example "the model has".

        Raises:
            HalError: the status of the limit, of kind LIMIT.
        """
        if value > self[name]:
            limit = LIMITS[name]
            raise limit_exceeded(name, f"{subject} {value} {limit.unit}; at most {self[name]}", limit.status)

    def require_share(self, name: str, used: int, own: int, subject: str) -> None:
        """Raise an error if a client that has `own` of the `used` units of the service may not have one more.

        Raises:
            HalError: the status of the limit, of kind LIMIT.
        """
        self.require(name, used + 1, "the service would have")
        left = self[name] - used
        if own + 1 > SHARE * left:
            limit = LIMITS[name]
            reason = f"{subject} has {own} of {self[name]} {limit.unit}; the remaining {left} are for others"
            raise limit_exceeded(name, reason, limit.status)

    def require_model(self, model: types_pb2.Model, proceed: Callable[[], None]) -> None:
        """Check a model message before it is converted. `message_limits` has counted its operands and operations.

        `proceed` is called between steps.
        """
        graphs = (model.main, *model.referenced)
        dimensions = sum(
            len(operand.dimensions) for graph in graphs for operand in wire.take_turns(graph.operands, proceed)
        )
        self.require("dimensions", dimensions, "the operands have")
        arguments = sum(len(graph.input_indexes) + len(graph.output_indexes) for graph in graphs)
        counts = [
            len(operation.inputs) + len(operation.outputs)
            for graph in graphs
            for operation in wire.take_turns(graph.operations, proceed)
        ]
        self.require("arguments", arguments + sum(counts), "the model and its operations have")
        self.require("operation_arguments", max(counts, default=0), "an operation has")
        self.require_inline(model.pools)

    def require_request(self, request: types_pb2.Request) -> None:
        """Check the size of a request message, before it is converted."""
        self.require("arguments", len(request.inputs) + len(request.outputs), "the request has")
        self.require("pools", len(request.pools), "the request has")
        values = sum(pool.value.size for pool in request.pools)
        self.require_inline((pool.pool for pool in request.pools if pool.HasField("pool")), values)
        for pool in request.pools:
            if pool.HasField("returned"):
                self.require("pool_bytes", pool.returned.size, "a ReturnedPool has")

    def require_inline(self, pools: Iterable[types_pb2.Memory], values: int = 0) -> None:
        """Check the bytes that the inline pools of one message and other values have together."""
        size = values + sum(len(pool.inline) for pool in pools)
        self.require("inline_bytes", size, "the message has inline pools of")
