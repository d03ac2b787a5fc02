"""`nnhal reload`: finds the service, and says what to do if it cannot."""

from pathlib import Path

import pytest

from nnhal_service.identity.tokens import create_token
from nnhal_tools.cli.errors import NEEDS_RESTART
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.tools.cli.command import assert_fails, invoke


@pytest.mark.slow
def test_service_is_found_and_reloads(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = start_service(tmp_path, NNHAL_STATE_DIR=str(state))
    old = first.pid
    result = invoke("reload", "--state-dir", state, "--wait")
    assert result.exit_code == 0
    assert "the settings are valid" in result.stdout and result.stdout.endswith("reloaded\n")
    assert first.logged(" reloaded")
    assert first.pid != old
    (tmp_path / "other").mkdir()
    second = start_service(tmp_path / "other", NNHAL_STATE_DIR=str(state))
    assert_fails(invoke("reload", "--state-dir", state), 1, "several services run; name one", first.target)
    assert "the settings are valid" in invoke("reload", second.target, "--state-dir", state).stdout
    assert wait_until(lambda: second.logged(" reloaded"), 60)
    assert stop_service(second) == 0 and stop_service(first) == 0
    assert_fails(invoke("reload", "--state-dir", state), 1, "no service runs. Running: none")


@pytest.mark.slow
def test_exit_code_tells_what_a_reload_has_done(tmp_path: Path) -> None:
    """Settings that cannot change need a restart, invalid ones change nothing, and workers may not start."""
    settings, tokens = tmp_path / "nnhal.toml", tmp_path / "tokens"
    settings.write_text("workers = 1\n")
    tokens.write_text(create_token("a")[1])
    service = start_service(tmp_path, "--config", str(settings), NNHAL_STATE_DIR=str(tmp_path / "state"))
    arguments = ("reload", "--state-dir", tmp_path / "state", "--wait")
    settings.write_text("workers = 2\n")
    result = invoke(*arguments)
    assert result.exit_code == NEEDS_RESTART
    assert "these need a restart: workers" in result.stdout and result.stdout.endswith("reloaded\n")
    settings.write_text("workers = 0\n")
    assert_fails(invoke(*arguments), 1, "workers")
    settings.write_text(f"tokens = '{tokens}'\n")
    tokens.write_text("damaged")
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert "the reload has failed: " in result.stderr and "line 1: expected NAME sha256:DIGEST" in result.stderr
    assert stop_service(service) == 0


def test_no_service(tmp_path: Path) -> None:
    assert_fails(invoke("reload", "127.0.0.1:9", "--state-dir", tmp_path), 1, "no response from 127.0.0.1:9")
