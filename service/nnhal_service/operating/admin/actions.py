"""Actions of operators: their error, and their line in the audit log."""

from typing import Self

from nnhal_service import log


class AdminError(Exception):
    """An action that cannot be done. The text says why."""


class AuditedAction:
    """An action that is written to the audit log at its end, with its result."""

    def __init__(self, action: str, by: str, **fields: object) -> None:
        self._result = ""
        self._action = action
        self._by = by
        self._fields = fields

    def succeed(self, result: str) -> str:
        """Note the result, and return it."""
        self._result = result
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        result = self._result if error is None else f"failed: {error}"
        log.audit(self._action, by=self._by, **self._fields, result=result)
