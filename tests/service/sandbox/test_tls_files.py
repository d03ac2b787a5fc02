"""Files of TLS in the sandbox: workers can read them after they have been replaced, and probes of models cannot."""

import logging
from pathlib import Path
from typing import Any

import pytest

from nnhal_service.sandbox.profile import SandboxProfile, profile_of
from nnhal_service.settings import Settings


def profile(folder: Path, listen: tuple[str, ...], **settings: Any) -> SandboxProfile:
    own = Settings(cache_dir=folder / "cache", state_dir=folder / "state", **settings)
    return profile_of(own, listen, folder / "temporary")


def test_workers_read_the_files_and_their_folders(tmp_path: Path) -> None:
    cert, key, ca = (tmp_path / name / "file" for name in ("cert", "key", "ca"))
    readable = profile(tmp_path, ("127.0.0.1:0",), tls_cert=cert, tls_key=key, tls_client_ca=ca).readable
    assert {cert, cert.parent, key, key.parent, ca, ca.parent} <= set(readable)


@pytest.mark.parametrize("listen", [(), ("unix:/a/socket",)])
def test_processes_without_tcp_read_no_files_of_tls(tmp_path: Path, listen: tuple[str, ...]) -> None:
    result = profile(tmp_path, listen, tls_cert=tmp_path / "tls/cert", tls_key=tmp_path / "tls/key")
    assert not any(tmp_path / "tls" in (path, *path.parents) for path in result.readable)


def test_folders_with_files_of_others_are_not_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = Path("/etc/ssl/private/nnhal.key")
    with caplog.at_level(logging.WARNING, "nnhal"):
        result = profile(tmp_path, ("127.0.0.1:0",), tls_cert=tmp_path / "tls/cert", tls_key=key)
    assert key in result.readable
    assert key.parent not in result.readable
    assert [record.getMessage() for record in caplog.records] == ["sandbox-file"]
