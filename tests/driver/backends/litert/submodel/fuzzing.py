"""Search for sub-models that `verify` accepts and that crash or hang LiteRT.

`python -m tests.driver.backends.litert.submodel.fuzzing SEED FIRST COUNT FOLDER` tests COUNT mutated models in this
process. An example depends on SEED and its number only. FOLDER/last.tflite is the model that LiteRT is running, so that
it is known after a crash; FOLDER/last.txt has its number. A hang ends the process by SIGALRM. The last line of the
output has the counts.
"""

import json
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from nnhal.tflite_schema.dtypes import DTYPES
from nnhal.types import AnyArray
from nnhal_driver.backends.litert.submodel import InvalidSubModel, SubModel, SubModelLimits, parse, verify
from tests.driver.backends.litert.submodel.encoding import encode
from tests.driver.backends.litert.submodel.seeds import operators, repaired, seed_count, seed_model
from tests.nnhal.tflite.mutation import mutate

LIMITS = SubModelLimits(tensor_bytes=2**22, live_bytes=2**25, trips=100, executions=10_000, work=2**26)
"""Limits that keep each example short."""
_HANG_S = 60
_GUARDS = (0, 255)
"""Values of the inputs that nothing reads, in two executions."""
_RESOLVERS = (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)


@cache
def _seed(operator: str, index: int) -> bytes | None:
    """Return a seed model, or None if it is not valid."""
    return repaired(seed_model(operator, index), LIMITS)


def example(seed: int, number: int) -> tuple[bytes, str]:
    """Return a mutated model and the operator of its origin."""
    generator = random.Random(f"{seed} {number}")
    while True:
        operator = generator.choice(operators())
        data = _seed(operator, generator.randrange(seed_count(operator)))
        if data is not None:
            break
    mutated = mutate(data, generator)
    return repaired(mutated, LIMITS) or mutated, operator


def run(model: SubModel, generator: np.random.Generator, fixed: Mapping[int, int] = MappingProxyType({})) -> str:
    """Run a model in LiteRT with random inputs, with and without XNNPACK. Return its error, if there is one.

    Args:
        model: the model.
        generator: the source of random values.
        fixed: values of some inputs, by number.

    Raises:
        AssertionError: an output does not have the declared shape, or LiteRT read or wrote out of bounds.
    """
    data, message = encode(model, guarded=True), ""
    inputs = [
        random_values(np.dtype(DTYPES[tensor.type]), tensor.shape, generator)
        if number not in fixed
        else np.full(tensor.shape, fixed[number], DTYPES[tensor.type])
        for number, tensor in enumerate(model.inputs)
    ]
    for resolver in _RESOLVERS:
        try:
            interpreter = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=resolver)
            interpreter.allocate_tensors()
            results = [_invoke(interpreter, inputs, guard) for guard in _GUARDS]
        except (RuntimeError, ValueError) as error:
            message = str(error).partition("\n")[0]
            continue
        found, declared = [array.shape for array in results[0]], [tensor.shape for tensor in model.outputs]
        assert found == declared, f"LiteRT computes shapes {found}; declared are {declared}"
        assert [a.tobytes() for a in results[0]] == [a.tobytes() for a in results[1]], "LiteRT read out of bounds"
    return message


def _invoke(interpreter: Any, inputs: Sequence[AnyArray], guard: int) -> list[AnyArray]:
    """Run a guarded model and return its outputs.

    Raises:
        AssertionError: a guard has changed.
    """
    details = interpreter.get_input_details()
    guards = details[len(inputs) :]
    for detail, values in zip(details, inputs, strict=False):
        interpreter.set_tensor(detail["index"], values)
    for detail in guards:
        interpreter.set_tensor(detail["index"], np.full(detail["shape"], guard, np.uint8))
    interpreter.reset_all_variables()
    interpreter.invoke()
    outputs = [np.asarray(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]
    for detail in guards:
        assert (interpreter.get_tensor(detail["index"]) == guard).all(), "LiteRT wrote out of bounds"
    return outputs


def random_values(dtype: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator) -> AnyArray:
    """Return values of the whole range of a type, small ones, or many special ones."""
    if dtype.kind == "c":
        parts = random_values(np.dtype(np.float32), (*shape, 2), generator)
        return parts.view(dtype).reshape(shape)
    count = int(np.prod(shape))
    special: list[float] = [0, 1, -1, 2]
    if dtype.kind == "f":
        values = generator.standard_normal(count).astype(dtype)
        special += [float("nan"), float("inf"), -float("inf"), float(np.finfo(dtype).max)]
    elif dtype.kind == "b":
        return generator.integers(0, 2, count).astype(dtype).reshape(shape)
    else:
        values = np.frombuffer(generator.bytes(count * dtype.itemsize), dtype).copy()
        special = [0, 1, 2, 3, np.iinfo(dtype).max, np.iinfo(dtype).min]
    match generator.integers(3):
        case 0:
            chosen = generator.random(count) < 0.5
            values[chosen] = np.asarray(special).astype(dtype)[generator.integers(0, len(special), int(chosen.sum()))]
        case 1:
            values = (generator.random(count) * (1 if dtype.kind == "f" else 4)).astype(dtype)
    return values.reshape(shape)


def search(seed: int, first: int, count: int, folder: Path) -> Counter[str]:
    """Test examples, and return counts: refused, ran, failed in LiteRT, and accepted per operator."""
    counts: Counter[str] = Counter()
    last, number_file = folder / "last.tflite", folder / "last.txt"
    for number in range(first, first + count):
        number_file.write_text(f"{number}")
        signal.alarm(_HANG_S)
        data, operator = example(seed, number)
        try:
            model = parse(data)
            verify(model, LIMITS)
        except InvalidSubModel as refusal:
            assert _names_a_place(str(refusal)), refusal
            counts["refused"] += 1
            continue
        last.write_bytes(encode(model))
        error = run(model, np.random.default_rng(number))
        counts["failed" if error else "ran"] += 1
        counts[f"accepted {operator}"] += 1
    signal.alarm(0)
    return counts


def _names_a_place(message: str) -> bool:
    """Return whether a message begins with an operator, a tensor, a subgraph or a field."""
    return bool(re.match(r"(operator|subgraph|tensor|model|the |operator_codes|subgraphs)", message))


if __name__ == "__main__":
    found = search(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    print(json.dumps(found))
