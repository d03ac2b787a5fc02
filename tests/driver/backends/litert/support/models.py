"""Models of one operation with constants and inputs."""

from dataclasses import replace

import numpy as np

from nnhal.types import DTYPES, AnyArray, DataLocation, Model, Operand, OperandLifeTime, Operation, Subgraph, is_tensor
from tests.driver.backends.litert.support.samples import Case


def one_operation(case: Case) -> tuple[Model, list[AnyArray]]:
    """Return the model and its inputs. Scalars and the tensors in `case.constant` are constants."""
    data, operands, arrays = bytearray(), list[Operand](), list[AnyArray]()
    for i, (operand, value) in enumerate(case.inputs):
        if value is None:
            operands.append(replace(operand, lifetime=OperandLifeTime.NO_VALUE))
            continue
        array = np.asarray(value).astype(DTYPES[operand.type])
        if is_tensor(operand.type) and i not in case.constant:
            operands.append(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_INPUT))
            arrays.append(array)
        else:
            location = DataLocation(0, len(data), array.nbytes)
            operands.append(replace(operand, lifetime=OperandLifeTime.CONSTANT_COPY, location=location))
            data += array.tobytes()
            data += bytes(-len(data) % 4)
    count = len(operands)
    operands += [replace(operand, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT) for operand in case.outputs]
    operation = Operation(case.type, tuple(range(count)), tuple(range(count, len(operands))))
    inputs = tuple(i for i, operand in enumerate(operands) if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT)
    return Model(Subgraph(tuple(operands), (operation,), inputs, operation.outputs), operand_values=bytes(data)), arrays
