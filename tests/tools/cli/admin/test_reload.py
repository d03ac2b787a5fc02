"""`nnhal reload`: finds the service, and says what to do if it cannot."""

from pathlib import Path

import pytest

from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.tools.cli.command import assert_fails, invoke


@pytest.mark.slow
def test_service_is_found_and_reloads(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = start_service(tmp_path, NNHAL_STATE_DIR=str(state))
    old = first.pid
    result = invoke("reload", "--state-dir", state)
    assert "the settings are valid" in result.stdout
    assert wait_until(lambda: first.logged(" reloaded"), 60)
    assert first.pid != old
    (tmp_path / "other").mkdir()
    second = start_service(tmp_path / "other", NNHAL_STATE_DIR=str(state))
    assert_fails(invoke("reload", "--state-dir", state), 1, "several services run; name one", first.target)
    assert "the settings are valid" in invoke("reload", second.target, "--state-dir", state).stdout
    assert wait_until(lambda: second.logged(" reloaded"), 60)
    assert stop_service(second) == 0 and stop_service(first) == 0
    assert_fails(invoke("reload", "--state-dir", state), 1, "no service runs. Running: none")


def test_no_service(tmp_path: Path) -> None:
    assert_fails(invoke("reload", "127.0.0.1:9", "--state-dir", tmp_path), 1, "no response from 127.0.0.1:9")
