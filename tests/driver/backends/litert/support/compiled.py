"""Access to the TFLite models of a prepared model."""

from nnhal.types import Model
from nnhal_driver.backends.boundary.subgraphs import CheckedSubgraph
from nnhal_driver.backends.litert.subgraph import LitertSubgraph
from nnhal_driver.execution.plan import PartitionNode
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.backends.litert.support.comparison import device
from tests.driver.one_operation import prepare


def prepare_on_engine(model: Model, *backends: str) -> Outcome:
    """Prepare a model, by default on CpuAcc and CpuRef."""
    outcome = prepare(model, device(*(backends or ("CpuAcc", "CpuRef"))))
    assert outcome.prepared_model is not None, outcome.reason
    return outcome


def compiled_parts(outcome: Outcome) -> list[LitertSubgraph]:
    """Return the partitions of CpuAcc."""
    assert outcome.prepared_model is not None
    nodes = [node for node in outcome.prepared_model.plan.nodes if isinstance(node, PartitionNode)]
    parts = [node.compiled.compiled for node in nodes if isinstance(node.compiled, CheckedSubgraph)]
    return [part for part in parts if isinstance(part, LitertSubgraph)]


def operators(outcome: Outcome) -> list[str]:
    """Return the names of all operators that the engine runs."""
    return [name for part in compiled_parts(outcome) for pool in part.pools for name in pool.model.operators]
