"""Native plug-ins that are broken, the header against `abi`, and the frozen plug-in of version 1.0."""

import ctypes as c
import hashlib
import subprocess
from pathlib import Path

import pytest

from driver.backends.discovery import file_candidate
from driver.backends.loading import LoadError, load
from driver.backends.native import abi
from driver.backends.probe import probe
from driver.backends.report import State
from tests.driver.backends.native.building import FROZEN, HEADERS, build, compiler, frozen

SOURCE = Path(__file__).with_name("broken.c")

BROKEN = {
    "UNDEFINED_SYMBOL": "undefined symbol: no_such_function",
    "NO_ID": "it has no GetBackendId; a native backend exports GetBackendId, GetVersion and BackendFactory",
    "NO_VERSION": "it has no GetVersion",
    "NO_FACTORY": "it has no BackendFactory",
    "NULL_ID": "GetBackendId gave None",
    "NEXT_MAJOR": "the major versions differ",
    "NEXT_MINOR": "it may need what this host lacks",
    "NOTHING": "BackendFactory gave nothing",
    "ANOTHER_VERSION": "GetVersion says 1.1, the table 1.7",
    "NO_SIZE": "the table says struct_size 0; at least",
    "SMALL": "set it to sizeof(NnhalBackend)",
    "NO_RELEASE": "the table lacks release, which every backend has",
    "NO_BACKEND_VERSION": "the table lacks version",
    "HALF_AN_ALLOCATOR": "one of allocate_buffer and free_buffer",
}


@pytest.mark.parametrize(("macro", "reason"), BROKEN.items(), ids=BROKEN)
def test_what_may_be_wrong(macro: str, reason: str, tmp_path: Path) -> None:
    path = build(SOURCE, tmp_path / "A_B_backend.so", HEADERS, f"-D{macro}")
    with pytest.raises(LoadError) as error:
        load(file_candidate(path))
    assert reason in str(error.value)


CRASHING = {
    "CRASH_ON_LOAD": "it crashed the process with SIGSEGV while loading it",
    "CRASH_IN_FACTORY": "it crashed the process with SIGABRT while calling BackendFactory",
    "EXIT_ON_LOAD": "it ended the process with exit code 9 while loading it",
    "HANG_ON_LOAD": "it hung for 0.5 s while loading it",
}


@pytest.mark.parametrize(("macro", "reason"), CRASHING.items(), ids=CRASHING)
def test_what_takes_the_process_with_it(macro: str, reason: str, tmp_path: Path) -> None:
    path = build(SOURCE, tmp_path / "A_B_backend.so", HEADERS, f"-D{macro}")
    report = probe(file_candidate(path), 0.5 if "HANG" in macro else 10).report
    assert (report.state, report.reason.split(";")[0]) == (State.FAILED, reason)


def test_a_table_of_the_required_part_loads(tmp_path: Path) -> None:
    loaded = load(file_candidate(build(SOURCE, tmp_path / "A_B_backend.so", HEADERS, "-DREQUIRED_ONLY")))
    assert loaded.backend.capabilities() == {}
    assert not any(loaded.hooks.values())


def test_any_version_behind_the_name_loads(tmp_path: Path) -> None:
    assert load(file_candidate(build(SOURCE, tmp_path / "A_B_backend.so.1.2"))).backend.id == "Broken"


STRUCTS = {
    "NnhalDevice": abi.Device,
    "NnhalDataType": abi.DataType,
    "NnhalTensor": abi.Tensor,
    "NnhalOperand": abi.Operand,
    "NnhalOperation": abi.Operation,
    "NnhalSubgraph": abi.Subgraph,
    "NnhalExecution": abi.Execution,
    "NnhalCapability": abi.Capability,
    "NnhalSink": abi.Sink,
    "NnhalBackend": abi.Backend,
}


def _layout(folder: Path) -> dict[str, int]:
    """Offset of each member and size of each struct, as the compiler has them."""
    lines = [f'printf("{s} %zu\\n", sizeof({s}));' for s in STRUCTS]
    for struct, mirror in STRUCTS.items():
        lines += [f'printf("{struct}.{name} %zu\\n", offsetof({struct}, {name}));' for name, *_ in mirror._fields_]
    lines.append('printf("version %d\\n", NNHAL_BACKEND_MAJOR * 1000 + NNHAL_BACKEND_MINOR);')
    source = folder / "layout.c"
    source.write_text(f'#include "nnhal_backend.h"\n#include <stdio.h>\nint main(void) {{ {" ".join(lines)} }}\n')
    program = folder / "layout"
    subprocess.run([compiler(), "-I", str(HEADERS), str(source), "-o", str(program)], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


def test_the_header_is_what_abi_says(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    assert layout.pop("version") == abi.MAJOR * 1000 + abi.MINOR
    expected = {struct: c.sizeof(mirror) for struct, mirror in STRUCTS.items()}
    for struct, mirror in STRUCTS.items():
        expected |= {f"{struct}.{name}": getattr(mirror, name).offset for name, *_ in mirror._fields_}
    assert layout == expected


def test_the_header_is_fit_for_c_plus_plus_too() -> None:
    header = HEADERS / "nnhal_backend.h"
    for language, standard in (("c", "-std=c99"), ("c++", "-std=c++11")):
        command = [compiler(), standard, "-Wall", "-Werror", "-pedantic", "-fsyntax-only", "-x", language, str(header)]
        empty = [compiler(), "-fsyntax-only", "-x", language, "/dev/null"]
        if subprocess.run(empty, check=False, capture_output=True).returncode:
            pytest.skip(f"the compiler has no {language}")
        subprocess.run(command, check=True)


def test_the_frozen_files_are_as_they_were() -> None:
    """Never change these numbers: a plug-in in the field cannot be changed either."""
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in sorted(FROZEN.iterdir())}
    assert digests == {"Frozen_All_backend.c": "86c9bd1e6be891ee", "nnhal_backend.h": "f913043434395d46"}


def test_the_frozen_plugin_loads_with_all_its_hooks(tmp_path: Path) -> None:
    loaded = load(file_candidate(frozen(tmp_path)))
    assert loaded.api_version == (1, 0)
    hooks_of_1_0 = [name for name, _ in abi.OPTIONAL][:17]
    assert all(loaded.hooks[name] for name in hooks_of_1_0)


def test_the_frozen_plugin_loads_when_the_table_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = ("invented_later", c.CFUNCTYPE(None, c.c_void_p))

    class Grown(c.Structure):
        _fields_ = [*abi.HEAD, *abi.REQUIRED, *abi.OPTIONAL, later]

    monkeypatch.setattr(abi, "Backend", Grown)
    monkeypatch.setattr(abi, "OPTIONAL", [*abi.OPTIONAL, later])
    monkeypatch.setattr("driver.backends.loading._Native.host", (abi.MAJOR, abi.MINOR + 1))
    loaded = load(file_candidate(frozen(tmp_path)))
    assert loaded.hooks["wait_finish"] and not loaded.hooks["invented_later"]
    assert loaded.backend.capabilities()["Frozen"]
