"""Models as a whole (V-MODEL): the order in which everything about a model is judged.

Not judged: whether all referenced subgraphs are used (V-MODEL-05) and all bytes of values and pools (V-MODEL-06).
"""

from collections.abc import Iterator, Set

from driver.validation.extension import check_extension_names
from driver.validation.pool import check_pools
from driver.validation.subgraph import check_subgraph
from driver.validation.wire import check_wire
from nnhal.errors import invalid_argument
from nnhal.types import Model, OperandLifeTime


def validate_model(model: Model) -> None:
    """Judges a model.

    Raises:
        HalError: INVALID_ARGUMENT: the first rule that the model breaks, and where.
    """
    check_wire(model)
    check_pools(model.pools, "model pool")
    check_extension_names(model.extension_name_to_prefix, "extension table of the model")
    for referenced in _callees_first(model):
        check_subgraph(model, referenced + 1)
    check_subgraph(model, 0)


def _callees_first(model: Model) -> list[int]:
    """The referenced subgraphs, each after those that it refers to. No recursion: they may be nested deeply.

    Raises:
        HalError: INVALID_ARGUMENT, V-MODEL-03.
    """
    done: dict[int, None] = {}
    for root in range(len(model.referenced)):
        under_way: set[int] = set()
        stack = [root]
        while stack:
            caller = stack[-1]
            if caller in done or caller in under_way:
                done[caller] = None
                under_way.discard(caller)
                stack.pop()
                continue
            under_way.add(caller)
            stack += [callee for callee in _callees(model, caller, under_way) if callee not in done]
    return list(done)


def _callees(model: Model, caller: int, under_way: Set[int]) -> Iterator[int]:
    """What a subgraph refers to. `under_way`: itself and those that led to it."""
    for operand in model.referenced[caller].operands:
        if operand.lifetime != OperandLifeTime.SUBGRAPH:
            continue
        callee = operand.location.offset
        if callee >= len(model.referenced):
            reason = f"referenced subgraph {caller} refers to subgraph {callee} of {len(model.referenced)}"
            raise invalid_argument(reason, "V-MODEL-03")
        if callee in under_way:
            reason = f"referenced subgraph {caller} refers to {callee}, which leads back to it"
            raise invalid_argument(reason, "V-MODEL-03")
        yield callee
