"""Constants in other files, which LiteRT's CompiledModel reads and its interpreter does not."""

from pathlib import Path

import numpy as np
import pytest

from nnhal import tflite
from tests.driver.one_operation import device, execute, prepare
from tests.nnhal.tflite.build import Op, Tensor, build, options, pack, schema, unpack

compiled_model = pytest.importorskip("ai_edge_litert.compiled_model")
RNG = np.random.default_rng(4)
WEIGHTS = RNG.standard_normal((8, 32)).astype(np.float32)


def file(folder: Path, name: str = "weights.bin") -> Path:
    """Return a fully connected layer whose weights are at byte 64 of another file."""
    layer = Op("FULLY_CONNECTED", [Tensor((3, 32)), Tensor((8, 32)), None], [Tensor((3, 8))], options("FullyConnected"))
    model = unpack(build(layer))
    graph = model.subgraphs[0]
    graph.inputs = [0]
    group, buffer = schema.ExternalBufferGroupT(), schema.ExternalBufferT()
    group.name, buffer.id, buffer.offset, buffer.length = name, 1, 64, WEIGHTS.nbytes
    model.externalBufferGroups, model.externalBuffers = [group], [buffer]
    graph.tensors[1].externalBuffer = 1
    (folder / "weights.bin").write_bytes(bytes(64) + WEIGHTS.tobytes())
    path = folder / "layer.tflite"
    path.write_bytes(pack(model))
    return path


def test_weights_in_another_file(tmp_path: Path) -> None:
    path, x = file(tmp_path), RNG.standard_normal((3, 32)).astype(np.float32)
    engine = compiled_model.CompiledModel.from_file(str(path))
    inputs, outputs = engine.create_input_buffers(0), engine.create_output_buffers(0)
    inputs[0].write(x.reshape(-1))
    engine.run_by_index(0, inputs, outputs)
    (actual,) = execute(prepare(tflite.load(path), device("CpuAcc")), [x])[1]
    np.testing.assert_allclose(actual.reshape(-1), outputs[0].read(24, np.float32), rtol=1e-5)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(tflite.TfliteError, match=r"expected a file in the folder of the model"):
        tflite.load(file(tmp_path, "../weights.bin"))
    with pytest.raises(tflite.TfliteError, match=r"has its value in 'none.bin', which cannot be read: .*No such file"):
        tflite.load(file(tmp_path, "none.bin"))
    with pytest.raises(tflite.TfliteError, match=r"load the model by its path"):
        tflite.parse(file(tmp_path).read_bytes())
