"""Cache misses."""


class CacheMissError(Exception):
    """The files hold no model that this device can use.

    Attributes:
        reason: text for people.
        damaged: whether the files differ from what was saved, so that no device can use them.
    """

    def __init__(self, reason: str, *, damaged: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.damaged = damaged
