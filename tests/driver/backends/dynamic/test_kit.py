"""What authors are given: the doctor and the skeletons."""

from pathlib import Path

import pytest

from driver.backends import doctor, skeleton
from driver.backends.discovery import file_candidate
from driver.backends.loading import load
from tests.driver.backends.dynamic import plugins
from tests.driver.backends.native.building import HEADERS, build, newer


def test_the_doctor_on_a_good_one(tmp_path: Path) -> None:
    lines, ready = doctor.diagnose(plugins.write(tmp_path, "A_B_backend.py"))
    assert ready
    assert "id           Doubler" in lines
    assert "hook         performance: absent, it counts as fast as the CPU" in lines
    assert lines[-1] == "verdict      ready"


def test_the_doctor_on_a_native_one(tmp_path: Path) -> None:
    lines, ready = doctor.diagnose(newer(tmp_path))
    assert ready
    assert "interface    made for 1.1, this host offers 1.1" in lines
    assert "capability   StridedInputs: no, inputs with gaps are copied before" in lines
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
def test_the_doctor_on_a_bad_one(name: str, changes: dict[str, str], fault: str, tmp_path: Path) -> None:
    lines, ready = doctor.diagnose(plugins.write(tmp_path, name, changes))
    assert not ready
    assert any(line.startswith("fault") and fault in line for line in lines)
    assert lines[-1] == "verdict      it would not be used"


def test_the_python_skeleton_loads(tmp_path: Path) -> None:
    made = skeleton.write("Acme", "Npu", "python", tmp_path / "new")
    assert [path.name for path in made] == ["Acme_Npu_backend.py", "test_npu.py"]
    assert load(file_candidate(made[0])).backend.id == "Npu"
    for path in made:
        assert "@" not in path.read_text().replace("@pytest", "")
        compile(path.read_text(), path, "exec")


def test_the_c_skeleton_builds_and_loads(tmp_path: Path) -> None:
    made = {path.name: path for path in skeleton.write("Acme", "Dsp", "c", tmp_path)}
    assert (HEADERS / "nnhal_backend.h").read_bytes() == made["nnhal_backend.h"].read_bytes()
    library = build(made["Acme_Dsp_backend.c"], tmp_path / "Acme_Dsp_backend.so", tmp_path)
    backend = load(file_candidate(library)).backend
    assert backend.id == "Dsp"
    assert [extension.name for extension in backend.extensions()] == ["com.acme.dsp"]
    assert "Simple" not in made["Acme_Dsp_backend.c"].read_text()


def test_names_and_files_that_are_there(tmp_path: Path) -> None:
    for vendor, name in (("Ac_me", "Npu"), ("Acme", ""), ("Acme", "9"), ("../x", "Npu")):
        with pytest.raises(skeleton.SkeletonError, match="must be letters and digits"):
            skeleton.write(vendor, name, "python", tmp_path)
    skeleton.write("Acme", "Npu", "python", tmp_path)
    with pytest.raises(skeleton.SkeletonError, match="is there already"):
        skeleton.write("Acme", "Npu", "python", tmp_path)
