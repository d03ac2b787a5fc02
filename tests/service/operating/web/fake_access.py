"""Access by invented tokens."""

from nnhal_service.identity.http_caller import HttpCaller
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.operating.web.access import CallerRights, UnauthenticatedError

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

    def __call__(self, caller: HttpCaller) -> CallerRights:
        if not caller.authorization:
            return CallerRights(ANONYMOUS, self._is_open, may_administer=False)
        if caller.authorization not in _NAMES:
            raise UnauthenticatedError("unknown token")
        name = _NAMES[caller.authorization]
        return CallerRights(Identity("token", name), name in ("admin", "observer"), name == "admin")
