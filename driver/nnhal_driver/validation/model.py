"""Models as a whole (V-MODEL), and the order in which the parts of a model are checked.

Two rules are not enforced: unused referenced subgraphs (V-MODEL-05) and unused bytes of values and pools (V-MODEL-06)
are allowed.
"""

from collections.abc import Callable, Iterator, Set

from nnhal.errors import invalid_argument
from nnhal.rules.extension import check_extension_names
from nnhal.types import Model, OperandLifeTime
from nnhal_driver.validation.pool import check_pools
from nnhal_driver.validation.ranges import check_ranges
from nnhal_driver.validation.subgraph import check_subgraph


def validate_model(model: Model, proceed: Callable[[], None] = lambda: None) -> None:
    """Check a model. `proceed` is called between steps, and raises to end the validation.

    Raises:
        HalError: INVALID_ARGUMENT: names the first rule that the model breaks and the location; or what `proceed`
            raises.
    """
    check_ranges(model, proceed)
    check_pools(model.pools, "model pool")
    check_extension_names(model.extension_name_to_prefix, "extension table of the model")
    for referenced in _callees_first(model):
        check_subgraph(model, referenced + 1, proceed)
    check_subgraph(model, 0, proceed)


def _callees_first(model: Model) -> list[int]:
    """Return the referenced subgraphs, each after those that it refers to. They may be nested deeply: no recursion."""
    done: dict[int, None] = {}
    for root in range(len(model.referenced)):
        callers: set[int] = set()
        stack = [root]
        while stack:
            caller = stack[-1]
            if caller in done or caller in callers:
                done[caller] = None
                callers.discard(caller)
                stack.pop()
                continue
            callers.add(caller)
            stack += [callee for callee in _callees(model, caller, callers) if callee not in done]
    return list(done)


def _callees(model: Model, caller: int, callers: Set[int]) -> Iterator[int]:
    """Yield the subgraphs that a subgraph refers to. `callers`: the subgraph itself and those that led to it."""
    for operand in model.referenced[caller].operands:
        if operand.lifetime != OperandLifeTime.SUBGRAPH:
            continue
        callee = operand.location.offset
        if callee >= len(model.referenced):
            reason = f"referenced subgraph {caller} refers to subgraph {callee} of {len(model.referenced)}"
            raise invalid_argument(reason, "V-MODEL-03")
        if callee in callers:
            reason = f"referenced subgraph {caller} refers to {callee}, which leads back to it"
            raise invalid_argument(reason, "V-MODEL-03")
        yield callee
