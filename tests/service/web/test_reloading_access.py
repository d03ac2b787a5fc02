"""Access after a reload: new settings count, and invalid ones do not."""

from pathlib import Path

import pytest

from nnhal_service.admin.view import AdminError
from nnhal_service.identity.identity import Identity
from nnhal_service.identity.policy import IdentityRules, Policy
from nnhal_service.identity.tokens import create_token
from nnhal_service.settings import Settings
from nnhal_service.web.access import HttpCaller, UnauthenticatedError
from nnhal_service.web.reloading_access import ReloadingAccess

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

    def identify(self, token: str) -> Identity:
        self.now_s += 10
        return self.access.identify(HttpCaller(f"Bearer {token}" if token else ""))


def test_rights_follow_the_settings(tmp_path: Path) -> None:
    token, line = create_token("alice")
    (tmp_path / "tokens").write_text(line)
    (tmp_path / "tokens").chmod(0o600)
    policy = Policy(identities={"token:alice": IdentityRules(administer=True)})
    service = Service(Settings())
    with pytest.raises(UnauthenticatedError):
        service.identify(token)
    assert service.access.may_observe(service.identify(""))

    service.settings = Settings(tokens=tmp_path / "tokens", policy=policy)
    assert service.identify(token) == ALICE
    assert service.access.may_administer(ALICE)
    assert not service.access.may_observe(service.identify(""))

    for failure in (AdminError("the service has ended"), Settings(tokens=tmp_path / "missing")):
        service.settings = failure
        assert service.identify(token) == ALICE, "the previous settings count"

    service.settings = Settings(tokens=tmp_path / "tokens")
    assert service.identify(token) == ALICE
    assert not service.access.may_administer(ALICE)
