"""GpuAcc alone: test vectors of float32 and float16, and public models that it shares with CpuAcc."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal.tflite
from nnhal.recording.tensor_difference import first_difference
from nnhal.types import AnyArray, Model
from nnhal.types import OperandType as T
from nnhal_driver.graph import build_graphs
from nnhal_tools.conformance.vectors.case import Case, read_cases
from tests.driver.backends.gpu.software_gpu import gpu, gpu_device, require_software_gpu
from tests.driver.backends.litert.support.comparison import device
from tests.driver.one_operation import execute, prepare
from tests.driver.validation.vector_models import model_of
from tests.shared import shared

pytestmark = pytest.mark.nightly

GUIDE = Path(__file__).parents[4] / "docs" / "gpu.md"
MODELS = ("vww_96_float", "ad01_fp32", "kws_ref_model_float32", "pretrainedResnet", "selfie_segmentation")


@pytest.fixture(autouse=True)
def _software_gpu() -> None:
    require_software_gpu()


def float_vectors() -> Iterator[tuple[str, Case, Model]]:
    """Yield the vectors of float operands that must succeed, with the type under which they are counted."""
    for case in read_cases(shared("vectors")):
        if case.expect_failure:
            continue
        model = model_of(case.data)
        types = {operand.type for subgraph in model.subgraphs for operand in subgraph.operands}
        if T.TENSOR_FLOAT16 in types:
            yield "float16", case, model
        elif T.TENSOR_FLOAT32 in types and not any("QUANT" in T(type_).name for type_ in types):
            yield "float32", case, model


def test_vectors_pass_or_are_not_claimed() -> None:
    claimed, total, wrong = Counter[str](), Counter[str](), list[str]()
    for kind, case, model in float_vectors():
        total[kind] += 1
        if not all(gpu().supports(view) for graph in build_graphs(model) for view in graph.operations):
            continue
        claimed[kind] += 1
        outcome = prepare(model, gpu_device())
        if outcome.prepared_model is None:
            wrong.append(f"{case.name}: {outcome.reason}")
            continue
        for expected, array in zip(case.outputs, execute(outcome, case.inputs)[1], strict=True):
            tolerance = (expected.atol, expected.rtol)
            actual = array.reshape(expected.array.shape)
            if not expected.ignored and (
                difference := first_difference(expected.type, actual, expected.array, tolerance)
            ):
                wrong.append(f"{case.name}: {difference}")
    assert not wrong
    counts = [f"| {kind} | {claimed[kind]} of {total[kind]} |" for kind in ("float32", "float16")]
    assert re.findall(r"^\| float\d\d \| .* \|$", GUIDE.read_text(), re.MULTILINE) == counts


@pytest.mark.parametrize("name", MODELS)
def test_public_models_agree_on_gpu_and_cpu(name: str) -> None:
    model = nnhal.tflite.load(shared("models") / f"{name}.tflite")
    random = np.random.default_rng(0)
    shapes = [model.main.operands[i].dimensions for i in model.main.input_indexes]
    inputs: list[AnyArray] = [random.random(shape).astype(np.float32) for shape in shapes]
    split, plain = prepare(model, gpu_device("CpuAcc", "CpuRef")), prepare(model, device("CpuAcc", "CpuRef"))
    assert split.prepared_model is not None
    assert "GpuAcc" in {operation.backend for operation in split.prepared_model.placement.operations}
    for actual, expected in zip(execute(split, inputs)[1], execute(plain, inputs)[1], strict=True):
        scale = float(np.abs(expected).max(initial=1e-6))
        np.testing.assert_allclose(actual, expected, atol=2e-4 * scale, rtol=2e-4)
