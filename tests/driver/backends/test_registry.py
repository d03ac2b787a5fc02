"""Registry of built-in backends: folders that are found, and ids that are unique."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal_driver.backends
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from tests.driver.one_operation import execute, model_of, prepare, tensor

PACKAGE = "extra_backend"

SOURCE = """
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.backends.registry import register

@register
class Extra(CpuRef):
    id = "Extra"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder whose packages are those below nnhal_driver.backends."""
    registry.registered_ids()
    monkeypatch.setattr(registry, "_BUILT_IN", dict(registry._BUILT_IN))
    monkeypatch.setattr(nnhal_driver.backends, "__path__", [*nnhal_driver.backends.__path__, str(tmp_path)])
    yield tmp_path
    sys.modules.pop(f"nnhal_driver.backends.{PACKAGE}", None)


def test_folder_below_the_backends_is_registered(folder: Path) -> None:
    assert "Extra" not in registry.registered_ids()
    (folder / PACKAGE).mkdir()
    (folder / PACKAGE / "__init__.py").write_text(SOURCE)
    assert {"Extra", "CpuRef"} <= set(registry.registered_ids())
    device = Device("test", registry.create(["Extra", "CpuRef"]))
    try:
        operand = tensor(T.TENSOR_FLOAT32, (2,))
        outcome = prepare(model_of(Op.RELU, [(operand, 0)], [operand], constants=False), device)
        assert [partition.backend for partition in outcome.placement.partitions] == ["Extra"]
        assert execute(outcome, [np.array([-1, 2], np.float32)])[1][0].tolist() == [0, 2]
    finally:
        device.close()


def test_id_is_registered_once(folder: Path) -> None:
    class Same(CpuRef):
        pass

    with pytest.raises(ValueError, match="'CpuRef' is already registered"):
        registry.register(Same)
    with pytest.raises(ValueError, match="there is no backend 'Other'"):
        registry.create(["Other"])
