"""`nnhal delegate`."""

import shutil
import sys

import pytest

from tests.tools.cli.command import UNREACHABLE, assert_fails, invoke

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="the library is built on Linux with a C compiler"
)


def test_path_and_check(target: str) -> None:
    path = invoke("delegate", "path")
    assert path.exit_code == 0 and path.stdout.endswith("/libnnhal_delegate.so\n")
    result = invoke("delegate", "check", f"target={target}")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "libnnhal_delegate.so works"


def test_check_reports_errors() -> None:
    assert_fails(invoke("delegate", "check", f"target={UNREACHABLE}"), 1, "no response from", UNREACHABLE)
    assert_fails(invoke("delegate", "check", "colour=red"), 1, "unknown option 'colour'")
    assert_fails(invoke("delegate", "check", "colour"), 2, "invalid option 'colour'; expected NAME=VALUE")
