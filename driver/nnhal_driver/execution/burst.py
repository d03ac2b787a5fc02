"""Bursts (IBurst): executions of one prepared model, one at a time, over cached memories (hal-surface 8.5, 9.8)."""

from collections.abc import Sequence
from dataclasses import replace

from nnhal.errors import invalid_argument, limit_exceeded
from nnhal.types import (
    ExecutionConfig,
    ExecutionResult,
    Memory,
    Request,
    RequestMemoryPool,
    UnsetUnion,
)
from nnhal_driver.execution.exclusive_use import ExclusiveUse
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.prepared_model import DEFAULT_CONFIG, PreparedModel

NOT_CACHED = -1
"""Identifier of a pool that the burst does not cache."""


class Burst:
    """A burst. Thread safe: an execution that arrives during another one is rejected, as the HAL requires.

    Args:
        capacity: maximum number of cached memories (limit burst_memories).

    Attributes:
        exclusive: the use of the burst by one execution. Enter it to execute a valid request on the model.
    """

    def __init__(self, prepared_model: PreparedModel, capacity: int) -> None:
        self.prepared_model = prepared_model
        self._capacity = capacity
        self._memories: dict[int, Memory] = {}
        self.exclusive = ExclusiveUse("the burst is busy: it runs one execution at a time")

    def execute_synchronously(
        self,
        request: Request,
        memory_identifier_tokens: Sequence[int],
        config: ExecutionConfig = DEFAULT_CONFIG,
        call: ExecutionCall | None = None,
    ) -> ExecutionResult:
        """Execute a request like `PreparedModel.execute_synchronously`.

        There is one memory identifier for each pool; -1: do not cache. The first use of an identifier caches the
        memory, even if that execution fails. Later uses take the cached memory.

        Raises:
            HalError: GENERAL_FAILURE: the burst is busy; INVALID_ARGUMENT: an identifier below -1, or not one for each
                pool; RESOURCE_EXHAUSTED_TRANSIENT: the burst caches too many memories; or the execution failed.
        """
        with self.exclusive:
            with self.prepared_model.clearing_outputs(request):
                _check_identifiers(memory_identifier_tokens, len(request.pools))
                pairs = zip(request.pools, memory_identifier_tokens, strict=True)
                request = replace(request, pools=tuple(self._resolve(*pair) for pair in pairs))
            return self.prepared_model.execute_synchronously(request, config, call)

    def release_memory_resource(self, memory_identifier_token: int) -> None:
        """Remove a cached memory. An execution in progress is not affected. Unknown identifiers are ignored.

        Raises:
            HalError: INVALID_ARGUMENT: the identifier is below -1.
        """
        _check_identifier(memory_identifier_token)
        self._memories.pop(memory_identifier_token, None)

    def is_cached(self, memory_identifier_token: int) -> bool:
        """Return whether a memory is cached under an identifier."""
        return memory_identifier_token in self._memories

    def _resolve(self, pool: RequestMemoryPool, identifier: int) -> RequestMemoryPool:
        """Return the memory that is cached under an identifier. Buffers and returned pools are never cached."""
        if identifier == NOT_CACHED or not isinstance(pool, Memory | UnsetUnion):
            return pool
        if identifier in self._memories:
            return self._memories[identifier]
        if isinstance(pool, Memory):
            if len(self._memories) >= self._capacity:
                raise limit_exceeded("burst_memories", f"the burst caches {self._capacity} memories already")
            self._memories[identifier] = pool
        return pool


def _check_identifiers(identifiers: Sequence[int], pools: int) -> None:
    if len(identifiers) != pools:
        raise invalid_argument(f"{len(identifiers)} memory identifiers for {pools} pools; expected one for each pool")
    for identifier in identifiers:
        _check_identifier(identifier)


def _check_identifier(identifier: int) -> None:
    if identifier < NOT_CACHED:
        raise invalid_argument(f"invalid memory identifier {identifier}; expected -1 or more")
