"""The public names of the package: complete, lazy, and nothing else."""

import subprocess
import sys

import pytest

import nnhal
from nnhal_tools.demo.digits import MODEL

ENUMS = {"CacheState", "ErrorStatus", "ExecutionPreference", "FenceState", "OperandType", "OperationType", "Priority"}


def run_python(code: str) -> str:
    """Run code in a new interpreter, and return its output."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_dir_lists_the_public_names() -> None:
    assert dir(nnhal) == sorted(nnhal.__all__)
    assert {*ENUMS, "Device", "HalError", "ModelBuilder", "__version__", "aio", "connect", "tflite"} <= set(dir(nnhal))
    assert not {"client", "wire", "lru", "v1"} & set(dir(nnhal))
    for module in (nnhal.aio, nnhal.tflite):
        assert dir(module) == sorted(module.__all__)


def test_all_public_names_exist() -> None:
    for name in nnhal.__all__:
        assert getattr(nnhal, name) is not None
    with pytest.raises(AttributeError, match="module 'nnhal' has no attribute 'conect'"):
        _ = nnhal.conect


def test_import_is_lazy() -> None:
    uses = "dir(nnhal), nnhal.tflite, nnhal.Priority.HIGH, nnhal.__version__"
    code = f"import sys, nnhal; {uses}; print('grpc' in sys.modules)"
    assert run_python(code) == "False\n"


def test_submodules_need_no_import() -> None:
    code = "import nnhal; print(nnhal.aio.connect.__name__, nnhal.tflite.load.__name__, nnhal.OperandType.FLOAT32.name)"
    assert run_python(code) == "connect load FLOAT32\n"


def test_import_of_models_needs_no_extra() -> None:
    code = (
        "import sys; sys.modules['tflite'] = sys.modules['flatbuffers'] = None\n"
        "import nnhal\n"
        f"print(len(nnhal.tflite.load({str(MODEL)!r}).main.operations) > 0)"
    )
    assert run_python(code) == "True\n"
