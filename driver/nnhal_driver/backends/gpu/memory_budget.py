"""Budget of the memory of a GPU, counted before it is allocated: the engine does not tell what its models need."""

from threading import RLock


class MemoryBudget:
    """Bytes that models may use. Thread safe.

    Attributes:
        used: bytes in use.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._lock = RLock()  # a finalizer may run while its thread has the lock

    def reserve(self, size: int) -> "BudgetShare":
        """Count bytes until the result is freed.

        Raises:
            MemoryError: there are not so many.
        """
        return BudgetShare(self, size)

    def change(self, size: int) -> None:
        """Count more bytes, or fewer. Raises MemoryError as `reserve`."""
        with self._lock:
            if size > 0 and self.used + size > self._limit:
                raise MemoryError(
                    f"the GPU has {self._limit} bytes, of which models use {self.used}; {size} are needed"
                )
            self.used += size


class BudgetShare:
    """Bytes that count until this object is freed."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: MemoryBudget, size: int) -> None:
        self._size = 0
        self._budget = budget
        budget.change(size)
        self._size = size

    def __del__(self) -> None:
        self._budget.change(-self._size)
