"""Loading of native plug-ins: faults, the header against `abi`, and the frozen plug-in for version 1.0."""

import ctypes as c
import hashlib
import re
import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from nnhal_driver.backends.native import abi
from nnhal_driver.backends.plugins.discovery import Candidate, CandidateKind, file_candidate
from nnhal_driver.backends.plugins.loading import LoadError, load
from nnhal_driver.backends.plugins.probe import probe
from nnhal_driver.backends.report import CandidateState
from tests.driver.backends.native.building import EXAMPLE, FROZEN, FROZEN_1_1, HEADERS, build, compiler, frozen

SOURCE = Path(__file__).with_name("broken.c")

BROKEN = {
    "UNDEFINED_SYMBOL": "undefined symbol: no_such_function",
    "NO_ID": "it has no GetBackendId; a native backend exports GetBackendId, GetVersion and BackendFactory",
    "NO_VERSION": "it has no GetVersion",
    "NO_FACTORY": "it has no BackendFactory",
    "NULL_ID": "GetBackendId returned None",
    "NEXT_MAJOR": "the major versions differ",
    "NEXT_MINOR": "it may need features that this host lacks",
    "NOTHING": "BackendFactory returned nothing",
    "ANOTHER_VERSION": "GetVersion returned 1.2, but the table says 1.7",
    "NO_SIZE": "the table has struct_size 0; expected at least",
    "SMALL": "set it to sizeof(NnhalBackend)",
    "NO_RELEASE": "the table lacks release, which every backend has",
    "NO_BACKEND_VERSION": "the table lacks version",
    "HALF_AN_ALLOCATOR": "only one of allocate_buffer and free_buffer",
}


@pytest.mark.parametrize(("macro", "reason"), BROKEN.items(), ids=BROKEN)
def test_faults_are_reported(macro: str, reason: str, tmp_path: Path) -> None:
    path = build(SOURCE, tmp_path / "A_B_backend.so", HEADERS, f"-D{macro}")
    with pytest.raises(LoadError) as error:
        load(file_candidate(path))
    assert reason in str(error.value)


def test_package_may_contain_a_native_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package builds it like an extension module of Python, but it cannot be imported."""
    build(EXAMPLE, tmp_path / f"acme_simple{EXTENSION_SUFFIXES[0]}")
    build(SOURCE, tmp_path / f"acme_broken{EXTENSION_SUFFIXES[0]}", HEADERS, "-DNO_VERSION")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load(Candidate(CandidateKind.PACKAGE, "acme_simple", "package acme"))
    assert (loaded.backend.id, loaded.api_version) == ("Simple", (abi.MAJOR, abi.MINOR))
    with pytest.raises(LoadError, match="it has no GetVersion"):
        load(Candidate(CandidateKind.PACKAGE, "acme_broken", "package acme"))


CRASHING = {
    "CRASH_ON_LOAD": "it crashed the process with SIGSEGV while loading it",
    "CRASH_IN_FACTORY": "it crashed the process with SIGABRT while calling BackendFactory",
    "EXIT_ON_LOAD": "it ended the process with exit code 9 while loading it",
    "HANG_ON_LOAD": "it hung for 0.5 s while loading it",
}


@pytest.mark.parametrize(("macro", "reason"), CRASHING.items(), ids=CRASHING)
def test_crashes_and_hangs_are_reported(macro: str, reason: str, tmp_path: Path) -> None:
    path = build(SOURCE, tmp_path / "A_B_backend.so", HEADERS, f"-D{macro}")
    report = probe(file_candidate(path), 0.5 if "HANG" in macro else 10).report
    assert (report.state, report.reason.split(";")[0]) == (CandidateState.FAILED, reason)


def test_table_with_only_required_members_loads(tmp_path: Path) -> None:
    loaded = load(file_candidate(build(SOURCE, tmp_path / "A_B_backend.so", HEADERS, "-DREQUIRED_ONLY")))
    assert loaded.backend.capabilities() == {}
    assert not any(loaded.hooks.values())


def test_file_name_may_end_in_a_version(tmp_path: Path) -> None:
    assert load(file_candidate(build(SOURCE, tmp_path / "A_B_backend.so.1.2"))).backend.id == "Broken"


STRUCTS = {
    "NnhalDevice": abi.Device,
    "NnhalDataType": abi.DataType,
    "NnhalTensor": abi.TensorDescription,
    "NnhalOperand": abi.Operand,
    "NnhalOperation": abi.Operation,
    "NnhalSubgraph": abi.SubgraphDescription,
    "NnhalExecution": abi.Execution,
    "NnhalAllocator": abi.Allocator,
    "NnhalProfile": abi.ProfileStruct,
    "NnhalOptions": abi.Options,
    "NnhalCapability": abi.Capability,
    "NnhalSink": abi.Sink,
    "NnhalBackend": abi.BackendTable,
}


def _layout(folder: Path) -> dict[str, int]:
    """Return the offsets of members and the sizes of structs according to the compiler."""
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


def test_abi_matches_the_header(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    assert layout.pop("version") == abi.MAJOR * 1000 + abi.MINOR
    expected = {struct: c.sizeof(mirror) for struct, mirror in STRUCTS.items()}
    for struct, mirror in STRUCTS.items():
        expected |= {f"{struct}.{name}": getattr(mirror, name).offset for name, *_ in mirror._fields_}
    assert layout == expected


def test_header_compiles_as_c_and_cplusplus() -> None:
    header = HEADERS / "nnhal_backend.h"
    for language, standard in (("c", "-std=c99"), ("c++", "-std=c++11")):
        command = [compiler(), standard, "-Wall", "-Werror", "-pedantic", "-fsyntax-only", "-x", language, str(header)]
        empty = [compiler(), "-fsyntax-only", "-x", language, "/dev/null"]
        if subprocess.run(empty, check=False, capture_output=True).returncode:
            pytest.skip(f"the compiler has no {language}")
        subprocess.run(command, check=True)


def test_frozen_files_are_unchanged() -> None:
    """Never change these digests: released plug-ins were built from this code. Comments are not part of them."""
    files = [*FROZEN.iterdir(), *FROZEN_1_1.iterdir()]
    code = {
        f"{path.parent.name}/{path.name}": re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL) for path in files
    }
    digests = {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in code.items()}
    assert digests == {
        "frozen/Frozen_All_backend.c": "343f418bed89ac52",
        "frozen/nnhal_backend.h": "dbaf693eb53330b4",
        "frozen_1_1/nnhal_backend.h": "b4a0155df557f445",
    }


def test_frozen_plugin_loads_with_all_hooks(tmp_path: Path) -> None:
    loaded = load(file_candidate(frozen(tmp_path)))
    assert loaded.api_version == (1, 0)
    hooks_of_1_0 = [name for name, _ in abi.OPTIONAL][:17]
    assert all(loaded.hooks[name] for name in hooks_of_1_0)


def test_frozen_plugin_loads_after_the_table_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = ("added_later", c.CFUNCTYPE(None, c.c_void_p))

    class Grown(c.Structure):
        _fields_ = [*abi.HEAD, *abi.REQUIRED, *abi.OPTIONAL, added]

    monkeypatch.setattr(abi, "BackendTable", Grown)
    monkeypatch.setattr(abi, "OPTIONAL", [*abi.OPTIONAL, added])
    monkeypatch.setattr("nnhal_driver.backends.plugins.loading._Native.host", (abi.MAJOR, abi.MINOR + 1))
    loaded = load(file_candidate(frozen(tmp_path)))
    assert loaded.hooks["wait_finish"] and not loaded.hooks["added_later"]
    assert loaded.backend.capabilities()["Frozen"]
