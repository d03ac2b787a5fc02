"""Administration over TCP: TLS, identities, and the right to administer."""

import re
from pathlib import Path

import pytest
from typer.testing import Result

from nnhal_service.identity.tokens import create_token
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.service.tls.authority import Authority
from tests.tools.cli.command import assert_fails, invoke


@pytest.mark.slow
def test_only_identities_that_may_administer_do(tmp_path: Path) -> None:
    authority = Authority()
    authority.issue().write(tmp_path)
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    lines = []
    for name in ("alice", "camera"):
        token, line = create_token(name)
        (tmp_path / name).write_text(token)
        lines.append(line)
    (tmp_path / "tokens").write_text("\n".join(lines))
    for name in ("alice", "camera", "tokens"):
        (tmp_path / name).chmod(0o600)
    config = tmp_path / "nnhal.toml"
    config.write_text('[policy.identities."token:alice"]\nadminister = true\n')
    service = start_service(
        tmp_path,
        *("--admin-listen", "127.0.0.1:0", "--tls-cert", str(tmp_path / "tls.crt"), "--config", str(config)),
        *("--tls-key", str(tmp_path / "tls.key"), "--tokens", str(tmp_path / "tokens")),
        NNHAL_STATE_DIR=str(tmp_path / "state"),
    )

    def try_as(name: str, address: str, *command: str) -> Result:
        environment = {"NNHAL_TLS_CA": str(tmp_path / "ca.pem")}
        if name:
            environment["NNHAL_TOKEN_FILE"] = str(tmp_path / name)
        return invoke(*command, "--target", address, "--state-dir", tmp_path / "none", **environment)

    try:
        pattern = re.compile(r"admin-serving port=(\d+)")
        assert wait_until(lambda: pattern.search(service.log.read_text()), 60)
        (port,) = pattern.findall(service.log.read_text())
        address = f"127.0.0.1:{port}"
        result = try_as("alice", address, "admin", "resume")
        assert result.stdout == "1 worker resumed\n", (result.output, result.exception)
        assert service.logged("audit action=resume by=token:alice")
        assert_fails(try_as("camera", address, "admin", "drain"), 1, "token:camera may not administer")
        assert service.logged("audit action=Drain by=token:camera result=denied")
        assert_fails(try_as("", address, "admin", "drain"), 1, "anonymous may not administer")
        (tmp_path / "alice").write_text("nnhal_wrong_0000")
        assert_fails(try_as("alice", address, "admin", "drain"), 1, "may not administer")
        assert "--admin-listen" in try_as("camera", service.target, "admin", "status").stderr
        config.write_text('[policy.identities."token:camera"]\nadminister = true\n')
        assert invoke("reload", "--state-dir", tmp_path / "state").exit_code == 0
        assert wait_until(lambda: len(pattern.findall(service.log.read_text())) == 2, 60)
        result = try_as("camera", address, "admin", "resume")
        assert result.stdout == "1 worker resumed\n", (result.output, result.exception)
        assert not service.logged("admin-died")
    finally:
        assert stop_service(service) == 0
