"""Error of the administration."""


class AdminError(Exception):
    """An action that cannot be done. The text says why."""
