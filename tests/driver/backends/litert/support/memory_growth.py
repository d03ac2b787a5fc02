"""Memory of operations with filters on CpuAcc: what is reserved, and what a process really needs.

`python -m tests.driver.backends.litert.support.memory_growth SEED COUNT` prepares and executes COUNT random operations,
each in a process of its own, and prints a line of JSON for each: the operation, and both sizes in bytes.
"""

import json
import os
import random
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

import nnhal
from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import device, execute
from tests.end_to_end.support.process_usage import status_bytes

TYPES = {T.TENSOR_FLOAT32: np.float32, T.TENSOR_QUANT8_ASYMM: np.uint8, T.TENSOR_QUANT8_ASYMM_SIGNED: np.int8}
OPERATIONS = (
    Op.CONV_2D,
    Op.GROUPED_CONV_2D,
    Op.DEPTHWISE_CONV_2D,
    Op.TRANSPOSE_CONV_2D,
    Op.MAX_POOL_2D,
    Op.AVERAGE_POOL_2D,
    Op.L2_POOL_2D,
    Op.RESIZE_BILINEAR,
    Op.RESIZE_NEAREST_NEIGHBOR,
)


def random_operation(seed: int) -> tuple[str, nnhal.Model, list[AnyArray]]:
    """Return a description, a model of one operation on a large image, and its inputs."""
    choice = random.Random(seed)
    operation, type_ = choice.choice(OPERATIONS), choice.choice(list(TYPES))
    if operation == Op.L2_POOL_2D:
        type_ = T.TENSOR_FLOAT32
    size, filter_, stride = choice.randrange(100, 400), choice.choice((1, 2, 3, 5, 7, 11)), choice.choice((1, 1, 2))
    depth, is_constant = choice.choice((1, 2, 8)), choice.random() < 0.7
    quantization: dict[str, Any] = {} if type_ == T.TENSOR_FLOAT32 else {"scale": 0.5}
    b = nnhal.ModelBuilder()
    images: list[AnyArray] = [np.ones((1, size, size, depth), TYPES[type_])]
    x = b.input(type_, images[0].shape, **quantization)

    def out(*shape: int) -> Operand:
        return Operand(type_, shape, scale=quantization.get("scale", 0.0))

    def add_filter(*shape: int) -> list[Any]:
        values = np.ones(shape, TYPES[type_])
        is_float = type_ == T.TENSOR_FLOAT32
        bias = np.zeros(depth, np.float32 if is_float else np.int32)
        bias_type, scale = (type_, 0.0) if is_float else (T.TENSOR_INT32, 0.25)
        if not is_constant:
            images.append(values)
        weights = b.constant(values, type_, **quantization) if is_constant else b.input(type_, shape, **quantization)
        return [weights, b.constant(bias, bias_type, scale=scale)]

    small = -(-size // stride)
    match operation:
        case Op.CONV_2D:
            weights = add_filter(depth, filter_, filter_, depth)
            y = b.add(operation, x, *weights, 1, stride, stride, 0, output=out(1, small, small, depth))
        case Op.GROUPED_CONV_2D:
            weights = add_filter(depth, filter_, filter_, 1)
            y = b.add(operation, x, *weights, 1, stride, stride, depth, 0, False, output=out(1, small, small, depth))
        case Op.DEPTHWISE_CONV_2D:
            weights = add_filter(1, filter_, filter_, depth)
            y = b.add(operation, x, *weights, 1, stride, stride, 1, 0, output=out(1, small, small, depth))
        case Op.TRANSPOSE_CONV_2D:
            shape = (1, size * stride, size * stride, depth)
            weights = [*add_filter(depth, filter_, filter_, depth), np.array(shape, np.int32)]
            y = b.add(operation, x, *weights, 1, stride, stride, 0, False, output=out(*shape))
        case Op.RESIZE_BILINEAR | Op.RESIZE_NEAREST_NEIGHBOR:
            y = b.add(operation, x, size * 3, size * 3, False, output=out(1, size * 3, size * 3, depth))
        case _:
            window = (1, stride, stride, filter_, filter_, 0)
            y = b.add(operation, x, *window, output=out(1, small, small, depth))
    b.output(y)
    constant = "" if is_constant else ", not constant"
    return f"{operation.name} {type_.name} {size} {filter_} {stride} {depth}{constant}", b.build(), images


def measure(seed: int) -> dict[str, object]:
    """Prepare and execute an operation in this process, and return what it needed besides the results."""
    name, model, images = random_operation(seed)
    acc, reserved, outcomes = device("CpuAcc"), [0], SimpleQueue[Outcome]()
    Path("/proc/self/clear_refs").write_text("5")  # the highest size becomes the current one
    before = status_bytes(os.getpid(), "VmHWM")
    launch_preparation(acc, model, outcomes.put, reserve=reserved.append)
    outcome = outcomes.get()
    if outcome.prepared_model is None:
        return {"operation": name, "refused": outcome.reason}
    results = execute(outcome, images)[1]
    needed = status_bytes(os.getpid(), "VmHWM") - before - sum(result.nbytes for result in results)
    return {"operation": name, "reserved": sum(reserved), "needed": needed}


def main() -> None:
    """Measure operations."""
    seed, count = map(int, sys.argv[1:])
    for number in range(seed, seed + count):
        if (child := os.fork()) == 0:
            print(json.dumps(measure(number)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
