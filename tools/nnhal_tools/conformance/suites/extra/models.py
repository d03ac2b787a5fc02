"""Invalid models that the vendor test suite does not cover (EXTRA-14), and invalid prefix tables (EXTRA-13).

Each edit makes a valid built-in model invalid. Every call must reject it, as in VALMODEL. The module contains only
rules that the reference validator of the HAL enforces.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from operator import delitem, setitem
from typing import Any

from nnhal.types import OperandLifeTime as L
from nnhal.types import OperandType as T
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.preparation_gate import expect_model_refused
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import builtin_case

Edit = Callable[[types_pb2.Model], object]

CONV, NETWORK, IF, WHILE = "conv_per_channel", "network", "if_true", "while_5_turns"
ADD = "add_float"


def invalid(flaw: str, name: str, id_: str = "EXTRA-14") -> Callable[[Edit], Edit]:
    """Register a check that every call rejects a built-in model after an edit."""

    def register(edit: Edit) -> Edit:
        def body(target: Target, recorder: CheckRecorder) -> None:
            model = builtin_case(name).model()
            edit(model)
            expect_model_refused(target, recorder, model, flaw)

        check(id_, flaw)(body)
        return edit

    return register


def _first(graph: types_pb2.Subgraph, lifetime: L) -> types_pb2.Operand:
    """Return the first operand with a lifetime."""
    return next(operand for operand in graph.operands if int(operand.lifetime) == lifetime)


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


def _per_channel(model: types_pb2.Model) -> types_pb2.Operand:
    """Return the operand of CONV that is quantized per channel."""
    return next(operand for operand in model.main.operands if int(operand.type) == T.TENSOR_QUANT8_SYMM_PER_CHANNEL)


def _channels(model: types_pb2.Model) -> types_pb2.SymmPerChannelQuantParams:
    return _per_channel(model).extra_params.channel_quant


def _constant(model: types_pb2.Model) -> types_pb2.DataLocation:
    """Return the location of the first constant in operandValues."""
    return _first(model.main, L.CONSTANT_COPY).location


invalid("a negative dimension", ADD)(lambda m: setitem(_first(m.main, L.SUBGRAPH_INPUT).dimensions, 0, -2))
invalid("a constant with an unknown dimension", CONV)(lambda m: setitem(_per_channel(m).dimensions, 1, 0))
invalid("a constant tensor without dimensions", NETWORK)(lambda m: _first(m.main, L.CONSTANT_POOL).dimensions.clear())
invalid("a constant that ends after operandValues", ADD)(
    lambda m: setattr(_constant(m), "offset", len(m.operand_values))
)
invalid("a constant shorter than its type", ADD)(lambda m: setattr(_constant(m), "length", 3))
invalid("a per-channel type without parameters", CONV)(lambda m: _per_channel(m).ClearField("extra_params"))
invalid("a channel dimension out of range", CONV)(lambda m: setattr(_channels(m), "channel_dim", 4))
invalid("a negative channel dimension", CONV)(lambda m: setattr(_channels(m), "channel_dim", -1))
invalid("a missing channel scale", CONV)(lambda m: delitem(_channels(m).scales, 0))
invalid("a channel scale of 0", CONV)(lambda m: setitem(_channels(m).scales, 0, 0.0))
invalid("a channel scale of NaN", CONV)(lambda m: setitem(_channels(m).scales, 0, math.nan))


@invalid("a constant that ends after its pool", NETWORK)
def _constant_past_pool(model: types_pb2.Model) -> None:
    _first(model.main, L.CONSTANT_POOL).location.offset = len(model.pools[0].inline)


@invalid("a constant longer than its shape", CONV)
def _long_constant(model: types_pb2.Model) -> None:
    model.operand_values += bytes(4)
    _per_channel(model).location.length += 4


@invalid("a constant with padding", ADD)
def _padded_constant(model: types_pb2.Model) -> None:
    model.operand_values += bytes(64)
    _constant(model).padding = 4


# ---- Subgraphs ------------------------------------------------------------------------------------------


def _operation(model: types_pb2.Model) -> types_pb2.Operation:
    return model.main.operations[0]


invalid("an empty main subgraph", ADD)(lambda m: m.main.Clear())
invalid("an empty referenced subgraph", IF)(lambda m: m.referenced[1].Clear())
invalid("an OEM operation type", ADD)(lambda m: setattr(_operation(m), "type", 10000))
invalid("a negative operand index", ADD)(lambda m: setitem(_operation(m).inputs, 0, -1))
invalid("a model input index out of range", ADD)(lambda m: setitem(m.main.input_indexes, 0, len(m.main.operands)))
invalid("a repeated model input", ADD)(lambda m: m.main.input_indexes.append(m.main.input_indexes[0]))
invalid("a repeated model output", ADD)(lambda m: m.main.output_indexes.append(m.main.output_indexes[0]))
invalid("an output among the model inputs", ADD)(lambda m: m.main.input_indexes.append(m.main.output_indexes[0]))
invalid("an operation that reads its own output", ADD)(
    lambda m: setitem(_operation(m).inputs, 0, _operation(m).outputs[0])
)
invalid("an operation that writes one operand twice", "split_int32")(
    lambda m: setitem(_operation(m).outputs, 1, _operation(m).outputs[0])
)
invalid("a referenced subgraph with an operand index out of range", IF)(
    lambda m: setitem(m.referenced[0].operations[0].inputs, 0, len(m.referenced[0].operands))
)
invalid("a referenced subgraph with an invalid scale", IF)(lambda m: setattr(m.referenced[1].operands[0], "scale", 1.0))
invalid("a referenced subgraph with an unknown operation", IF)(
    lambda m: setattr(m.referenced[0].operations[0], "type", 106)
)
invalid("a referenced subgraph whose output is never written", WHILE)(lambda m: delitem(m.referenced[1].operations, 1))
invalid("a referenced subgraph whose operation lacks an argument", IF)(
    lambda m: delitem(m.referenced[0].operations[0].inputs, 2)
)


@invalid("an invalid unreferenced subgraph", ADD)
def _invalid_unreferenced(model: types_pb2.Model) -> None:
    spare = model.referenced.add()
    spare.CopyFrom(model.main)
    spare.operands[0].scale = 1.0


# ---- Control flow ---------------------------------------------------------------------------------------


def _add_reference(graph: types_pb2.Subgraph, number: int) -> None:
    """Add an operand that references a subgraph. Unused references count too."""
    operand = graph.operands.add(type=int(T.SUBGRAPH), lifetime=int(L.SUBGRAPH))
    operand.location.offset = number


@invalid("subgraphs that reference each other", IF)
def _mutual_reference(model: types_pb2.Model) -> None:
    _add_reference(model.referenced[0], 1)
    _add_reference(model.referenced[1], 0)


def _argument(model: types_pb2.Model, position: int) -> types_pb2.Operand:
    """Return an input of the first operation."""
    return model.main.operands[_operation(model).inputs[position]]


def _swap_inputs(model: types_pb2.Model, first: int, second: int) -> None:
    inputs = _operation(model).inputs
    inputs[first], inputs[second] = inputs[second], inputs[first]


invalid("a reference to an unknown subgraph", IF)(
    lambda m: setattr(_first(m.main, L.SUBGRAPH).location, "offset", len(m.referenced))
)
invalid("a subgraph that references itself", IF)(lambda m: _add_reference(m.referenced[0], 0))
invalid("IF with a condition of the wrong type", IF)(lambda m: setattr(_argument(m, 0), "type", T.TENSOR_INT32))
invalid("IF with a condition of two elements", IF)(lambda m: setitem(_argument(m, 0).dimensions, 0, 2))
invalid("IF without branches", IF)(lambda m: delitem(_operation(m).inputs, slice(1, None)))
invalid("IF with a tensor as a branch", IF)(lambda m: setitem(_operation(m).inputs, 1, _operation(m).inputs[3]))
invalid("IF with an extra input", IF)(lambda m: _operation(m).inputs.append(_operation(m).inputs[3]))
invalid("IF with an input of another type than its branches", IF)(
    lambda m: setattr(_argument(m, 3), "type", T.TENSOR_INT32)
)
invalid("IF with an output of another rank than its branches", IF)(
    lambda m: m.main.operands[m.main.output_indexes[0]].dimensions.pop()
)
invalid("WHILE whose condition does not return a BOOL", WHILE)(
    lambda m: setitem(_operation(m).inputs, 0, _operation(m).inputs[1])
)
invalid("WHILE with an extra input", WHILE)(lambda m: _operation(m).inputs.append(_operation(m).inputs[2]))
invalid("WHILE with inputs in another order than its subgraphs", WHILE)(lambda m: _swap_inputs(m, 2, 3))
invalid("WHILE with a value of another shape than its body", WHILE)(lambda m: setitem(_argument(m, 3).dimensions, 0, 3))


@invalid("WHILE whose body has fewer outputs", WHILE)
def _while_body_output_missing(model: types_pb2.Model) -> None:
    body = model.referenced[1]
    del body.operations[1]
    body.operands[body.output_indexes[1]].lifetime = int(L.NO_VALUE)  # type: ignore[assignment]
    del body.output_indexes[1]


# ---- Pools ----------------------------------------------------------------------------------------------


@check("EXTRA-14", "a pool that ends after its memory")
def _pool_past_memory(target: Target, recorder: CheckRecorder) -> None:
    """Check pools whose window of a Memory object is empty or out of bounds."""
    model = builtin_case(NETWORK).model()
    data = model.pools[0].inline
    handle = target.memory_with(data)
    for window in ({"length": len(data) + 1}, {"offset": -1}, {"length": 0}, {"offset": 1, "length": len(data)}):
        model.pools[0].CopyFrom(mapped_pool(handle, **window))
        expect_model_refused(target, recorder, model, f"a pool with {window} of {len(data)} bytes")
    target.release(handle)


# ---- Extensions -----------------------------------------------------------------------------------------


TEST = "org.example.test"

INVALID_PREFIXES: Mapping[str, Sequence[tuple[str, int]]] = {
    "an extension name with an uppercase letter": [("org.Example.test", 1)],
    "an extension name without a period": [("example", 1)],
    "a repeated extension name": [(TEST, 1), (TEST, 2)],
    "a repeated extension prefix": [("org.example.one", 1), ("org.example.two", 1)],
    "an extension prefix of 16 bits": [(TEST, 32768)],
}
"""Names and prefixes of extensions, by their flaw."""


def _with_prefixes(entries: Sequence[tuple[str, int]]) -> Edit:
    table = [types_pb2.ExtensionNameAndPrefix(name=name, prefix=prefix) for name, prefix in entries]
    return lambda model: model.extension_name_to_prefix.extend(table)


for _flaw, _entries in INVALID_PREFIXES.items():
    invalid(_flaw, ADD, "EXTRA-13")(_with_prefixes(_entries))
