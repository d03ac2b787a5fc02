"""Burst: IBurst; executions of one prepared model, one at a time, over kept memories (hal-surface 8.5, 9.8)."""

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from driver.cancellation import Cancellation
from driver.memory import ValidRequest
from driver.prepared_model import PreparedModel
from nnhal.errors import HalError, general_failure, invalid_argument
from nnhal.types import (
    OMITTED,
    ErrorKind,
    ErrorStatus,
    ExecutionConfig,
    ExecutionResult,
    Memory,
    Request,
    RequestMemoryPool,
    UnsetUnion,
)

NOT_KEPT = -1
"""The identifier of a pool that is not to be kept."""

_DEFAULT_CONFIG = ExecutionConfig()


class Burst:
    """A burst. Thread safe: an execution that comes while another one runs is refused, as the HAL says.

    Args:
        prepared_model: what it executes.
        capacity: how many memories it keeps at most (limit burst_memories).
    """

    def __init__(self, prepared_model: PreparedModel, capacity: int) -> None:
        self.prepared_model = prepared_model
        self._capacity = capacity
        self._memories: dict[int, Memory] = {}
        self._busy = threading.Lock()

    def execute_synchronously(
        self,
        request: Request,
        memory_identifier_tokens: Sequence[int],
        config: ExecutionConfig = _DEFAULT_CONFIG,
        deadline_ns: int = OMITTED,
        cancellation: Cancellation | None = None,
        owner: Hashable = None,
    ) -> ExecutionResult:
        """As PreparedModel.execute_synchronously.

        Args:
            memory_identifier_tokens: one per pool; -1: not kept. The first use of an identifier says which memory it
                stands for, even when that execution fails; later ones take the memory that is kept.

        Raises:
            HalError: GENERAL_FAILURE: the burst is busy; INVALID_ARGUMENT: an identifier below -1, or not one for each
                pool; RESOURCE_EXHAUSTED_TRANSIENT: the burst keeps too many memories; or the execution failed.
        """
        with self.alone():
            _check_identifiers(memory_identifier_tokens, len(request.pools))
            pairs = zip(request.pools, memory_identifier_tokens, strict=True)
            request = replace(request, pools=tuple(self._resolved(*pair) for pair in pairs))
            return self.prepared_model.execute_synchronously(request, config, deadline_ns, cancellation, owner)

    def execute_valid(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        deadline_ns: int,
        cancellation: Cancellation,
        owner: Hashable,
        started_ns: int,
    ) -> ExecutionResult:
        """As PreparedModel.execute_valid, of a request none of whose pools is to be kept.

        Raises:
            HalError: GENERAL_FAILURE: the burst is busy; or the execution failed.
        """
        self._take()
        try:
            return self.prepared_model.execute_valid(request, config, deadline_ns, cancellation, owner, started_ns)
        finally:
            self._busy.release()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the burst for one execution.

        Raises:
            HalError: GENERAL_FAILURE: the burst is busy.
        """
        self._take()
        try:
            yield
        finally:
            self._busy.release()

    def _take(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise general_failure("the burst is busy: it runs one execution at a time")

    def release_memory_resource(self, memory_identifier_token: int) -> None:
        """Forgets a memory; an execution in progress goes on with it. Unknown identifiers do no harm.

        Raises:
            HalError: INVALID_ARGUMENT: below -1.
        """
        _check_identifier(memory_identifier_token)
        self._memories.pop(memory_identifier_token, None)

    def keeps(self, memory_identifier_token: int) -> bool:
        """Whether an identifier stands for a memory."""
        return memory_identifier_token in self._memories

    def _resolved(self, pool: RequestMemoryPool, identifier: int) -> RequestMemoryPool:
        """The memory that an identifier stands for; buffers and returned pools are never kept."""
        if identifier == NOT_KEPT or not isinstance(pool, Memory | UnsetUnion):
            return pool
        if identifier in self._memories:
            return self._memories[identifier]
        if isinstance(pool, Memory):
            if len(self._memories) >= self._capacity:
                raise HalError(
                    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
                    f"the burst keeps {self._capacity} memories already (limit burst_memories)",
                    kind=ErrorKind.LIMIT,
                    limit="burst_memories",
                )
            self._memories[identifier] = pool
        return pool


def _check_identifiers(identifiers: Sequence[int], pools: int) -> None:
    if len(identifiers) != pools:
        raise invalid_argument(f"{len(identifiers)} memory identifiers for {pools} pools; each pool has one")
    for identifier in identifiers:
        _check_identifier(identifier)


def _check_identifier(identifier: int) -> None:
    if identifier < NOT_KEPT:
        raise invalid_argument(f"memory identifier {identifier} is below -1")
