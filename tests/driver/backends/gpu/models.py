"""Small model for the GPU, its input, and its subgraph."""

import numpy as np

from nnhal.types import Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import CompileOptions, SubgraphView
from nnhal_driver.graph import build_graphs, subgraph_view
from tests.driver.backends.litert.support.models import one_operation
from tests.driver.backends.litert.support.samples import Case
from tests.driver.one_operation import float_tensor, int32, tensor

OUT = tensor(T.TENSOR_FLOAT32)
OPTIONS = CompileOptions(preference=1)
IMAGE = np.random.default_rng(1).standard_normal((1, 8, 8, 4)).astype(np.float32)


def convolution(seed: int = 0) -> Model:
    """Return a convolution whose weights depend on a seed."""
    random = np.random.default_rng(seed)
    image = float_tensor(random.standard_normal((1, 8, 8, 4)))
    weights, bias = float_tensor(random.standard_normal((4, 3, 3, 4))), float_tensor(random.standard_normal(4))
    case = Case(Op.CONV_2D, [image, weights, bias, *map(int32, (1, 1, 1, 1))], [OUT], frozenset({1, 2}))
    return one_operation(case)[0]


def view_of(model: Model) -> SubgraphView:
    """Return all of a model as a subgraph."""
    graph = build_graphs(model)[0]
    return subgraph_view(graph, range(len(graph.operations)), relaxed=False)
