"""Extras to install when an import fails."""

import pytest

from nnhal_tools.extras import missing_extra
from tests.tools.cli.command import DIGITS, assert_fails, invoke


@pytest.mark.parametrize(
    ("error", "extra"),
    [
        (ModuleNotFoundError("", name="pydantic"), "server"),
        (ModuleNotFoundError("", name="PIL.Image"), "cli"),
        (ModuleNotFoundError("", name="a_plugin"), ""),
        (ImportError("something else"), ""),
    ],
)
def test_extra_is_found_by_the_package(error: ImportError, extra: str) -> None:
    assert missing_extra(error) == extra


def test_command_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: object, **_: object) -> None:
        raise ModuleNotFoundError("No module named 'rich'", name="rich")

    monkeypatch.setattr("nnhal.tflite.load", load)
    assert_fails(invoke("run", DIGITS), 2, "this command needs more packages: pip install 'nnhal[cli]'")
