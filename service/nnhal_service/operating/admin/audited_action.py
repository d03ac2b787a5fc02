"""Actions of operators in the audit log."""

from nnhal_service import log


class AuditedAction:
    """An action that is written to the audit log at its end, with its result."""

    def __init__(self, action: str, by: str, **fields: object) -> None:
        self.result = ""
        self._action = action
        self._by = by
        self._fields = fields

    def __enter__(self) -> "AuditedAction":
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        result = self.result if error is None else f"failed: {error}"
        log.audit(self._action, by=self._by, **self._fields, result=result)
