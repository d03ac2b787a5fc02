"""Tools for backend authors: the doctor and the skeletons."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nnhal_driver.backends.plugins import doctor, skeleton
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load
from tests.driver.backends.native.building import HEADERS, build, newer
from tests.driver.backends.plugins import plugin_files

PROJECT = ["pyproject.toml", "README.md", ".github/workflows/test.yml"]
"""Files of a kit in any language. tests/test_installation.py runs the commands of its README."""


def test_doctor_accepts_a_python_backend(tmp_path: Path) -> None:
    lines, ready = doctor.diagnose(plugin_files.write(tmp_path, "A_B_backend.py"))
    assert ready
    assert "id           Doubler" in lines
    assert "hook         performance: absent, it counts as fast as the CPU" in lines
    assert "operations   it supports an example of 1 of 102" in lines
    assert lines[-1] == "verdict      ready"


def test_doctor_describes_a_native_backend(tmp_path: Path) -> None:
    lines, ready = doctor.diagnose(newer(tmp_path))
    assert ready
    assert "interface    made for 1.1, this host offers 1.2" in lines
    assert "capability   StridedInputs: no, the host copies inputs with gaps" in lines
    assert {f"hook         {name}: present" for name in ("optimize", "layouts", "operand_types")} <= set(lines)
    assert "hook         performance: absent, it counts as fast as the CPU" in lines


@pytest.mark.parametrize(
    ("name", "changes", "fault"),
    [
        ("backend.py", {}, "it would not be found: the name does not follow"),
        (
            "A_B_backend.py",
            {"return Doubler()": "import os; os.abort()"},
            "loaded: it crashed the process with SIGABRT",
        ),
        ("A_B_backend.py", {'"Doubler"': '"CpuRef"'}, "registered: the id CpuRef is taken by a built-in backend"),
    ],
)
def test_doctor_names_the_fault(name: str, changes: dict[str, str], fault: str, tmp_path: Path) -> None:
    lines, ready = doctor.diagnose(plugin_files.write(tmp_path, name, changes))
    assert not ready
    assert any(line.startswith("fault") and fault in line for line in lines)
    assert lines[-1] == "verdict      it would not be used"


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("raise IndexError('no')", "backend Doubler failed in supports: IndexError: no"),
        ("return 7", "backend Doubler: supports returned 7; expected a Support"),
    ],
)
def test_doctor_reports_a_backend_that_fails(statement: str, fault: str, tmp_path: Path) -> None:
    changes = {"return Support(": f"{statement}; return Support("}
    lines, ready = doctor.diagnose(plugin_files.write(tmp_path, "A_B_backend.py", changes))
    assert not ready
    assert any(line.startswith(f"fault        {fault}") for line in lines), lines
    assert lines[-1] == "verdict      it would be used, and fails"


def test_doctor_tells_that_a_backend_runs_nothing(tmp_path: Path) -> None:
    lines, ready = doctor.diagnose(plugin_files.write(tmp_path, "A_B_backend.py", {"Type.RELU": "Type.IF"}))
    assert ready
    assert "operations   it supports an example of 0 of 102: it would run nothing but extensions" in lines


def test_doctor_reports_operations_that_do_not_compile(tmp_path: Path) -> None:
    changes = {"return lambda call": "raise ValueError('no'); return lambda call"}
    lines, ready = doctor.diagnose(plugin_files.write(tmp_path, "A_B_backend.py", changes))
    assert not ready
    assert any("it supports RELU of TENSOR_FLOAT16, and fails to compile it: " in line for line in lines), lines


def test_doctor_survives_a_crash_in_supports(tmp_path: Path) -> None:
    changes = {"return Support(": "import os; os.abort(); return Support("}
    lines, ready = doctor.diagnose(plugin_files.write(tmp_path, "A_B_backend.py", changes))
    assert not ready
    assert any("it crashed the process with SIGABRT while trying its operations" in line for line in lines), lines


def test_python_skeleton_loads(tmp_path: Path) -> None:
    paths = skeleton.write_skeleton("Acme", "Npu", "python", tmp_path / "new")
    files = {path.relative_to(tmp_path / "new").as_posix(): path.read_text() for path in paths}
    assert list(files) == ["Acme_Npu_backend.py", "test_npu.py", *PROJECT]
    assert load(file_candidate(paths[0])).backend.id == "Npu"
    for name, text in files.items():
        assert not re.search("@[A-Z_]+@", text), name
        if name.endswith(".py"):
            compile(text, name, "exec")
    project = tomllib.loads(files["pyproject.toml"])
    assert project["project"]["entry-points"]["nnhal.backends"] == {"Acme_Npu": "Acme_Npu_backend"}
    assert project["tool"]["setuptools"]["py-modules"] == ["Acme_Npu_backend"]


@pytest.mark.slow
def test_python_skeleton_has_types(tmp_path: Path) -> None:
    """The packages of nnhal have the marker py.typed, so that an author can check a backend with mypy."""
    files = skeleton.write_skeleton("Acme", "Npu", "python", tmp_path)
    sources = [str(path) for path in files if path.suffix == ".py"]
    options = ["--strict", "--config-file", os.devnull, "--cache-dir", str(tmp_path / "cache")]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *sources], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


def test_c_skeleton_builds_and_loads(tmp_path: Path) -> None:
    files = {path.name: path for path in skeleton.write_skeleton("Acme", "Dsp", "c", tmp_path)}
    assert (HEADERS / "nnhal_backend.h").read_bytes() == files["nnhal_backend.h"].read_bytes()
    library = build(files["Acme_Dsp_backend.c"], tmp_path / "Acme_Dsp_backend.so", tmp_path)
    backend = load(file_candidate(library)).backend
    assert backend.id == "Dsp"
    assert [extension.name for extension in backend.extensions()] == ["com.acme.dsp"]
    assert "Simple" not in files["Acme_Dsp_backend.c"].read_text()
    assert (HEADERS / "nnhal_types.h").read_bytes() == files["nnhal_types.h"].read_bytes()
    assert {"Makefile", "setup.py", "test_dsp.py", "pyproject.toml", "README.md", "test.yml"} <= set(files)


def test_skeleton_rejects_invalid_names_and_existing_files(tmp_path: Path) -> None:
    for vendor, name in (("Ac_me", "Npu"), ("Acme", ""), ("Acme", "9"), ("../x", "Npu")):
        with pytest.raises(skeleton.SkeletonError, match="must be letters and digits"):
            skeleton.write_skeleton(vendor, name, "python", tmp_path)
    skeleton.write_skeleton("Acme", "Npu", "python", tmp_path)
    with pytest.raises(skeleton.SkeletonError, match="exists already"):
        skeleton.write_skeleton("Acme", "Npu", "python", tmp_path)
