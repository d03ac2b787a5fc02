"""V-POOL, V-EXT, V-MODEL, V-SUBGRAPH and V-OPERATION: one invalid model per case."""

from dataclasses import replace

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import (
    ErrorStatus,
    ExtensionNameAndPrefix,
    Memory,
    Model,
    OperandType,
    Operation,
    OperationType,
    Subgraph,
    SymmPerChannelQuantParams,
)
from nnhal_driver.validation.model import validate_model
from tests.driver.validation.models import (
    ADDITION,
    BOOL,
    BRANCH,
    EXTENSION,
    INPUT,
    LOOP,
    OUTPUT,
    TEMPORARY,
    ModelCase,
    adding,
    edited,
    passing,
    reference,
    spare,
    tensor,
    with_operand,
    with_operation,
    with_subgraph,
)

_BYTES = np.zeros(16, np.uint8)
_FLAG = replace(BOOL, lifetime=OUTPUT)


def _pool(*pools: Memory) -> Model:
    return replace(ADDITION, pools=pools)


def _extensions(*names: tuple[str, int]) -> Model:
    return replace(ADDITION, extension_name_to_prefix=tuple(ExtensionNameAndPrefix(*name) for name in names))


def _referring(*numbers: int) -> Subgraph:
    return passing(tensor(INPUT), tensor(OUTPUT), *(reference(number) for number in numbers))


def _called(*subgraphs: Subgraph) -> Model:
    return replace(ADDITION, referenced=subgraphs)


POOL_CASES = [
    ModelCase("V-POOL-01", _pool(Memory(_BYTES, 0, 0)), "model pool 0 has size 0, must be > 0"),
    ModelCase("V-POOL-01", _pool(*ADDITION.pools, Memory(_BYTES, 0, -1)), "model pool 1 has size -1"),  # type: ignore[arg-type]
    ModelCase("V-POOL-01", _pool(Memory(np.empty(0, np.uint8))), "has size 0"),
    ModelCase("V-POOL-02", _pool(Memory(_BYTES, -1)), "has offset -1"),
    ModelCase("V-POOL-02", _pool(Memory(_BYTES, 1, 16)), "ends at byte 17 of a memory of 16 bytes"),
    ModelCase("V-POOL-02", _pool(Memory(_BYTES, prot=8)), "has prot 8"),
    ModelCase("V-MODEL-01", _pool(Memory(_BYTES, prot=-1)), "model pool 0 has prot -1", "V-POOL-02"),
]

EXTENSION_CASES = [
    ModelCase("V-EXT-01", _extensions(("com.Example.x", 1)), "has name 'com.Example.x', must consist of"),
    ModelCase("V-EXT-01", _extensions(("com.ex-ample", 1)), "'com.ex-ample'"),
    ModelCase("V-EXT-01", _extensions(("com.example\n", 1)), "must consist of"),
    ModelCase("V-EXT-02", _extensions(("example", 1)), "'example', must contain a period"),
    ModelCase("V-EXT-02", _extensions(("", 1)), "'', must contain a period"),
    ModelCase("V-EXT-04", _extensions(("a.b", 1), ("a.c", 2), ("a.b", 3)), "has name 'a.b' twice"),
    ModelCase("V-EXT-05", _extensions(("a.b", 1), ("a.c", 1)), "has prefix 1 twice"),
    ModelCase("V-EXT-06", _extensions(("a.b", 32768)), "has prefix 32768 for 'a.b', must be 0 to 32767"),
    ModelCase("V-EXT-06", _extensions(("a.b", 0x10000)), "has prefix 65536"),
    ModelCase("V-EXT-06", _extensions(("a.b", -1)), "has prefix -1"),
    ModelCase("V-MODEL-02", _extensions(("ab", 1)), "extension table of the model has name 'ab'", "V-EXT-02"),
]

REFERENCE_CASES = [
    ModelCase("V-MODEL-03", _called(_referring(0)), "referenced subgraph 0 refers to 0, which leads back"),
    ModelCase("V-MODEL-03", _called(_referring(1), _referring(2), _referring(0)), "2 refers to 0, which leads back"),
    ModelCase("V-MODEL-03", _called(_referring(), _referring(0, 2), _referring(0, 1)), "2 refers to 1"),
    ModelCase("V-MODEL-03", _called(_referring(1)), "referenced subgraph 0 refers to subgraph 1 of 1"),
    ModelCase(
        "V-MODEL-04",
        _called(_referring(), passing(tensor(INPUT), tensor(OUTPUT, scale=0.5))),
        "operand 1 of referenced subgraph 1 (TENSOR_FLOAT32) has scale 0.5, must be 0",
        "V-OPERAND-07",
    ),
]

_EMPTY = Subgraph((), (), (), ())
_AGAIN = Operation(OperationType.ADD, (0, 1, 2), (3,))

SUBGRAPH_CASES = [
    ModelCase("V-SUBGRAPH-01", edited(ADDITION, operands=()), "main has no operands"),
    ModelCase("V-SUBGRAPH-01", with_subgraph(BRANCH, 2, _EMPTY), "referenced subgraph 1 has no operands"),
    ModelCase("V-SUBGRAPH-02", edited(ADDITION, operations=()), "main has no operations"),
    ModelCase("V-SUBGRAPH-04", edited(ADDITION, input_indexes=(6,)), "input list of main names operand 6 of 6"),
    ModelCase("V-SUBGRAPH-04", edited(BRANCH, 1, output_indexes=(2,)), "output list of referenced subgraph 0"),
    ModelCase("V-SUBGRAPH-05", edited(ADDITION, input_indexes=(0, 3)), "operand 3 of lifetime TEMPORARY_VARIABLE"),
    ModelCase("V-SUBGRAPH-05", edited(ADDITION, output_indexes=(0,)), "names operand 0 of lifetime SUBGRAPH_INPUT"),
    ModelCase("V-SUBGRAPH-06", edited(ADDITION, input_indexes=(0, 0)), "input list of main names operand 0 twice"),
    ModelCase("V-SUBGRAPH-06", edited(ADDITION, output_indexes=(5, 5)), "output list of main names operand 5 twice"),
    ModelCase("V-SUBGRAPH-07", edited(ADDITION, input_indexes=()), "leaves out operand 0 of lifetime SUBGRAPH_INPUT"),
    ModelCase("V-SUBGRAPH-07", edited(ADDITION, output_indexes=()), "leaves out operand 5"),
    ModelCase(
        "V-SUBGRAPH-08",
        edited(ADDITION, operations=ADDITION.main.operations[::-1]),
        "operation 0 of main (ADD) reads operand 3, which no earlier operation has written",
    ),
    ModelCase("V-SUBGRAPH-08", with_operation(ADDITION, 0, inputs=(3, 1, 2)), "reads operand 3"),
    ModelCase("V-SUBGRAPH-08", with_operation(ADDITION, 0, inputs=(5, 1, 2)), "reads operand 5"),
    ModelCase(
        "V-SUBGRAPH-09",
        edited(ADDITION, operations=(*ADDITION.main.operations, _AGAIN)),
        "operation 2 of main (ADD) writes operand 3, which has been written already",
    ),
    ModelCase("V-SUBGRAPH-09", with_operation(BRANCH, 0, 1, outputs=(1, 1)), "writes operand 1, which has been"),
    ModelCase(
        "V-SUBGRAPH-10", with_operation(ADDITION, 0, outputs=(0,)), "writes operand 0 of lifetime SUBGRAPH_INPUT"
    ),
    ModelCase("V-SUBGRAPH-10", with_operation(ADDITION, 0, outputs=(1,)), "writes operand 1 of lifetime CONSTANT_COPY"),
    ModelCase(
        "V-SUBGRAPH-10",
        with_operation(spare(OperandType.TENSOR_FLOAT32), 0, outputs=(6,)),
        "writes operand 6 of lifetime NO_VALUE",
    ),
    ModelCase("V-SUBGRAPH-11", adding(ADDITION, tensor(TEMPORARY)), "main has operand 6, which no operation writes"),
    ModelCase("V-SUBGRAPH-11", with_operation(BRANCH, 0, 2, outputs=()), "referenced subgraph 1 has operand 1, which"),
]

OPERATION_CASES = [
    ModelCase("V-OPERATION-01", with_operation(ADDITION, 1, type=106), "operation 1 of main (operation type 106) has"),
    ModelCase("V-OPERATION-01", with_operation(ADDITION, 1, type=0xFFFF), "must be 0 to 105 or above 65535"),
    ModelCase("V-OPERATION-02", with_operation(ADDITION, 1, inputs=(3, 6, 2)), "(ADD) has input index 6 of 6"),
    ModelCase("V-OPERATION-02", with_operation(ADDITION, 1, outputs=(7,)), "(ADD) has output index 7 of 6"),
    ModelCase("V-OPERATION-02", with_operation(BRANCH, 0, 1, inputs=(2,)), "has input index 2 of 2"),
    ModelCase("V-OPERATION-04", with_operation(ADDITION, 1, inputs=(3, 4)), "operation 1 of main (ADD) has 2 inputs"),
    ModelCase("V-OPERATION-04", with_operation(ADDITION, 1, inputs=(3, 2, 2)), "(ADD) input 1 (input1) is INT32"),
    ModelCase("V-OPERATION-06", with_operation(BRANCH, 0, inputs=(0, 1)), "has 2 inputs and 1 outputs, must have"),
    ModelCase("V-OPERATION-06", with_operation(BRANCH, 0, outputs=()), "has 4 inputs and 0 outputs"),
    ModelCase("V-OPERATION-06", with_operation(BRANCH, 0, inputs=(3, 1, 2, 3)), "has TENSOR_FLOAT32 with dimensions"),
    ModelCase("V-OPERATION-06", with_operand(BRANCH, 0, dimensions=(2,)), "dimensions (2,) as input 0"),
    ModelCase("V-OPERATION-06", with_operand(BRANCH, 0, dimensions=()), "dimensions () as input 0"),
    ModelCase("V-OPERATION-06", with_operation(BRANCH, 0, inputs=(0, 1, 3, 3)), "has TENSOR_FLOAT32 as input 2, must"),
    ModelCase(
        "V-OPERATION-07",
        with_subgraph(BRANCH, 2, passing(tensor(INPUT), tensor(INPUT), tensor(OUTPUT))),
        "(IF) has 1 values, but its else branch (referenced subgraph 1) takes 2",
    ),
    ModelCase(
        "V-OPERATION-07",
        with_subgraph(BRANCH, 1, passing(tensor(INPUT), tensor(OUTPUT), tensor(OUTPUT))),
        "(IF) needs 1 outputs, but its then branch (referenced subgraph 0) gives 2",
    ),
    ModelCase("V-OPERATION-09", with_operation(LOOP, 0, inputs=(0, 1)), "operation 0 of main (WHILE) has 2 inputs"),
    ModelCase("V-OPERATION-09", with_operation(LOOP, 0, outputs=()), "has 5 inputs and 0 outputs"),
    ModelCase("V-OPERATION-09", with_operation(LOOP, 0, inputs=(2, 1, 2, 3, 4)), "has TENSOR_FLOAT32 as input 0"),
    ModelCase("V-OPERATION-09", with_operation(LOOP, 0, inputs=(0, 2, 2, 3, 4)), "has TENSOR_FLOAT32 as input 1"),
    ModelCase(
        "V-OPERATION-10",
        with_subgraph(LOOP, 1, passing(tensor(INPUT), _FLAG)),
        "has 3 values, but its condition (referenced subgraph 0) takes 1",
    ),
    ModelCase(
        "V-OPERATION-10",
        with_subgraph(LOOP, 1, passing(tensor(INPUT), tensor(INPUT), tensor(INPUT), _FLAG, _FLAG)),
        "needs 1 outputs, but its condition (referenced subgraph 0) gives 2",
    ),
    ModelCase("V-OPERATION-10", with_operand(LOOP, 3, 1, dimensions=(2,)), "has TENSOR_BOOL8 with dimensions (2,)"),
    ModelCase("V-OPERATION-10", with_operand(LOOP, 3, 1, type=OperandType.TENSOR_INT32), "has TENSOR_INT32 with"),
    ModelCase(
        "V-OPERATION-11",
        with_subgraph(LOOP, 2, passing(tensor(INPUT), tensor(INPUT), tensor(OUTPUT))),
        "has 3 values, but its body (referenced subgraph 1) takes 2",
    ),
    ModelCase(
        "V-OPERATION-11",
        with_subgraph(LOOP, 2, passing(*[tensor(INPUT)] * 3, *[tensor(OUTPUT)] * 4)),
        "gives 4, must be between",
    ),
    ModelCase(
        "V-OPERATION-11", with_subgraph(LOOP, 2, passing(*[tensor(INPUT)] * 3)), "gives 0, must be between the two"
    ),
]

_QUANT = {"type": OperandType.TENSOR_QUANT8_ASYMM, "scale": 0.5}
_PER_CHANNEL = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL


def _quantized(**fields: float) -> Model:
    """Return an IF with quantized operands, whose second branch has other parameters."""
    model = BRANCH
    for number, index in ((0, 3), (1, 0), (2, 0)):
        model = with_operand(model, index, number, **_QUANT)
    return with_operand(model, 0, 2, **fields)


def _per_channel(*scales: float) -> Model:
    model = BRANCH
    for number, index in ((0, 3), (1, 0), (2, 0)):
        params = SymmPerChannelQuantParams(scales if number == 2 else (1.0, 2.0))
        model = with_operand(model, index, number, type=_PER_CHANNEL, extra_params=params)
    return model


MATCH_CASES = [
    ModelCase(
        "V-OPERATION-13",
        with_operand(BRANCH, 0, 1, type=OperandType.TENSOR_FLOAT16),
        "(IF) has input 3 unlike input 0 of its then branch (referenced subgraph 0): type TENSOR_FLOAT32, not "
        "TENSOR_FLOAT16",
    ),
    ModelCase("V-OPERATION-13", _quantized(scale=0.25), "its else branch (referenced subgraph 1): scale 0.5, not 0.25"),
    ModelCase("V-OPERATION-13", _quantized(zero_point=1), "zero point 0, not 1"),
    ModelCase("V-OPERATION-13", _per_channel(1.0, 3.0), "extra params"),
    ModelCase("V-OPERATION-13", with_operand(BRANCH, 0, 1, dimensions=(2, 3, 1)), "rank 2, not 3"),
    ModelCase("V-OPERATION-13", with_operand(BRANCH, 0, 1, dimensions=(0, 4)), "dimension 1 is 3, not 4"),
    ModelCase("V-OPERATION-13", with_operand(BRANCH, 1, 2, dimensions=(1, 3)), "has output 0 unlike output 0 of its"),
    ModelCase("V-OPERATION-13", with_operand(LOOP, 2, 1, dimensions=(1, 3)), "has input 4 unlike input 2 of its cond"),
    ModelCase("V-OPERATION-13", with_operand(LOOP, 2, 2, dimensions=(1, 3)), "has input 4 unlike input 2 of its body"),
    ModelCase(
        "V-OPERATION-13", with_operand(LOOP, 5, 0, dimensions=(1, 3)), "has output 0 unlike output 0 of its body"
    ),
    ModelCase(
        "V-OPERATION-13", with_operand(LOOP, 4, 2, dimensions=(1, 3)), "has output 1 of its body (referenced sub"
    ),
]

CASES = [
    *POOL_CASES,
    *EXTENSION_CASES,
    *REFERENCE_CASES,
    *SUBGRAPH_CASES,
    *OPERATION_CASES,
    *MATCH_CASES,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_broken_rule_is_named(case: ModelCase) -> None:
    with pytest.raises(HalError) as caught:
        validate_model(case.model)
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, case.raised or case.rule)
    assert case.reason in caught.value.reason


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (replace(_extensions(("ab", 1)), pools=(Memory(_BYTES, prot=8),)), "V-POOL-02"),
        (replace(_extensions(("ab", 1)), referenced=(_referring(0),)), "V-EXT-02"),
        (replace(edited(ADDITION, operations=()), referenced=(_EMPTY, _referring(1))), "V-MODEL-03"),
        (replace(edited(ADDITION, operations=()), referenced=(_EMPTY,)), "V-SUBGRAPH-01"),
        (with_operation(with_operand(ADDITION, 5, scale=1.0), 0, type=106), "V-OPERAND-07"),
        (with_operation(edited(ADDITION, input_indexes=()), 0, type=106), "V-OPERATION-01"),
        (edited(ADDITION, input_indexes=(0, 0), output_indexes=(5, 5)), "V-SUBGRAPH-06"),
        (edited(ADDITION, operations=ADDITION.main.operations[:1], output_indexes=()), "V-SUBGRAPH-07"),
    ],
)
def test_first_broken_rule_is_named(broken: Model, rule: str) -> None:
    with pytest.raises(HalError) as caught:
        validate_model(broken)
    assert caught.value.rule == rule


def test_callee_is_checked_before_its_caller() -> None:
    """The rules for the caller read the callee's index lists, which must be valid."""
    caller = BRANCH.main
    broken = replace(BRANCH.referenced[0], input_indexes=(99,))
    operands = (caller.operands[0], reference(1), reference(1), *caller.operands[3:])
    with pytest.raises(HalError) as caught:
        validate_model(_called(replace(caller, operands=operands), broken))
    assert caught.value.rule == "V-SUBGRAPH-04"


@pytest.mark.parametrize("count", [20_000])
def test_deeply_nested_references_need_no_recursion(count: int) -> None:
    chain = tuple(
        Subgraph((reference(i + 1), tensor(OUTPUT)), (Operation(EXTENSION, (0,), (1,)),), (), (1,))
        for i in range(count)
    )
    validate_model(_called(*chain, _referring()))
    with pytest.raises(HalError, match="leads back"):
        validate_model(_called(*chain, _referring(0)))
