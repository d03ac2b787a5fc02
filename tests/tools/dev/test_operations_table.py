"""Tests of the generator of docs/operations.md."""

import json

import numpy as np
import pytest

from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import run, tensor
from tests.shared import shared
from tools.dev.operation_counts import Recorder, count_key, count_vectors
from tools.dev.operations_table import DOCUMENT, VECTORS, all_backends, family, generate, render


def test_document_is_fresh() -> None:
    assert DOCUMENT.read_text() == generate(), "stale: run `python -m tools.dev.operations_table --write`"


def test_vector_counts_are_fresh() -> None:
    assert json.loads(VECTORS.read_text()) == count_vectors(all_backends(), shared("vectors")), (
        "stale: run `python -m tools.dev.operations_table --write --count`"
    )


def test_every_operation_has_a_row() -> None:
    _, _, table = generate().partition("## Table")
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")][2:]
    assert rows == [[f"| {type_.value}", type_.name] for type_ in Op]


@pytest.mark.parametrize(
    ("type_", "path"),
    [(Op.ADD, "elementwise/arithmetic"), (Op.GATHER, "arrays/slice"), (Op.CONV_2D, "layers/convolution"), (Op.IF, "")],
)
def test_family(type_: Op, path: str) -> None:
    assert family(type_) == path


def test_cells() -> None:
    support = {"ADD": {"float32": ["A", "B"], "int32": ["B"]}, "IF": {"bool": ["driver"]}}
    vectors = {"A": {"ADD": {"float32": 12}}, "B": {"ADD": {"float32": 15}}}
    tests = {"A": {"ADD": {"float32": 3}}, "B": {"ADD": {"int32": 2}}, "driver": {"IF": {"bool": 5}}}
    assert render(support, vectors, tests).splitlines()[-4:] == [
        "|  | operation | family | float32 | int32 | bool |",
        "| --: | --- | --- | --- | --- | --- |",
        "| 0 | ADD | elementwise/arithmetic | A 12v 3t<br>B 15v 0t | B 0v 2t |  |",
        "| 96 | IF |  |  |  | driver 0v 5t |",
    ]


def test_operations_count_under_their_leading_operand() -> None:
    assert count_key(Op.ADD, [T.TENSOR_FLOAT16, T.TENSOR_FLOAT16, T.INT32]) == ("ADD", "float16")
    assert count_key(Op.EMBEDDING_LOOKUP, [T.TENSOR_INT32, T.TENSOR_FLOAT32]) == ("EMBEDDING_LOOKUP", "float32")
    assert count_key(Op.FILL, [T.TENSOR_INT32, T.FLOAT32]) == ("FILL", "float32")
    assert count_key(Op.LOGICAL_NOT, [T.TENSOR_BOOL8]) == ("LOGICAL_NOT", "bool")
    assert count_key(Op.WHILE, [T.SUBGRAPH, T.SUBGRAPH, T.TENSOR_FLOAT32]) == ("WHILE", "bool")


def test_recorder_counts_tests_not_runs() -> None:
    recorder = Recorder()
    with recorder.watching():
        for recorder.test, type_ in [("a", T.TENSOR_FLOAT32), ("a", T.TENSOR_FLOAT32), ("b", T.TENSOR_FLOAT32)]:
            run(Op.FLOOR, [(tensor(type_, (1,)), np.zeros(1))], [tensor(type_)])
        recorder.test = "b"
        run(Op.FLOOR, [(tensor(T.TENSOR_FLOAT16, (1,)), np.zeros(1))], [tensor(T.TENSOR_FLOAT16)])
    run(Op.EXP, [(tensor(T.TENSOR_FLOAT32, (1,)), np.zeros(1))], [tensor(T.TENSOR_FLOAT32)])
    assert recorder.counts() == {"CpuRef": {"FLOOR": {"float16": 1, "float32": 2}}}
