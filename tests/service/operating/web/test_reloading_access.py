"""Access after a reload: new settings count, and invalid ones do not."""

from pathlib import Path

import pytest

from nnhal_service.identity.identity import Identity
from nnhal_service.identity.policy import IdentityRules, Policy
from nnhal_service.identity.tokens import create_token
from nnhal_service.operating.admin.errors import AdminError
from nnhal_service.operating.web.http_access import CallerRights, HttpCaller, UnauthenticatedError
from nnhal_service.operating.web.reloading_access import ReloadingAccess
from nnhal_service.settings import Settings

ALICE = Identity("token", "alice")


class Service:
    """Settings that change, and a clock."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Settings | Exception = settings
        self.now_s = 0.0
        self.access = ReloadingAccess(settings, 8080, self.read, lambda: self.now_s)

    def read(self) -> Settings:
        if isinstance(self.settings, Exception):
            raise self.settings
        return self.settings

    def rights(self, token: str) -> CallerRights:
        self.now_s += 10
        return self.access.find_rights(HttpCaller(f"Bearer {token}" if token else ""))


def test_rights_follow_the_settings(tmp_path: Path) -> None:
    token, line = create_token("alice")
    (tmp_path / "tokens").write_text(line)
    (tmp_path / "tokens").chmod(0o600)
    policy = Policy(identities={"token:alice": IdentityRules(administer=True)})
    service = Service(Settings())
    with pytest.raises(UnauthenticatedError):
        service.rights(token)
    assert service.rights("").may_observe

    service.settings = Settings(tokens=tmp_path / "tokens", policy=policy)
    assert service.rights(token) == CallerRights(ALICE, may_observe=True, may_administer=True)
    assert not service.rights("").may_observe

    for failure in (AdminError("the service has ended"), Settings(tokens=tmp_path / "missing")):
        service.settings = failure
        assert service.rights(token).identity == ALICE, "the previous settings count"

    service.settings = Settings(tokens=tmp_path / "tokens")
    assert service.rights(token) == CallerRights(ALICE, may_observe=False, may_administer=False)
