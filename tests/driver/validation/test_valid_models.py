"""Valid models that look unusual."""

from dataclasses import replace

import numpy as np
import pytest

from nnhal.types import (
    DataLocation,
    ExtensionNameAndPrefix,
    Memory,
    Model,
    Operand,
    OperandType,
    Operation,
    OperationType,
    Subgraph,
)
from nnhal_driver.validation.model import validate_model
from tests.driver.validation.models import (
    ADDITION,
    BOOL,
    BRANCH,
    COPY,
    EXTENSION,
    INPUT,
    LOOP,
    OUTPUT,
    POOL,
    TEMPORARY,
    adding,
    edited,
    passing,
    reference,
    tensor,
    with_location,
    with_operand,
    with_operation,
    with_subgraph,
)

_INPUT_AND_OUTPUT = (tensor(INPUT), tensor(OUTPUT))


def _loop_with_a_scalar() -> Model:
    model = LOOP
    for number, index in ((0, 4), (1, 2), (2, 2)):
        model = with_operand(model, index, number, type=OperandType.INT32, dimensions=())
    return model


def _unknown_shapes() -> Model:
    model = LOOP
    for number, index, dimensions in ((0, 2, ()), (1, 0, (0, 3)), (2, 0, ()), (2, 3, (0, 0)), (0, 5, (2, 0))):
        model = with_operand(model, index, number, dimensions=dimensions)
    return model


def _output_read_later() -> Model:
    model = with_operand(ADDITION, 3, lifetime=OUTPUT)
    return edited(model, output_indexes=(5, 3))


def _unread_temporary() -> Model:
    addition = Operation(OperationType.ADD, (0, 1, 2), (6,))
    return edited(adding(ADDITION, tensor(TEMPORARY)), operations=(*ADDITION.main.operations, addition))


def _loop_with_all_outputs() -> Model:
    operand, body = tensor(OUTPUT), passing(*[tensor(INPUT)] * 3, *[tensor(OUTPUT)] * 3)
    model = with_subgraph(edited(adding(LOOP, operand, operand), output_indexes=(5, 6, 7)), 2, body)
    return with_operation(model, 0, outputs=(5, 6, 7))


def _branches_without_inputs() -> Model:
    model = with_operation(BRANCH, 0, inputs=(0, 1, 2))
    return replace(model, referenced=(passing(tensor(OUTPUT)),) * 2)


def _nested() -> Model:
    """Return a model whose main runs subgraph 0, which runs 1 twice. Nothing runs 2."""
    caller = replace(
        BRANCH.main, operands=(replace(BOOL, lifetime=INPUT), reference(1), reference(1), *_INPUT_AND_OUTPUT)
    )
    return Model(
        BRANCH.main, (_with_constant_condition(caller), passing(*_INPUT_AND_OUTPUT), passing(*_INPUT_AND_OUTPUT))
    )


def _with_constant_condition(caller: Subgraph) -> Subgraph:
    """Return `caller` with a constant condition, so that it takes one input."""
    flag = replace(BOOL, lifetime=COPY, location=DataLocation(0, 0, 1))
    return replace(caller, operands=(flag, *caller.operands[1:]), input_indexes=(3,))


VALID_MODELS = {
    "addition": ADDITION,
    "if": BRANCH,
    "while": LOOP,
    "unread temporary": _unread_temporary(),
    "unread constant": adding(ADDITION, tensor(COPY, (1,), location=DataLocation(0, 0, 4))),
    "unread input": edited(adding(ADDITION, tensor(INPUT)), input_indexes=(6, 0)),
    "unread reference": adding(BRANCH, reference(0)),
    "overlapping constants": with_location(ADDITION, 2, offset=5),
    "overlapping constants in a pool": adding(ADDITION, tensor(POOL, (3,), location=DataLocation(0, 1, 12))),
    "unused bytes and pools": replace(ADDITION, operand_values=bytes(99), pools=(*ADDITION.pools, Memory.of(b"x"))),
    "operand values as a view": replace(ADDITION, operand_values=memoryview(bytes(16))),
    "pool without protection bits": replace(ADDITION, pools=(Memory(np.zeros(16, np.uint8), prot=0),)),
    "pool with a window": replace(ADDITION, pools=(Memory(np.zeros(20, np.uint8), 4, 16),)),
    "output read later": _output_read_later(),
    "same operand twice": with_operation(ADDITION, 0, inputs=(0, 0, 2)),
    "unknown rank": with_operand(ADDITION, 3, dimensions=()),
    "unknown dimensions": with_operand(ADDITION, 0, dimensions=(0, 3)),
    "unknown shapes in control flow": _unknown_shapes(),
    "no inputs and no outputs": Model(
        Subgraph((Operand(EXTENSION),), (Operation(EXTENSION, (), (0,)),), (), ()),
    ),
    "extension operation over anything": with_operation(ADDITION, 1, type=0x7FFFFFFF, inputs=(2, 2, 2, 2)),
    "prefix missing from the table": with_operand(with_operation(ADDITION, 1, type=EXTENSION), 5, type=EXTENSION),
    "lowest and highest prefix": replace(
        ADDITION, extension_name_to_prefix=(ExtensionNameAndPrefix("a.b_9", 32767), ExtensionNameAndPrefix(".", 0))
    ),
    "referenced but never used": replace(ADDITION, referenced=(passing(*_INPUT_AND_OUTPUT),)),
    "both branches the same": with_location(BRANCH, 2, offset=0),
    "nested references": replace(_nested(), operand_values=b"\1"),
    "loop with fewer outputs than values": with_operation(LOOP, 0, outputs=(5,)),
    "loop with as many outputs as values": _loop_with_all_outputs(),
    "branches without inputs": _branches_without_inputs(),
    "shape known to the branch only": with_operand(BRANCH, 3, dimensions=(0, 3)),
    "relaxed": replace(ADDITION, relax_computation_float32_to_float16=True),
    "loop with a scalar": _loop_with_a_scalar(),
}


@pytest.mark.parametrize("name", VALID_MODELS)
def test_valid(name: str) -> None:
    validate_model(VALID_MODELS[name])
