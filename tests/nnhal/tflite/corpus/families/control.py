"""Operators that run other subgraphs."""

from collections.abc import Iterator

from tests.nnhal.tflite.build import Branch, Op, options
from tests.nnhal.tflite.corpus.cases import SampledTensor, const, models, tensor


def _branch(operator: str, type_: str, *shape: int) -> Branch:
    source, result = tensor(type_, *shape), tensor(type_, *shape)
    return Branch([Op(operator, [source], [result])], [source], [result])


@models("IF")
def if_(name: str) -> Iterator[Op]:
    """Yield both conditions with several types and ranks."""
    for type_ in ("FLOAT32", "INT32"):
        for value in (True, False):
            for shape in ((2, 3), (4,), (1, 2, 3, 2)):
                branches = [_branch("NEG", type_, *shape), _branch("ABS", type_, *shape)]
                table = options("If", thenSubgraphIndex=1, elseSubgraphIndex=2)
                inputs = [tensor("BOOL", 1, values=value), tensor(type_, *shape)]
                yield Op(name, inputs, [tensor(type_, *shape)], table, branches=branches)


@models("WHILE")
def while_(name: str) -> Iterator[Op]:
    """Yield loops of 0 to 3 rounds that add to a tensor."""
    for type_ in ("FLOAT32", "INT32"):
        for limit in (0, 1, 3):
            table = options("While", condSubgraphIndex=1, bodySubgraphIndex=2)
            inputs = [tensor("INT32", 1, values=0), tensor(type_, 2, 3)]
            outputs = [tensor("INT32", 1), tensor(type_, 2, 3)]
            yield Op(name, inputs, outputs, table, branches=[_is_below(limit, type_), _add(type_)])


def _is_below(limit: int, type_: str) -> Branch:
    count, total, result = tensor("INT32", 1), tensor(type_, 2, 3), tensor("BOOL", 1)
    less = Op("LESS", [count, const("INT32", [limit])], [result], options("Less"))
    return Branch([less], [count, total], [result])


def _add(type_: str) -> Branch:
    count, total = tensor("INT32", 1), tensor(type_, 2, 3)
    next_count, next_total = tensor("INT32", 1), tensor(type_, 2, 3)

    def add(a: SampledTensor, b: SampledTensor, result: SampledTensor) -> Op:
        return Op("ADD", [a, b], [result], options("Add"))

    operators = [add(count, const("INT32", [1]), next_count), add(total, total, next_total)]
    return Branch(operators, [count, total], [next_count, next_total])
