"""Access by invented tokens."""

from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.web.access import HttpCaller, UnauthenticatedError

ADMIN = "Bearer admin-token"
OBSERVER = "Bearer observer-token"
STRANGER = "Bearer stranger-token"
_NAMES = {ADMIN: "admin", OBSERVER: "observer", STRANGER: "stranger"}


class FakeAccess:
    """The token "admin-token" may administer, "observer-token" may observe, and "stranger-token" may do neither.

    Args:
        is_open: anonymous callers may observe.
    """

    def __init__(self, is_open: bool = False) -> None:
        self._is_open = is_open

    def identify(self, caller: HttpCaller) -> Identity:
        if not caller.authorization:
            return ANONYMOUS
        if caller.authorization not in _NAMES:
            raise UnauthenticatedError("unknown token")
        return Identity("token", _NAMES[caller.authorization])

    def may_observe(self, identity: Identity) -> bool:
        return identity.name in ("admin", "observer") or (self._is_open and identity == ANONYMOUS)

    def may_administer(self, identity: Identity) -> bool:
        return identity.name == "admin"
