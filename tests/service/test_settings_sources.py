"""Sources of settings: their order, their errors, and the effective values as TOML."""

import re
import tomllib
from pathlib import Path

import pytest

from nnhal_service.settings import Settings
from nnhal_service.settings_sources import DEFAULT, load_settings, option_name, to_toml, toml_value, variable_name


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable_name(name), raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "service.toml"
    path.write_text('threads = 5\nwarm = 1\ntransfers = 7\nbackends = ["CpuRef"]\n[limits]\nsessions = 8\n')
    return path


def test_later_sources_override_earlier_ones(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_WARM", "2")
    monkeypatch.setenv("NNHAL_TRANSFERS", "8")
    loaded = load_settings(file, {"transfers": "9"})
    settings = loaded.settings
    assert (settings.threads, settings.warm, settings.transfers) == (5, 2, 9)
    assert settings.backends == ("CpuRef",) and settings.limits == {"sessions": 8}
    names = ("threads", "warm", "transfers", "keepalive_s")
    assert [loaded.origins[name] for name in names] == [str(file), "NNHAL_WARM", "--transfers", DEFAULT]


def test_options_have_names_of_their_own() -> None:
    assert option_name("cache_dir") == "--cache-dir"
    assert option_name("devices") == "--device"
    assert option_name("limits") == "--limit"
    assert len({option_name(name) for name in Settings.model_fields}) == len(Settings.model_fields)


def test_errors_name_the_source(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_WARM", "-1")
    file.write_text("threads = 'x'\nbackends = ['a', 1]\n")
    with pytest.raises(ValueError) as caught:
        load_settings(file, {"transfers": "0"})
    problems = str(caught.value).split("; ")
    assert len(problems) == 4
    assert problems[0] == f"{file}: backends[1]: invalid value 1: expected text"
    assert problems[1].startswith(f"{file}: threads: invalid value 'x': expected an integer")
    assert problems[2].startswith("--transfers: invalid value '0'")
    assert problems[3].startswith("NNHAL_WARM: invalid value '-1'")


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "cannot read"), ("threads = ", "is not valid TOML"), ("thread = 5", "unknown setting 'thread'")],
)
def test_unusable_files_are_rejected(text: str | None, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "service.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{problem}|{problem} {re.escape(str(path))}"):
        load_settings(path, {})


def test_printed_values_can_be_read_again(file: Path, tmp_path: Path) -> None:
    loaded = load_settings(file, {"listen": ['unix:/a "b"\\c\x7f'], "insecure": True, "cache_key_file": "/key"})
    text = to_toml(loaded)
    assert f"threads = 5  # {file}\n" in text and "insecure = true  # --insecure\n" in text
    again = tmp_path / "again.toml"
    again.write_text(text)
    assert load_settings(again, {}).settings == loaded.settings
    assert "# cache_key_file is not set  # default\n" in to_toml(load_settings(None, {}))


def test_printed_devices_and_options_can_be_read_again(tmp_path: Path) -> None:
    options = ["Npu.threads=4", "b/Npu.path=x.y"]
    loaded = load_settings(
        None, {"devices": ["a", "b=Npu,CpuRef"], "backend_options": options, "device_types": ["a=GPU"]}
    )
    again = tmp_path / "again.toml"
    again.write_text(to_toml(loaded))
    assert load_settings(again, {}).settings == loaded.settings


@pytest.mark.parametrize("value", [{}, {"a b": 1, "c": 2}, (), ("x", "é"), 3, 0.5, False, "text"])
def test_values_are_toml(value: object) -> None:
    (parsed,) = tomllib.loads(f"x = {toml_value(value)}").values()
    assert parsed == (list(value) if isinstance(value, tuple) else value)
