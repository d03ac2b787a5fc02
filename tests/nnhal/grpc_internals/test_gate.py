"""The gate to private parts of gRPC: when it opens, and that nothing passes it by."""

import inspect
import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from nnhal.grpc_internals import direct_stream, gate, server_calls
from nnhal.grpc_internals.gate import private_parts

ROOT = Path(__file__).parents[3]
PRIVATE = re.compile(
    r"cygrpc|grpc\._[a-z]|from grpc import _|_rpc_event|segregated_call|_MultiCallable|_RPCState|_InactiveRpcError|"
    r"import_module\(f?[\"']grpc"
)
PRODUCT = ("cache", "client", "driver", "service", "tools/nnhal_tools")
PARTS = {"_server._raise_rpc_error": "state"}, {"_server": "_CANCELLED"}


@pytest.fixture(autouse=True)
def _private_parts_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gate.SWITCH, raising=False)


def test_the_installed_release_is_as_expected() -> None:
    assert set(private_parts(*PARTS)) == {"_server", "_server._raise_rpc_error"}
    modules = "direct_stream", "server_calls", "unary_call"
    program = (
        f"from nnhal.grpc_internals import {', '.join(modules)}\nprint(*(not m._PARTS for m in ({', '.join(modules)})))"
    )
    for switch, expected in (("", "False False False"), ("1", "True True True")):
        environment = {**os.environ, gate.SWITCH: switch}
        result = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert result.stdout.strip() == expected


@pytest.mark.parametrize("switch", ["1", "true"])
def test_the_switch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, switch: str) -> None:
    monkeypatch.setenv(gate.SWITCH, switch)
    with caplog.at_level(logging.DEBUG, "nnhal.grpc"):
        assert private_parts(*PARTS) == {}
    assert caplog.messages == ["only the public interface of gRPC is used: NNHAL_PLAIN_GRPC is set"]


@pytest.mark.parametrize("release", ["1.82.3", "1.86.0", "1.86.0rc1", "2.0.0", "1.x"])
def test_other_releases(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(grpc, "__version__", release)
    assert private_parts(*PARTS) == {}


@pytest.mark.parametrize(
    ("functions", "members", "problem"),
    [
        ({"_server._raise_rpc_error": "state reason"}, {}, "found state; expected state reason"),
        ({"_server._raise_rpc_error": ""}, {}, "found state; expected "),
        ({"_server._unknown": ""}, {}, "no attribute '_unknown'"),
        ({"_unknown._raise_rpc_error": ""}, {}, "No module named 'grpc._unknown'"),
        ({}, {"_server": "_CANCELLED _unknown"}, "found _CANCELLED; expected _CANCELLED _unknown"),
        ({}, {"_server._RPCState": "client unknown"}, "found client; expected client unknown"),
    ],
)
def test_parts_that_differ(
    caplog: pytest.LogCaptureFixture, functions: dict[str, str], members: dict[str, str], problem: str
) -> None:
    with caplog.at_level(logging.DEBUG, "nnhal.grpc"):
        assert private_parts(functions, members) == {}
    (message,) = caplog.messages
    assert problem in message


def test_pyproject_demands_the_releases_of_the_gate() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (requirement,) = (text for text in project["dependencies"] if text.startswith("grpcio>"))
    major, last = gate.LAST
    assert re.fullmatch(rf"grpcio>={gate.FIRST[0]}\.{gate.FIRST[1]}\.\d+,<{major}\.{last + 1}", requirement)


def test_nothing_else_uses_private_parts() -> None:
    found = [path for path in _sources() if PRIVATE.search((ROOT / path).read_text())]
    assert found and {Path(path).parent.as_posix() for path in found} == {"client/nnhal/grpc_internals"}


def test_all_parts_are_checked() -> None:
    for module in (direct_stream, server_calls):
        source = inspect.getsource(module)
        uses = set(re.findall(r"\b(?:_server|cygrpc)\.(\w+)", source)) - {"Channel", "SegregatedCall", "Call"}
        checked = source[source.index("_PARTS = private_parts(") : source.index("\n)\n")]
        assert uses and all(re.search(rf"\b{name}\b", checked) for name in uses), (module, uses)


def _sources() -> Iterator[str]:
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*.py"):
            if not path.stem.endswith(("_pb2", "_pb2_grpc")):
                yield path.relative_to(ROOT).as_posix()
