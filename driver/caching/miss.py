"""Why a model does not come back from the cache."""


class CacheMissError(Exception):
    """The files hold no model that this device can use.

    Attributes:
        reason: for a person.
        damaged: the files are of no use to any device: they are not what was saved.
    """

    def __init__(self, reason: str, *, damaged: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.damaged = damaged
