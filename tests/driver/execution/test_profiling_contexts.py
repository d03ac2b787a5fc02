"""Profiling contexts: told of each profiled execution of a device, whatever starts it, and even if it fails."""

import logging
from collections.abc import Sequence

import numpy as np
import pytest

from nnhal.client.core.arrays import ModelIO
from nnhal.errors import HalError, general_failure
from nnhal.types import (
    AnyArray,
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    FenceState,
    Memory,
    Request,
    RequestArgument,
    Span,
    SpanKind,
)
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import CompiledSubgraph, CompileOptions, Output, Profile, ProfilingContext, Run
from nnhal_driver.execution.burst import Burst
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_driver.execution.fence import Fence
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.graph import SubgraphView
from tests.driver.blocking_backend import until
from tests.driver.fake_backend import SMALL, Fake, device_of, graph_of
from tests.driver.one_operation import prepare

MODEL = graph_of([(-1, -1)], [Op.ADD])
X = np.ones(SMALL, np.float32)
PROFILE = ExecutionConfig(profile=True)


class Recorder(ProfilingContext):
    """Context that records its calls, and reports a span with the number of the execution as its duration."""

    def __init__(self, fails: str = "") -> None:
        self.events: list[tuple[str, int]] = []
        self.fails = fails

    def begin(self, execution: int) -> None:
        self.note("begin", execution)

    def end(self, execution: int, profile: Profile) -> None:
        assert profile.execution == execution
        profile.span("counters", 0, execution)
        self.note("end", execution)

    def note(self, event: str, execution: int) -> None:
        self.events.append((event, execution))
        if event == self.fails:
            raise SystemExit("test failure")


class Profiled(Fake):
    """Backend with a context, that records the numbers of executions of its parts.

    Attributes:
        created: number of contexts that the host asked for.
        fail: whether executions fail.
    """

    def __init__(self, context: object, takes: Sequence[int] | None = None, id_: str = "Profiled") -> None:
        super().__init__(id_, takes)
        self.context = context
        self.created = 0
        self.fail = False
        self.parts: list[int | None] = []

    def create_profiling_context(self) -> ProfilingContext | None:
        self.created += 1
        if isinstance(self.context, BaseException):
            raise self.context
        return self.context  # type: ignore[return-value]

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return _Part(self, super().compile(subgraph, options))


class _Part(CompiledSubgraph):
    def __init__(self, backend: Profiled, compiled: CompiledSubgraph) -> None:
        self._backend, self._compiled = backend, compiled

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self._backend.parts.append(None if run.profile is None else run.profile.execution)
        if self._backend.fail:
            raise general_failure("test failure")
        self._compiled.execute(inputs, outputs, run)


def _request() -> Request:
    """Return a request whose output is in the second pool."""
    out = np.zeros(SMALL, np.float32)
    arguments = [RequestArgument(location=DataLocation(pool, 0, X.nbytes)) for pool in (0, 1)]
    return Request((arguments[0],), (arguments[1],), (Memory.of(X), Memory(out.view(np.uint8))))


def _single(prepared: PreparedModel) -> Sequence[Span]:
    return prepared.execute_synchronously(_request(), PROFILE).spans


def _in_burst(prepared: PreparedModel) -> Sequence[Span]:
    return Burst(prepared, 4).execute_synchronously(_request(), (-1, -1), PROFILE).spans


def _reusable(prepared: PreparedModel) -> Sequence[Span]:
    return ReusableExecution(prepared, _request(), PROFILE).execute_synchronously().spans


def _finished(execution: FencedExecution) -> Sequence[Span]:
    assert until(lambda: execution.fence.state != FenceState.ACTIVE)
    info = execution.info()
    if info.status != ErrorStatus.NONE:
        raise HalError(info.status, info.reason)
    return info.spans


def _fenced(prepared: PreparedModel) -> Sequence[Span]:
    return _finished(prepared.execute_fenced(_request(), PROFILE))


def _fenced_reusable(prepared: PreparedModel) -> Sequence[Span]:
    return _finished(ReusableExecution(prepared, _request(), PROFILE).execute_fenced(FencedArguments()))


WAYS = [_single, _in_burst, _reusable, _fenced, _fenced_reusable]


@pytest.mark.parametrize("run", WAYS)
def test_context_hears_of_executions_of_every_kind(run: object) -> None:
    assert callable(run)
    backend = Profiled(Recorder())
    assert isinstance(backend.context, Recorder)
    with device_of(backend) as device:
        prepared = prepare(MODEL, device).prepared_model
        assert prepared is not None
        assert backend.created == 0, "before the first profiled execution"
        for _ in range(2):
            spans = run(prepared)
        assert backend.created == 1
        (_, first), (_, second) = backend.context.events[::2]
        assert backend.context.events == [("begin", first), ("end", first), ("begin", second), ("end", second)]
        assert backend.parts == [first, second] and 0 < first < second
        counters = [span for span in spans if span.name == "counters"]
        assert [(span.kind, span.backend, span.duration_ns) for span in counters] == [
            (SpanKind.WORK, "Profiled", second)
        ]
        assert [span.kind for span in spans if span.kind in (SpanKind.PARTITION, SpanKind.OPERATION)] == [
            SpanKind.OPERATION,
            SpanKind.PARTITION,
        ]


def test_context_hears_nothing_of_ordinary_executions() -> None:
    backend = Profiled(Recorder())
    with device_of(backend) as device:
        prepared = prepare(MODEL, device).prepared_model
        assert prepared is not None
        prepared.execute_synchronously(ModelIO(prepared.inputs, prepared.outputs, (), ()).request([X]))
        assert _finished(prepared.execute_fenced(_request())) == ()
        assert backend.created == 0 and backend.parts == [None, None]


def test_backend_that_runs_nothing_is_told_too() -> None:
    idle = Profiled(Recorder(), (), "Idle")
    with device_of(Profiled(None), idle) as device:
        prepared = prepare(MODEL, device).prepared_model
        assert prepared is not None
        assert any(span.backend == "Idle" for span in _single(prepared))
        assert isinstance(idle.context, Recorder)
        assert [event for event, _ in idle.context.events] == ["begin", "end"]


@pytest.mark.parametrize("run", WAYS)
def test_end_follows_a_failed_execution(run: object) -> None:
    assert callable(run)
    backend = Profiled(Recorder())
    backend.fail = True
    with device_of(backend) as device:
        prepared = prepare(MODEL, device).prepared_model
        with pytest.raises(HalError, match="test failure"):
            run(prepared)
        assert isinstance(backend.context, Recorder)
        assert [event for event, _ in backend.context.events] == ["begin", "end"]


@pytest.mark.parametrize("context", [Recorder("begin"), Recorder("end"), SystemExit("test"), "context", None])
def test_context_that_fails_does_not_fail_the_execution(context: object, caplog: pytest.LogCaptureFixture) -> None:
    backend = Profiled(context)
    with device_of(backend) as device:
        prepared = prepare(MODEL, device).prepared_model
        assert prepared is not None
        assert any(span.kind == SpanKind.PARTITION for span in _single(prepared))
        errors = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert bool(errors) == (context is not None)


def test_stages_of_a_fenced_execution_include_its_fences() -> None:
    fence = Fence()
    with device_of(Profiled(None)) as device:
        prepared = prepare(MODEL, device).prepared_model
        assert prepared is not None
        execution = prepared.execute_fenced(_request(), PROFILE, FencedArguments((fence,)))
        fence.signal()
        spans = _finished(execution)
        stages = [span for span in spans if span.kind == SpanKind.STAGE]
        assert [span.name for span in stages] == ["decode", "fences", "queue", "execute"]
        ends = [span.start_ns + span.duration_ns for span in stages]
        assert [span.start_ns for span in stages[1:]] == ends[:-1], "they follow each other"
