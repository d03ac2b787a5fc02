"""Comparison of models on CpuAcc with the same models on CpuRef."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np

from nnhal.errors import HalError
from nnhal.types import AnyArray, Model
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from tests.driver.backends.litert.support.random_graphs import Sample
from tests.driver.one_operation import execute, prepare


@cache
def device(*backends: str) -> Device:
    """Return the device with some backends that tests share."""
    return Device("test", registry.create(backends))


def run(model: Model, arrays: Sequence[AnyArray], *backends: str) -> tuple[set[str], list[AnyArray]]:
    """Execute a model. Return the backends that run its operations, and its outputs."""
    outcome = prepare(model, device(*backends))
    assert outcome.prepared_model is not None, outcome.reason
    return {operation.backend for operation in outcome.prepared_model.placement.operations}, execute(outcome, arrays)[1]


def assert_close(actual: AnyArray, expected: AnyArray, steps: int) -> None:
    """Compare two outputs.

    Floats may differ by roundings, 8-bit integers by `steps`. Other values must be equal. CpuRef sums half-precision
    floats in half precision, so their tolerance is larger.
    """
    assert actual.shape == expected.shape
    if expected.dtype.kind == "f":
        loose = expected.dtype == np.float16
        np.testing.assert_allclose(actual, expected, rtol=5e-3 if loose else 2e-5, atol=1e-2 if loose else 2e-5)
    elif expected.dtype.itemsize == 1 and expected.dtype.kind in "iu":
        assert np.abs(actual.astype(int) - expected).max(initial=0) <= steps
    else:
        np.testing.assert_array_equal(actual, expected)


def assert_same_results(sample: Sample) -> Counter[Op]:
    """Compare the results of both backends, and return the operations that CpuAcc ran."""
    expected = _run_or_fail(sample, "CpuRef")[1]
    prepared, actual = _run_or_fail(sample, "CpuAcc", "CpuRef")
    refusals = [refusal.reason for operation in prepared.placement.operations for refusal in operation.refusals]
    assert not any("failed to compile" in reason for reason in refusals), refusals
    if isinstance(expected, HalError) or isinstance(actual, HalError):
        assert not sample.expected, f"CpuRef: {expected}; CpuAcc: {actual}"
        assert (type(actual), str(actual)) == (type(expected), str(expected))
    else:
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), f"output {i}"
            if sample.expected:
                np.testing.assert_array_equal(
                    b, sample.expected[i], err_msg=f"output {i}: CpuRef differs from its kernels run one by one"
                )
                _assert_within_error(i, a, b, sample.errors[i])
    return Counter(Op(operation.type) for operation in prepared.placement.operations if operation.backend == "CpuAcc")


def _run_or_fail(sample: Sample, *backends: str) -> tuple[PreparedModel, list[AnyArray] | HalError]:
    """Execute a sample. Return its prepared model, and its outputs or the error of the execution."""
    outcome = prepare(sample.model, device(*backends))
    assert outcome.prepared_model is not None, outcome.reason
    try:
        return outcome.prepared_model, execute(outcome, sample.inputs)[1]
    except HalError as error:
        return outcome.prepared_model, error


def _assert_within_error(output: int, actual: AnyArray, expected: AnyArray, error: AnyArray) -> None:
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    over = ~(difference <= error)
    if over.any():
        allowed = np.broadcast_to(error, over.shape)[over][:4]
        raise AssertionError(
            f"output {output} has {actual[over][:4]}; expected {expected[over][:4]}. "
            f"They differ by {difference[over][:4]}; the limit is {allowed}"
        )
