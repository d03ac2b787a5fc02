"""Tests of the generator of docs/operations.md."""

import json

import pytest

from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.shared import shared
from tools.dev.documents.operations import family, generate, rows
from tools.dev.vector_counts import VECTORS, all_backends, count_key, count_vectors


def test_vector_counts_are_fresh() -> None:
    assert json.loads(VECTORS.read_text()) == count_vectors(all_backends(), shared("vectors")), (
        "stale: run `python -m tools.dev.vector_counts`"
    )


def test_every_operation_has_a_row() -> None:
    (text,) = generate().values()
    lines = text.partition("## Table")[2].splitlines()
    rows_ = [line.split(" | ")[:2] for line in lines if line.startswith("| ")][2:]
    assert rows_ == [[f"| {type_.value}", type_.name] for type_ in Op]


@pytest.mark.parametrize(
    ("type_", "path"),
    [(Op.ADD, "elementwise/arithmetic"), (Op.GATHER, "arrays/slice"), (Op.CONV_2D, "layers/convolution"), (Op.IF, "")],
)
def test_family(type_: Op, path: str) -> None:
    assert family(type_) == path


def test_cells() -> None:
    support = {"ADD": {"float32": ["A", "B"], "int32": ["B"]}, "IF": {"bool": ["driver"]}}
    vectors = {"A": {"ADD": {"float32": 12}}, "B": {"ADD": {"float32": 15}}, "driver": {"IF": {"bool": 5}}}
    assert rows(support, vectors) == [
        "|  | operation | family | float32 | int32 | bool |",
        "| --: | --- | --- | --- | --- | --- |",
        "| 0 | ADD | elementwise/arithmetic | A 12<br>B 15 | B 0 |  |",
        "| 96 | IF |  |  |  | driver 5 |",
    ]


def test_operations_count_under_their_leading_operand() -> None:
    assert count_key(Op.ADD, [T.TENSOR_FLOAT16, T.TENSOR_FLOAT16, T.INT32]) == ("ADD", "float16")
    assert count_key(Op.EMBEDDING_LOOKUP, [T.TENSOR_INT32, T.TENSOR_FLOAT32]) == ("EMBEDDING_LOOKUP", "float32")
    assert count_key(Op.FILL, [T.TENSOR_INT32, T.FLOAT32]) == ("FILL", "float32")
    assert count_key(Op.LOGICAL_NOT, [T.TENSOR_BOOL8]) == ("LOGICAL_NOT", "bool")
    assert count_key(Op.WHILE, [T.SUBGRAPH, T.SUBGRAPH, T.TENSOR_FLOAT32]) == ("WHILE", "bool")
