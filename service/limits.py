"""What a client may use: one table, enforced here and shown in docs/limits.md (`python -m service.limits` prints it).

Every refusal names the limit, in its text and in `ErrorDetail.limit`.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from nnhal.errors import HalError
from nnhal.types import Bytes, ErrorKind, ErrorStatus
from nnhal.v1 import types_pb2

MEBIBYTE, GIBIBYTE = 2**20, 2**30

TRANSIENT = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
PERSISTENT = ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
MISSED = ErrorStatus.MISSED_DEADLINE_TRANSIENT


@dataclass(frozen=True)
class Limit:
    """One row of the table. `answer`: the status of the refusal; transient where waiting or releasing helps."""

    name: str
    default: int
    unit: str
    answer: ErrorStatus
    meaning: str


LIMITS = {
    limit.name: limit
    for limit in (
        Limit("message_bytes", 4 * MEBIBYTE, "bytes", PERSISTENT, "One gRPC message, in either direction."),
        Limit(
            "inline_bytes", 2 * MEBIBYTE, "bytes", PERSISTENT, "Bytes of pools inside one message; use Memory objects."
        ),
        Limit("pool_bytes", 2 * GIBIBYTE, "bytes", PERSISTENT, "One Memory object, or one ReturnedPool."),
        Limit("memory_bytes", 8 * GIBIBYTE, "bytes", TRANSIENT, "All Memory objects and buffers of one identity."),
        Limit("tensor_bytes", 2 * GIBIBYTE, "bytes", PERSISTENT, "One tensor that an execution computes."),
        Limit("pools", 10_000, "pools", PERSISTENT, "Pools of one model or request."),
        Limit("operands", 200_000, "operands", PERSISTENT, "One model, all its subgraphs together."),
        Limit("operations", 100_000, "operations", PERSISTENT, "One model, all its subgraphs together."),
        Limit(
            "arguments",
            1_000_000,
            "arguments",
            PERSISTENT,
            "Inputs and outputs of all operations of one model, or of one request.",
        ),
        Limit("subgraphs", 10_000, "subgraphs", PERSISTENT, "Referenced subgraphs of one model."),
        Limit("sessions", 1024, "sessions", TRANSIENT, "Open sessions of the service."),
        Limit("session_streams", 16, "streams", TRANSIENT, "Open keep-alive streams of one session."),
        Limit("objects", 10_000, "handles", TRANSIENT, "Handles of one session: prepared models, memories, ..."),
        Limit("prepared_models", 1000, "models", TRANSIENT, "Prepared models of one session."),
        Limit("buffers", 1000, "buffers", TRANSIENT, "Driver-managed buffers of one session."),
        Limit("fences", 1000, "fences", TRANSIENT, "Fences of one session."),
        Limit("fenced_executions", 1000, "executions", TRANSIENT, "Fenced executions of one session that go on."),
        Limit("reusable_executions", 1000, "executions", TRANSIENT, "Reusable executions of one session."),
        Limit("cache_files", 1000, "files", TRANSIENT, "Named cache files of one identity."),
        Limit("cache_file_bytes", 4 * GIBIBYTE, "bytes", TRANSIENT, "All named cache files of one identity."),
        Limit("open_cache_files", 128, "files", TRANSIENT, "Cache files that one session has open."),
        Limit("bursts", 1000, "bursts", TRANSIENT, "Bursts of one session."),
        Limit("burst_memories", 1000, "memories", TRANSIENT, "Memories that one burst keeps under identifiers."),
        Limit("shared", 256, "descriptors", TRANSIENT, "Memories and files that one session shares (same machine)."),
        Limit("data_connections", 128, "connections", TRANSIENT, "Data connections of the service (same machine)."),
        Limit("session_data_connections", 16, "connections", TRANSIENT, "Data connections of one session."),
        Limit("data_requests", 256, "requests", TRANSIENT, "Requests that one data connection has defined."),
        Limit("burst_streams", 128, "streams", TRANSIENT, "Open Burst.Streams of the service."),
        Limit(
            "queued_preparations", 256, "preparations", TRANSIENT, "Preparations of a device that wait for their turn."
        ),
        Limit("preparation_seconds", 600, "seconds", MISSED, "One preparation, its time in the queue included."),
        Limit("queued_executions", 1024, "executions", TRANSIENT, "Executions of a device that wait for their turn."),
    )
}
"""Every limit, by name."""


def exceeded(name: str, text: str) -> HalError:
    """The refusal: `text` says what was too much."""
    return HalError(LIMITS[name].answer, f"{text} (limit {name})", kind=ErrorKind.LIMIT, limit=name)


class Limits(Mapping[str, int]):
    """The limits in force.

    Args:
        changed: values other than the default, by name.

    Raises:
        ValueError: a name is unknown, or a value is not positive.
    """

    def __init__(self, changed: Mapping[str, int] | None = None) -> None:
        changed = changed or {}
        for name, value in changed.items():
            if name not in LIMITS:
                raise ValueError(f"there is no limit {name!r}; there are {', '.join(LIMITS)}")
            if value < 1:
                raise ValueError(f"limit {name} is {value}; it must be at least 1")
        self._values = {name: changed.get(name, limit.default) for name, limit in LIMITS.items()}

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def hold(self, name: str, value: int, what: str) -> None:
        """Refuses `value` of something where it is above the limit.

        Args:
            what: names it in the refusal: "the model has 300000 operands".

        Raises:
            HalError: RESOURCE_EXHAUSTED_*, of kind LIMIT.
        """
        if value > self._values[name]:
            raise exceeded(name, f"{what} {value} {LIMITS[name].unit}; at most {self._values[name]}")

    def hold_model(self, model: types_pb2.Model) -> None:
        """Refuses a model that is too large, before anything is made of it."""
        self.hold("subgraphs", len(model.referenced), "the model has")
        graphs = (model.main, *model.referenced)
        self.hold("operands", sum(len(graph.operands) for graph in graphs), "the model has")
        self.hold("operations", sum(len(graph.operations) for graph in graphs), "the model has")
        operations = [operation for graph in graphs for operation in graph.operations]
        self.hold("arguments", sum(len(one.inputs) + len(one.outputs) for one in operations), "the operations have")
        self.hold("pools", len(model.pools), "the model has")
        self.hold_inline(model.pools)

    def hold_request(self, request: types_pb2.Request) -> None:
        """Refuses a request whose pools are too large."""
        self.hold("arguments", len(request.inputs) + len(request.outputs), "the request has")
        self.hold("pools", len(request.pools), "the request has")
        self.hold_inline(pool.pool for pool in request.pools if pool.HasField("pool"))
        for pool in request.pools:
            if pool.HasField("returned"):
                self.hold("pool_bytes", pool.returned.size, "a ReturnedPool has")

    def hold_inline(self, pools: Iterable[types_pb2.Memory]) -> None:
        """Refuses pools that carry too many bytes in one message."""
        self.hold("inline_bytes", sum(len(pool.inline) for pool in pools), "the message has inline pools of")


class _Holder:
    """Stands for bytes that are counted."""


class MemoryQuota:
    """Bytes of memory and buffers that each identity has in use: until nothing holds them, prepared models included."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    def charge(self, identity: str, buffer: Bytes) -> None:
        """Counts a buffer, and gives its bytes back when it is freed.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit memory_bytes.
        """
        self._charge(identity, int(buffer.nbytes), buffer)

    def reserve(self, identity: str, size: int) -> object:
        """Counts bytes that are yet to come; gives them back when what it returns is let go.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit memory_bytes.
        """
        holder = _Holder()
        self._charge(identity, size, holder)
        return holder

    def _charge(self, identity: str, size: int, holder: object) -> None:
        with self._lock:
            used = self._used[identity] + size
            self._limits.hold("memory_bytes", used, "Memory objects and buffers would have")
            self._used[identity] = used
        weakref.finalize(holder, self._give_back, identity, size)

    def _give_back(self, identity: str, size: int) -> None:
        with self._lock:
            self._used[identity] -= size
            if not self._used[identity]:
                del self._used[identity]

    def used(self, identity: str) -> int:
        """Bytes in use."""
        return self._used[identity]


def markdown() -> str:
    """docs/limits.md."""
    rows = [
        f"| `{limit.name}` | {limit.default:,} {limit.unit} | {limit.answer.name} | {limit.meaning} |"
        for limit in LIMITS.values()
    ]
    return "\n".join(
        [
            "# Limits",
            "",
            "What a client may use, and what it is answered beyond that. Made from `service/limits.py` by",
            "`python -m service.limits > docs/limits.md`.",
            "",
            "Every refusal names the limit, in its text and in the field `limit` of the error's details; the one",
            "exception is `message_bytes`, which gRPC itself enforces. An operator changes limits with",
            "`nnhal serve --limit NAME=VALUE` or `NNHAL_LIMITS='{\"NAME\": VALUE}'`; a client reads them in the answer",
            "to `Session.Open`.",
            "",
            "| limit | default | answered | of what |",
            "|---|---:|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    print(markdown(), end="")
