"""Programs in C with TensorFlow Lite 2.9: the delegate, and TensorFlow Lite's own NNAPI delegate with the C library."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from nnhal.types import AnyArray
from nnhal_ndk.build import build
from tests.end_to_end.support.service_process import Service
from tests.nnhal_delegate.c_library import HostError, run_host
from tests.nnhal_delegate.python_host import Host
from tests.nnhal_delegate.random_graphs import random_graph
from tests.shared import SHARED

pytestmark = pytest.mark.nightly

MODELS = sorted((SHARED / "models").glob("*.tflite"))
NEWER = {"group_norm": "Op builtin_code out of range: 206"}
"""Models that TensorFlow Lite 2.9 cannot read, and its message."""
NOT_FOR_NNAPI = {
    **NEWER,
    "int16_conv": "type INT64 is not supported",
    "micro_wakeword_alexa": "TfLiteInterpreterCreate failed",
    "selfie_segmentation": "unresolved custom op: Convolution2DTransposeBias",
}
"""Models that the NNAPI delegate refuses, and the message."""
FORGETFUL = ("trained_lstm",)
"""Models whose state the NNAPI delegate does not keep between executions."""
INEXACT = {"mobilenet_edgetpu_224_1.0_uint8": 10, "ssd_mobilenet_v1": 1}
"""Largest difference to LiteRT of today, in steps of integers or absolute.

The detector's last operator is TensorFlow Lite's own of 2022, which orders boxes differently.
"""


@pytest.fixture(scope="session")
def neural_networks_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of `libneuralnetworks.so`."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("the library is built on Linux with a C compiler")
    return build(tmp_path_factory.mktemp("ndk"))


def _require_close(actual: list[AnyArray], expected: list[AnyArray], difference: float) -> None:
    for a, b in zip(actual, expected, strict=True):
        if b.dtype.kind == "f":
            largest = float(np.abs(b).max(initial=1e-6))
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=max(difference, 1e-3 * largest))
        else:
            np.testing.assert_allclose(a.astype(np.int64), b.astype(np.int64), rtol=0, atol=difference)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_run_with_the_delegate(
    path: Path, tmp_path: Path, delegate_path: Path, delegate_service: Service
) -> None:
    expected = Host(path)
    inputs = expected.samples()
    outputs = [expected.run(inputs) for _ in range(2)][1]
    if path.stem in NEWER:
        with pytest.raises(HostError, match=NEWER[path.stem]):
            run_host(tmp_path, path, str(delegate_path), inputs, outputs, NNHAL_TARGET=delegate_service.target)
        return
    actual = run_host(tmp_path, path, str(delegate_path), inputs, outputs, NNHAL_TARGET=delegate_service.target)
    _require_close(actual, outputs, INEXACT.get(path.stem, 0))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_run_with_the_nnapi_delegate(
    path: Path, tmp_path: Path, neural_networks_path: Path, delegate_service: Service
) -> None:
    expected = Host(path)
    inputs = expected.samples()
    outputs = [expected.run(inputs) for _ in range(2)][0 if path.stem in FORGETFUL else 1]
    variables = {"NNHAL_TARGET": delegate_service.target, "LD_LIBRARY_PATH": str(neural_networks_path.parent)}
    if path.stem in NOT_FOR_NNAPI:
        with pytest.raises(HostError, match=NOT_FOR_NNAPI[path.stem]):
            run_host(tmp_path, path, "nnapi", inputs, outputs, **variables)
        return
    _require_close(run_host(tmp_path, path, "nnapi", inputs, outputs, **variables), outputs, INEXACT.get(path.stem, 0))


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_run_with_the_delegate(
    seed: int, tmp_path: Path, delegate_path: Path, delegate_service: Service
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(random_graph(seed))
    expected = Host(path)
    inputs = expected.samples(seed)
    outputs = expected.run(inputs)
    actual = run_host(tmp_path, path, str(delegate_path), inputs, outputs, NNHAL_TARGET=delegate_service.target)
    for a, b in zip(actual, outputs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_service_that_is_gone_is_an_error(tmp_path: Path, delegate_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(random_graph(0))
    host = Host(path)
    target = f"unix:{tmp_path}/none.sock"
    with pytest.raises(HostError, match="reported: DEVICE_UNAVAILABLE: no response from"):
        run_host(tmp_path, path, str(delegate_path), host.samples(), [], NNHAL_TARGET=target)
