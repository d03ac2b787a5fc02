"""Invalid models that the vendor test suite does not cover (EXTRA-14), and invalid prefix tables (EXTRA-13).

Each function makes a valid built-in model invalid. Every call must reject it, as in VALMODEL. The module contains only
rules that the reference validator of the HAL enforces.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnhal.types import OperandLifeTime as L
from nnhal.types import OperandType as T
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.preparation_gate import find_refusal_failure
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import builtin_case

Edit = Callable[[types_pb2.Model], None]

CONV, NETWORK, IF, WHILE = "conv_per_channel", "network", "if_true", "while_5_turns"
ADD = "add_float"


def invalid(flaw: str, name: str, id_: str = "EXTRA-14") -> Callable[[Edit], Edit]:
    """Register a check that every call rejects a built-in model after an edit."""

    def register(edit: Edit) -> Edit:
        def body(target: Target, recorder: CheckRecorder) -> None:
            model = builtin_case(name).model()
            edit(model)
            recorder.mark(id_)
            failure = find_refusal_failure(target, model, id_, flaw)
            if failure is not None:
                raise failure

        check(id_, flaw)(body)
        return edit

    return register


def _first(graph: types_pb2.Subgraph, lifetime: L) -> types_pb2.Operand:
    """Return the first operand with a lifetime."""
    return next(operand for operand in graph.operands if int(operand.lifetime) == lifetime)


def _of_type(graph: types_pb2.Subgraph, type_: T) -> types_pb2.Operand:
    return next(operand for operand in graph.operands if int(operand.type) == type_)


# ---- Operands -------------------------------------------------------------------------------------------


FIELD_FLAWS: Sequence[tuple[str, str, L, Mapping[str, Any]]] = (
    ("an unknown lifetime", ADD, L.SUBGRAPH_INPUT, {"lifetime": 7}),
    ("a negative lifetime", ADD, L.SUBGRAPH_INPUT, {"lifetime": -1}),
    ("an OEM operand type", ADD, L.SUBGRAPH_INPUT, {"type": 10001}),
    ("a constant in an unknown pool", NETWORK, L.CONSTANT_POOL, {"location": {"pool_index": 1}}),
    ("a constant with a negative pool index", NETWORK, L.CONSTANT_POOL, {"location": {"pool_index": -1}}),
    ("a constant of operandValues with a pool index", ADD, L.CONSTANT_COPY, {"location": {"pool_index": 1}}),
    ("a negative offset", ADD, L.CONSTANT_COPY, {"location": {"offset": -4}}),
    ("a negative length", ADD, L.CONSTANT_COPY, {"location": {"length": -4}}),
    ("an offset whose end overflows", ADD, L.CONSTANT_COPY, {"location": {"offset": 2**63 - 4}}),
    ("an input with a location", ADD, L.SUBGRAPH_INPUT, {"location": {"length": 4}}),
    ("a temporary with a location", NETWORK, L.TEMPORARY_VARIABLE, {"location": {"offset": 4}}),
    ("an omitted argument with a location", "transpose_default", L.NO_VALUE, {"location": {"length": 4}}),
    (
        "extra parameters on a type without parameters",
        ADD,
        L.SUBGRAPH_INPUT,
        {"extra_params": {"channel_quant": {"scales": [1.0]}}},
    ),
    ("extension parameters on a base type", ADD, L.SUBGRAPH_INPUT, {"extra_params": {"extension": b"\x01"}}),
    ("a scale of NaN", "add_quant8", L.SUBGRAPH_INPUT, {"scale": math.nan}),
    ("a signed zero point out of range", "concatenation_int8", L.SUBGRAPH_INPUT, {"zero_point": -129}),
    ("a reference to a subgraph with a length", IF, L.SUBGRAPH, {"location": {"length": 1}}),
    ("type SUBGRAPH with another lifetime", IF, L.SUBGRAPH, {"lifetime": int(L.NO_VALUE)}),
    ("lifetime SUBGRAPH with another type", IF, L.SUBGRAPH, {"type": int(T.INT32)}),
)
"""Flaws of one operand: the built-in model, the lifetime of the operand (its first one), and the flawed fields."""


def _with_fields(lifetime: L, fields: Mapping[str, Any]) -> Edit:
    return lambda model: _first(model.main, lifetime).MergeFrom(types_pb2.Operand(**fields))


for _flaw, _name, _lifetime, _fields in FIELD_FLAWS:
    invalid(_flaw, _name)(_with_fields(_lifetime, _fields))


@invalid("a negative dimension", ADD)
def _negative_dimension(model: types_pb2.Model) -> None:
    _first(model.main, L.SUBGRAPH_INPUT).dimensions[0] = -2


@invalid("a constant with an unknown dimension", CONV)
def _constant_of_unknown_dimension(model: types_pb2.Model) -> None:
    _of_type(model.main, T.TENSOR_QUANT8_SYMM_PER_CHANNEL).dimensions[1] = 0


@invalid("a constant tensor without dimensions", NETWORK)
def _constant_of_unknown_rank(model: types_pb2.Model) -> None:
    _first(model.main, L.CONSTANT_POOL).dimensions[:] = []


@invalid("a constant that ends after operandValues", ADD)
def _constant_past_values(model: types_pb2.Model) -> None:
    _first(model.main, L.CONSTANT_COPY).location.offset = len(model.operand_values)


@invalid("a constant that ends after its pool", NETWORK)
def _constant_past_pool(model: types_pb2.Model) -> None:
    _first(model.main, L.CONSTANT_POOL).location.offset = len(model.pools[0].inline)


@invalid("a constant shorter than its type", ADD)
def _short_constant(model: types_pb2.Model) -> None:
    _first(model.main, L.CONSTANT_COPY).location.length -= 1


@invalid("a constant longer than its shape", CONV)
def _long_constant(model: types_pb2.Model) -> None:
    model.operand_values += bytes(4)
    _of_type(model.main, T.TENSOR_QUANT8_SYMM_PER_CHANNEL).location.length += 4


@invalid("a constant with padding", ADD)
def _padded_constant(model: types_pb2.Model) -> None:
    model.operand_values += bytes(64)
    _first(model.main, L.CONSTANT_COPY).location.padding = 4


def _channels(model: types_pb2.Model) -> types_pb2.SymmPerChannelQuantParams:
    return _of_type(model.main, T.TENSOR_QUANT8_SYMM_PER_CHANNEL).extra_params.channel_quant


@invalid("a per-channel type without parameters", CONV)
def _no_channels(model: types_pb2.Model) -> None:
    _of_type(model.main, T.TENSOR_QUANT8_SYMM_PER_CHANNEL).ClearField("extra_params")


@invalid("a channel dimension out of range", CONV)
def _channel_out_of_range(model: types_pb2.Model) -> None:
    _channels(model).channel_dim = 4


@invalid("a negative channel dimension", CONV)
def _negative_channel(model: types_pb2.Model) -> None:
    _channels(model).channel_dim = -1


@invalid("a missing channel scale", CONV)
def _missing_channel_scale(model: types_pb2.Model) -> None:
    del _channels(model).scales[0]


@invalid("a channel scale of 0", CONV)
def _channel_scale_of_0(model: types_pb2.Model) -> None:
    _channels(model).scales[0] = 0.0


@invalid("a channel scale of NaN", CONV)
def _channel_scale_nan(model: types_pb2.Model) -> None:
    _channels(model).scales[0] = math.nan


# ---- Subgraphs ------------------------------------------------------------------------------------------


@invalid("an empty main subgraph", ADD)
def _empty_main(model: types_pb2.Model) -> None:
    model.main.Clear()


@invalid("an empty referenced subgraph", IF)
def _empty_referenced(model: types_pb2.Model) -> None:
    model.referenced[1].Clear()


@invalid("an OEM operation type", ADD)
def _oem_operation(model: types_pb2.Model) -> None:
    model.main.operations[0].type = 10000  # type: ignore[assignment]


@invalid("a negative operand index", ADD)
def _negative_index(model: types_pb2.Model) -> None:
    model.main.operations[0].inputs[0] = -1


@invalid("a model input index out of range", ADD)
def _unknown_input(model: types_pb2.Model) -> None:
    model.main.input_indexes[0] = len(model.main.operands)


@invalid("a repeated model input", ADD)
def _input_twice(model: types_pb2.Model) -> None:
    model.main.input_indexes.append(model.main.input_indexes[0])


@invalid("a repeated model output", ADD)
def _output_twice(model: types_pb2.Model) -> None:
    model.main.output_indexes.append(model.main.output_indexes[0])


@invalid("an output among the model inputs", ADD)
def _output_as_input(model: types_pb2.Model) -> None:
    model.main.input_indexes.append(model.main.output_indexes[0])


@invalid("an operation that reads its own output", ADD)
def _own_output(model: types_pb2.Model) -> None:
    model.main.operations[0].inputs[0] = model.main.operations[0].outputs[0]


@invalid("an operation that writes one operand twice", "split_int32")
def _same_output_twice(model: types_pb2.Model) -> None:
    model.main.operations[0].outputs[1] = model.main.operations[0].outputs[0]


@invalid("a referenced subgraph with an operand index out of range", IF)
def _dangling_in_referenced(model: types_pb2.Model) -> None:
    graph = model.referenced[0]
    graph.operations[0].inputs[0] = len(graph.operands)


@invalid("a referenced subgraph with an invalid scale", IF)
def _scale_in_referenced(model: types_pb2.Model) -> None:
    model.referenced[1].operands[0].scale = 1.0


@invalid("a referenced subgraph with an unknown operation", IF)
def _operation_in_referenced(model: types_pb2.Model) -> None:
    model.referenced[0].operations[0].type = 106  # type: ignore[assignment]


@invalid("a referenced subgraph whose output is never written", WHILE)
def _unwritten_in_referenced(model: types_pb2.Model) -> None:
    del model.referenced[1].operations[1]


@invalid("a referenced subgraph whose operation lacks an argument", IF)
def _argument_missing_in_referenced(model: types_pb2.Model) -> None:
    del model.referenced[0].operations[0].inputs[2]


@invalid("an invalid unreferenced subgraph", ADD)
def _invalid_unreferenced(model: types_pb2.Model) -> None:
    spare = model.referenced.add()
    spare.CopyFrom(model.main)
    spare.operands[0].scale = 1.0


# ---- Control flow ---------------------------------------------------------------------------------------


@invalid("a reference to an unknown subgraph", IF)
def _reference_out_of_range(model: types_pb2.Model) -> None:
    _first(model.main, L.SUBGRAPH).location.offset = len(model.referenced)


def _add_reference(graph: types_pb2.Subgraph, number: int) -> None:
    """Add an operand that references a subgraph. Unused references count too."""
    operand = graph.operands.add(type=int(T.SUBGRAPH), lifetime=int(L.SUBGRAPH))
    operand.location.offset = number


@invalid("a subgraph that references itself", IF)
def _self_reference(model: types_pb2.Model) -> None:
    _add_reference(model.referenced[0], 0)


@invalid("subgraphs that reference each other", IF)
def _mutual_reference(model: types_pb2.Model) -> None:
    _add_reference(model.referenced[0], 1)
    _add_reference(model.referenced[1], 0)


@invalid("IF with a condition of the wrong type", IF)
def _if_condition_type(model: types_pb2.Model) -> None:
    model.main.operands[model.main.operations[0].inputs[0]].type = int(T.TENSOR_INT32)  # type: ignore[assignment]


@invalid("IF with a condition of two elements", IF)
def _if_condition_shape(model: types_pb2.Model) -> None:
    model.main.operands[model.main.operations[0].inputs[0]].dimensions[:] = [2]


@invalid("IF without branches", IF)
def _if_without_branches(model: types_pb2.Model) -> None:
    del model.main.operations[0].inputs[1:]


@invalid("IF with a tensor as a branch", IF)
def _if_branch_is_a_tensor(model: types_pb2.Model) -> None:
    inputs = model.main.operations[0].inputs
    inputs[1] = inputs[3]


@invalid("IF with an extra input", IF)
def _if_extra_input(model: types_pb2.Model) -> None:
    inputs = model.main.operations[0].inputs
    inputs.append(inputs[3])


@invalid("IF with an input of another type than its branches", IF)
def _if_branch_type(model: types_pb2.Model) -> None:
    model.main.operands[model.main.operations[0].inputs[3]].type = int(T.TENSOR_INT32)  # type: ignore[assignment]


@invalid("IF with an output of another rank than its branches", IF)
def _if_output_rank(model: types_pb2.Model) -> None:
    model.main.operands[model.main.output_indexes[0]].dimensions[:] = [4]


@invalid("WHILE whose condition does not return a BOOL", WHILE)
def _while_condition_type(model: types_pb2.Model) -> None:
    inputs = model.main.operations[0].inputs
    inputs[0] = inputs[1]


@invalid("WHILE whose body has fewer outputs", WHILE)
def _while_body_output_missing(model: types_pb2.Model) -> None:
    body = model.referenced[1]
    del body.operations[1]
    body.operands[body.output_indexes[1]].lifetime = int(L.NO_VALUE)  # type: ignore[assignment]
    del body.output_indexes[1]


@invalid("WHILE with an extra input", WHILE)
def _while_extra_input(model: types_pb2.Model) -> None:
    inputs = model.main.operations[0].inputs
    inputs.append(inputs[2])


@invalid("WHILE with inputs in another order than its subgraphs", WHILE)
def _while_inputs_swapped(model: types_pb2.Model) -> None:
    inputs = model.main.operations[0].inputs
    inputs[2], inputs[3] = inputs[3], inputs[2]


@invalid("WHILE with a value of another shape than its body", WHILE)
def _while_shape(model: types_pb2.Model) -> None:
    model.main.operands[model.main.operations[0].inputs[3]].dimensions[:] = [3]


# ---- Pools ----------------------------------------------------------------------------------------------


@check("EXTRA-14", "a pool that ends after its memory")
def _pool_past_memory(target: Target, recorder: CheckRecorder) -> None:
    """Check pools whose window of a Memory object is empty or out of bounds."""
    model = builtin_case(NETWORK).model()
    data = model.pools[0].inline
    handle = target.memory_with(data)
    recorder.mark("EXTRA-14")
    for window in ({"length": len(data) + 1}, {"offset": -1}, {"length": 0}, {"offset": 1, "length": len(data)}):
        model.pools[0].CopyFrom(mapped_pool(handle, **window))
        failure = find_refusal_failure(target, model, "EXTRA-14", f"a pool with {window} of {len(data)} bytes")
        if failure is not None:
            raise failure
    target.release(handle)


# ---- Extensions -----------------------------------------------------------------------------------------


def _add_prefixes(model: types_pb2.Model, *entries: tuple[str, int]) -> None:
    for name, prefix in entries:
        model.extension_name_to_prefix.add(name=name, prefix=prefix)


@invalid("an extension name with an uppercase letter", ADD, "EXTRA-13")
def _capital_in_name(model: types_pb2.Model) -> None:
    _add_prefixes(model, ("org.Example.test", 1))


@invalid("an extension name without a period", ADD, "EXTRA-13")
def _name_without_period(model: types_pb2.Model) -> None:
    _add_prefixes(model, ("example", 1))


@invalid("a repeated extension name", ADD, "EXTRA-13")
def _name_twice(model: types_pb2.Model) -> None:
    _add_prefixes(model, ("org.example.test", 1), ("org.example.test", 2))


@invalid("a repeated extension prefix", ADD, "EXTRA-13")
def _prefix_twice(model: types_pb2.Model) -> None:
    _add_prefixes(model, ("org.example.one", 1), ("org.example.two", 1))


@invalid("an extension prefix of 16 bits", ADD, "EXTRA-13")
def _prefix_too_large(model: types_pb2.Model) -> None:
    _add_prefixes(model, ("org.example.test", 32768))
