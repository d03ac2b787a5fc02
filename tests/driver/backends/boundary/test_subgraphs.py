"""Invalid answers of backends to optimize, compile, load and save."""

import threading
from typing import Any

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import CacheState, ErrorStatus
from nnhal_driver.backends.api import CompiledSubgraph, OptimizedSubgraph, Sections, Substitution
from nnhal_driver.backends.layout import Layout, Relayout
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.fake_backend import device_of
from tests.driver.hostile_backend import MODEL, Acts, Hostile, HostileSubgraph, raises, returns
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import Pair
from tests.driver.one_operation import execute, prepare

VALUES = np.array([1, -2], np.float32)


class Property(HostileSubgraph):
    """Subgraph with an attribute that cannot be read."""

    @property
    def copies_inputs(self) -> bool:  # type: ignore[override]
        raise SystemExit("from a property")


def with_attribute(name: str, value: object) -> CompiledSubgraph:
    """Return a subgraph with an attribute."""
    subgraph = HostileSubgraph(Hostile())
    setattr(subgraph, name, value)
    return subgraph


NHWC = Relayout(Layout.NHWC, Layout.NC4HW4)

COMPILED: dict[str, tuple[object, str]] = {
    "None": (None, "returned None; expected a CompiledSubgraph"),
    "class": (HostileSubgraph, "expected a CompiledSubgraph"),
    "function": (print, "expected a CompiledSubgraph"),
    "memory": (with_attribute("memory", 5), "with memory 5; expected a MemoryManager or None"),
    "copies_inputs": (with_attribute("copies_inputs", "yes"), "with copies_inputs 'yes'; expected a bool"),
    "layouts": (with_attribute("layouts", [5]), "with layouts [5]; expected a mapping"),
    "layout of a wrong type": (with_attribute("layouts", {0: "NCHW"}), "with layout 'NCHW' for operand 0"),
    "layout of another operand": (with_attribute("layouts", {99: NHWC}), "a layout for operand 99"),
    "layout of another rank": (with_attribute("layouts", {0: NHWC}), "of shape [2]; expected rank 4"),
    "property": (Property(Hostile()), "SystemExit: from a property"),
}


@pytest.mark.parametrize("answer", COMPILED)
def test_invalid_subgraph_costs_the_backend(answer: str) -> None:
    compiled, reason = COMPILED[answer]
    hostile = Hostile({"compile": returns(compiled)})
    with device_of(hostile) as device:
        outcome = prepare(MODEL, device)
        assert (outcome.status, reason in outcome.reason) == (ErrorStatus.GENERAL_FAILURE, True), outcome.reason
    with device_of(hostile, CpuRef()) as device:
        assert execute(prepare(MODEL, device), [VALUES])[1][0].tolist() == [1, 0]


OPTIMIZED: dict[str, tuple[object, str]] = {
    "None": (None, "returned None; expected an OptimizedSubgraph"),
    "substitutions": (OptimizedSubgraph(5), "substitutions=5"),  # type: ignore[arg-type]
    "substitution": (OptimizedSubgraph((5,)), "expected a Substitution"),  # type: ignore[arg-type]
    "operations": (
        OptimizedSubgraph((Substitution(("0",), HostileSubgraph(Hostile())),)),  # type: ignore[arg-type]
        "expected indexes",
    ),
    "no operations": (OptimizedSubgraph((Substitution((), HostileSubgraph(Hostile())),)), "each once"),
    "unknown operation": (OptimizedSubgraph((Substitution((9,), HostileSubgraph(Hostile())),)), "each once"),
    "compiled": (OptimizedSubgraph((Substitution((0,), None),)), "substitutes None"),  # type: ignore[arg-type]
    "attribute": (OptimizedSubgraph((Substitution((0,), with_attribute("memory", 5)),)), "with memory 5"),
    "failed": (OptimizedSubgraph(failed=5), "expected reasons by operation"),  # type: ignore[arg-type]
    "reason": (OptimizedSubgraph(failed={0: 5}), "expected reasons by operation"),  # type: ignore[dict-item]
    "unknown failed operation": (OptimizedSubgraph(failed={9: "no"}), "each once"),
}


@pytest.mark.parametrize("answer", OPTIMIZED)
def test_invalid_optimization_costs_the_backend(answer: str) -> None:
    optimized, reason = OPTIMIZED[answer]
    hostile = Hostile({"optimize": returns(optimized)})
    with device_of(hostile) as device:
        outcome = prepare(MODEL, device)
        assert (outcome.status, reason in outcome.reason) == (ErrorStatus.GENERAL_FAILURE, True), outcome.reason
    with device_of(hostile, CpuRef()) as device:
        assert execute(prepare(MODEL, device), [VALUES])[1][0].tolist() == [1, 0]


def _save(acts: Acts, pair: Pair) -> Outcome:
    outcomes, done = list[Outcome](), threading.Event()
    with device_of(Hostile(acts)) as device:

        def notify(outcome: Outcome) -> None:
            outcomes.append(outcome)
            done.set()

        launch_preparation(device, MODEL, notify, cache=pair.files())
        assert done.wait(60)
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize(
    "sections",
    [
        b"program",
        Sections("program"),  # type: ignore[arg-type]
        Sections(b"", 5),  # type: ignore[arg-type]
        Sections(b"", ([1, 2],)),  # type: ignore[arg-type]
        Sections(b"", (np.array([None]),)),
    ],
    ids=["bytes", "text", "no data", "list", "objects"],
)
def test_invalid_sections_are_not_saved(sections: Any) -> None:
    pair = Pair()
    outcome = _save({"save": returns(sections)}, pair)
    pair.close()
    assert (outcome.status, outcome.cache.state) == (ErrorStatus.NONE, CacheState.NOT_SAVED)
    assert "backend Hostile: save returned" in outcome.cache.reason
    assert [warning.code for warning in outcome.warnings] == ["cache-not-saved"]


def test_valid_sections_are_saved() -> None:
    for sections in (None, Sections(b"program"), Sections(b"", (np.ones(3, np.float16),))):
        pair = Pair()
        assert _save({"save": returns(sections)}, pair).cache.state == CacheState.SAVED
        pair.close()


def test_memory_that_fails_fails_the_execution() -> None:
    class Manager:
        acquire = release = print

    subgraph = HostileSubgraph(Hostile())
    subgraph.memory = Manager()  # type: ignore[assignment]
    Manager.acquire = raises(lambda: SystemExit(5))  # type: ignore[assignment]
    with device_of(Hostile({"compile": returns(subgraph)})) as device:
        outcome = prepare(MODEL, device)
        with pytest.raises(HalError, match="Hostile failed in memory"):
            execute(outcome, [VALUES])
