"""`nnhal serve`: options, environment variables, signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from nnhal_service.settings import Settings
from nnhal_service.settings_sources import option_name
from tests.end_to_end.support.forking import forked_services
from tests.tools.cli.command import DIGITS, PROGRAM, assert_fails, invoke


def assert_serve_fails(options: Sequence[object], *words: str, **environment: str) -> None:
    """Run `nnhal serve` in a process of its own, because a supervisor must not fork pytest with its threads.

    It has to fail with one line on stderr that contains the words, and no other output.
    """
    with TemporaryFile("w+") as stderr:
        arguments = ["serve", *map(str, options)]
        with forked_services.start(arguments, {**os.environ, **environment}, stderr) as process:
            assert process.wait(60) == 2 and process.stdout.read() == ""
        stderr.seek(0)
        message = stderr.read()
    assert message.startswith("nnhal: ") and message.count("\n") == 1, message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--listen", "0.0.0.0:0"], ["0.0.0.0:0", "--insecure"]),
        (["--listen", "[::]:0"], ["[::]:0", "--insecure"]),
        (["--listen", "127.0.0.1:0", "--listen", "192.0.2.1:0"], ["192.0.2.1:0", "--insecure"]),
        (["--listen", "localhost"], ["'localhost'", "expected HOST:PORT"]),
        (["--listen", "localhost:65536"], ["localhost:65536", "expected HOST:PORT"]),
        (["--listen", "unix:"], ["unix:", "expected HOST:PORT"]),
        (["--listen", "unix:/nowhere/at/all"], ["cannot listen on unix:/nowhere/at/all"]),
        (["--backends", "CpuRef,Abacus"], ["'Abacus'", "CpuRef"]),
        (["--backends", ""], ["no backend ''"]),
    ],
)
def test_invalid_options_are_rejected(options: list[str], words: list[str]) -> None:
    assert_serve_fails(options, *words)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NNHAL_INSECURE", "perhaps"),
        ("NNHAL_LISTEN", '["localhost:0"'),
        ("NNHAL_BACKENDS", '["Abacus"]'),
        ("NNHAL_BACKENDS", "CpuRef,Abacus"),
        ("NNHAL_LIMITS", "sessions"),
        ("NNHAL_LOG_LEVEL", "loud"),
    ],
)
def test_invalid_environment_variables_are_rejected(name: str, value: str) -> None:
    word = "Abacus" if name == "NNHAL_BACKENDS" else name
    assert_serve_fails([], word, **{name: value})


def test_every_setting_has_an_option() -> None:
    shown = invoke("serve", "--help", COLUMNS="200").output
    for name, field in Settings.model_fields.items():
        assert re.search(rf"{option_name(name)}\b", shown), name
        assert str(field.description).split(".")[0][:30] in shown, name


def test_sources_override_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nnhal.toml").write_text("warm = 1\nthreads = 5\ninsecure = true\n")
    options = ["--device", "a", "--device", "b", "--no-insecure", "--no-cache", "--limit", "sessions=8"]
    result = invoke("serve", "--print-config", *options, NNHAL_WARM="2", NNHAL_DATA_USERS="3,4")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    for line in (
        'devices = ["a", "b"]  # --device',
        "insecure = false  # --insecure",
        "cache_bytes = 0  # --cache-bytes",
        'limits = { "sessions" = 8 }  # --limit',
        "warm = 2  # NNHAL_WARM",
        "data_users = [3, 4]  # NNHAL_DATA_USERS",
        "threads = 5  # nnhal.toml",
        "transfers = 32  # default",
    ):
        assert line in lines
    other = tmp_path / "other.toml"
    other.write_text("warm = 7\n")
    printed = invoke("serve", "--print-config", "--config", other).stdout
    assert f"warm = 7  # {other}\n" in printed and "threads = 512  # default\n" in printed
    assert "threads = 512  # default\n" in invoke("serve", "--print-config", "--embedded", os.getpid()).stdout


def test_invalid_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text("warm = 'x'")
    assert_serve_fails(["--config", file], f"{file}: warm: invalid value 'x'")
    assert_serve_fails(["--config", tmp_path / "none.toml"], "cannot read", "none.toml")


@pytest.mark.parametrize("options", [["--log-level", "loud"], ["extra"], ["--nothing"]])
def test_unknown_arguments_are_usage_errors(options: list[str]) -> None:
    result = invoke("serve", *options)
    assert result.exit_code == 2 and options[-1] in result.stderr


def test_numpy_starts_no_threads_of_its_own() -> None:
    """Executions share the cores themselves, and a process with threads cannot be forked safely."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    code = (
        "import os; from nnhal_tools.cli.services.serve_options import ServeCommand;"
        "ServeCommand('serve', callback=None, params=[])._setting_options;"
        "import numpy; print(len(os.listdir('/proc/self/task')))"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "1\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_prints_its_addresses_and_exits_on_a_signal(number: int, tmp_path: Path) -> None:
    addresses = ["--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s"]
    environment = {**os.environ, "NNHAL_DEVICES": '["other"]', "NNHAL_LISTEN": '["0.0.0.0:0"]'}
    command = [*PROGRAM, "serve", *addresses, "--log-level", "error"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            first = re.fullmatch(r"listening on (127\.0\.0\.1:[1-9]\d*)\n", lines[0])
            assert first and lines[1] == f"listening on unix:{tmp_path}/s\n"
            assert invoke("info", "--target", first[1]).exit_code == 0
            assert_fails(invoke("run", DIGITS, "--target", first[1], "--device", "nnhal"), 1, "'nnhal'", "other")
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
            assert (out, err) == ("", "")
        finally:
            process.kill()
    assert process.returncode == 0
