"""An explanation whose operations run on two backends and on none."""

from nnhal.types import Model, OperationPlacement, Partition, Placement, Refusal
from nnhal_tools.explain.explanation import Explanation, build_explanation

HOSTILE = "</script><script>document.title='broken'</script><b>"


def explain(model: Model) -> Explanation:
    """Place operation 1 on CpuRef, the last one nowhere, and all others on CpuAcc."""
    last = len(model.main.operations) - 1
    refusals = {1: (Refusal("CpuAcc", HOSTILE, "rank 4"),), last: (Refusal("CpuAcc", "no"), Refusal("CpuRef", "never"))}
    backends = {1: "CpuRef", last: ""}
    operations = tuple(
        OperationPlacement(0, i, operation.type, backends.get(i, "CpuAcc"), refusals.get(i, ()))
        for i, operation in enumerate(model.main.operations)
    )
    partitions = (
        Partition(0, "CpuAcc", (0,)),
        Partition(0, "CpuRef", (1,)),
        Partition(0, "CpuAcc", tuple(range(2, last))),
    )
    return build_explanation(model, Placement(partitions, operations))
