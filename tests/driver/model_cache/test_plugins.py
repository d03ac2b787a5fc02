"""Cached models of plug-ins: an edited plug-in never gets what it saved before the edit."""

from pathlib import Path

import numpy as np
import pytest

from nnhal.types import CacheState
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load as load_backend
from nnhal_driver.device import Device
from tests.driver.model_cache.cache_files import Pair
from tests.driver.model_cache.conftest import Devices
from tests.driver.model_cache.preparation import load, miss_reason, save
from tests.driver.one_operation import execute, float_tensor, model_of, tensor

PLUGIN = """
import numpy as np
from acme_table import FACTOR
from nnhal_backend.v1 import API_VERSION, Backend, CompiledSubgraph, Sections, Support


class Table(Backend):
    id = "Table"
    version = "1"

    def supports(self, operation):
        return Support()

    def compile(self, subgraph, options):
        return Compiled(np.float32(FACTOR))

    def load(self, subgraph, sections, options):
        return Compiled(sections.data[0])


class Compiled(CompiledSubgraph):
    def __init__(self, factor):
        self.factor = factor

    def execute(self, inputs, outputs, run):
        outputs[0].write(inputs[0] * self.factor)

    def save(self):
        return Sections(b"", (np.array(self.factor, np.float32),))


def GetBackendId():
    return "Table"


def GetVersion():
    return API_VERSION


def BackendFactory():
    return Table()
"""
MODEL = model_of(Op.RELU, [float_tensor([1.0])], [tensor(T.TENSOR_FLOAT32, (1,))], constants=False)


@pytest.mark.parametrize("edited", ["A_Table_backend.py", "acme_table.py"])
def test_edited_plugin_compiles_again(edited: str, tmp_path: Path, pair: Pair, devices: Devices) -> None:
    plugin, table = tmp_path / "A_Table_backend.py", tmp_path / "acme_table.py"
    plugin.write_text(PLUGIN)
    table.write_text("FACTOR = 2")

    def start() -> Device:
        return devices.create(load_backend(file_candidate(plugin)).backend)

    first = start()
    save(first, MODEL, pair.files())
    restarted = start()
    outcome = load(restarted, pair.files())
    assert outcome.cache.state == CacheState.HIT
    assert execute(outcome, [np.array([3], np.float32)])[1][0].tolist() == [6]
    if edited == table.name:
        table.write_text("FACTOR = 5")
    else:
        plugin.write_text(PLUGIN.replace("np.float32(FACTOR)", "np.float32(FACTOR + 3)"))
    changed = start()
    assert "backend Table was 1+" in miss_reason(changed, pair.files())
    assert first.get_version_string() == restarted.get_version_string() != changed.get_version_string()
    assert execute(save(changed, MODEL, None), [np.array([3], np.float32)])[1][0].tolist() == [15]
