"""Totals over workers: they never go back, whatever workers do, and count everything once."""

import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from nnhal_service.metrics import calls, catalog
from nnhal_service.metrics.calls import CallMeter
from nnhal_service.metrics.exposition import render
from nnhal_service.metrics.series import CallSeries
from nnhal_service.metrics.snapshot import FILE, HistogramValue, ServiceMetrics, Snapshot
from nnhal_service.metrics.supervisor_metrics import MAX_LABELS, SupervisorMetrics, read_totals
from nnhal_service.metrics.worker_metrics import WorkerMetrics

LABELS = ("anonymous", "nnhal", "0123", "", "", "unary")


class Client:
    """Client of a meter."""

    def __init__(self, identity: str = "anonymous") -> None:
        self.identity = identity
        self.owner = None
        self.series: dict[calls.SeriesKey, CallSeries] = {}


class Trace:
    """Trace of a call."""

    id = "ab" * 16

    def end(self, call: calls.MeteredCall) -> None:
        pass


def started(meter: calls.CallMeter, client: Client, digest: bytes) -> calls.MeteredCall:
    """Return a call that executes a model with a digest."""
    return meter.start(calls.MeteredCall("unary", 10), client, calls.ModelLabels("nnhal", digest))


def record(metrics: WorkerMetrics, count: int) -> None:
    client = Client()
    for _ in range(count):
        started(metrics.calls, client, b"\x01\x23").finish()


def count(snapshot: Snapshot) -> float:
    return sum(snapshot.values.get("nnhal_calls", {}).values())


@pytest.fixture
def supervisor() -> Iterator[SupervisorMetrics]:
    metrics = SupervisorMetrics()
    yield metrics
    metrics.close()


def answer_of(worker: WorkerMetrics) -> Snapshot:
    """Return the snapshot of a worker, as the admin process gets it."""
    return Snapshot.decode(worker.encoded())


def totals(supervisor: SupervisorMetrics) -> Snapshot:
    return read_totals(supervisor.file)


def test_workers_add_up(supervisor: SupervisorMetrics) -> None:
    service = ServiceMetrics()
    workers = [WorkerMetrics(source) for source in (1, 2)]
    for worker in workers:
        worker.collect_with(lambda snapshot: snapshot.add(catalog.SESSIONS, 3, "anonymous"))
        worker.collect_with(lambda snapshot: snapshot.add(catalog.CACHE_ENTRIES, 7))
        record(worker, 5)
    merged = service.merge(totals(supervisor), [answer_of(worker) for worker in workers])
    assert count(merged) == 10
    assert sum(merged.histograms["nnhal_call_duration_seconds"][LABELS].counts) == 10
    assert merged.values["nnhal_sessions"]["anonymous",] == 6
    assert merged.values["nnhal_cache_entries"][()] == 7, "workers share the cache"


def test_worker_that_ended_counts_on(supervisor: SupervisorMetrics, tmp_path: Path) -> None:
    service, worker = ServiceMetrics(), WorkerMetrics(1, tmp_path)
    worker.collect_with(lambda snapshot: snapshot.add(catalog.SESSIONS, 3, "anonymous"))
    record(worker, 5)
    assert count(service.merge(totals(supervisor), [answer_of(worker)])) == 5
    unanswered = service.merge(totals(supervisor), [])
    assert count(unanswered) == 5, "it has crashed, and the supervisor does not know it yet"
    assert not unanswered.values.get("nnhal_sessions"), "gauges of workers that do not answer mean nothing"
    supervisor.add_ended_worker(1, tmp_path, "crash")
    for service_metrics in (service, ServiceMetrics()):  # also after a restart of the admin process
        merged = service_metrics.merge(totals(supervisor), [])
        assert count(merged) == 5
        assert not merged.values.get("nnhal_sessions")
        assert merged.values["nnhal_worker_restarts"]["crash",] == 1
    late = service.merge(totals(supervisor), [answer_of(worker)])
    assert count(late) == 5, "an answer that is older than the end of the worker"


@pytest.mark.parametrize("content", ["", "[]", '{"source": 1}', "nonsense", "[" * 100_000, '{"a": NaN}', "symlink"])
def test_damaged_file_of_a_worker_counts_nothing(supervisor: SupervisorMetrics, tmp_path: Path, content: str) -> None:
    if content == "symlink":
        (tmp_path / FILE).symlink_to("/etc/passwd")
    else:
        (tmp_path / FILE).write_text(content)
    supervisor.add_ended_worker(1, tmp_path, "exit")
    assert count(totals(supervisor)) == 0
    assert totals(supervisor).includes == {1}


@pytest.mark.parametrize("value", ["-1", "NaN", "Infinity", '"x"', "null", "[]"])
def test_value_that_is_no_number_is_rejected(value: str) -> None:
    snapshot = json.loads(Snapshot(1).encode())
    snapshot["values"] = {"nnhal_cache_evictions": [[[], "VALUE"]]}
    with pytest.raises(ValueError, match=r"not a value|invalid"):
        Snapshot.decode(json.dumps(snapshot).replace('"VALUE"', value).encode())


def test_snapshot_survives_the_way() -> None:
    metrics = WorkerMetrics(3)
    client = Client()
    call = started(metrics.calls, client, b"\x01")
    call.trace = Trace()
    call.finish()
    started(metrics.calls, client, b"\x01").fail(RuntimeError())
    snapshot = metrics.snapshot()
    assert Snapshot.decode(snapshot.encode()) == snapshot


def test_labels_of_totals_are_bounded(supervisor: SupervisorMetrics, tmp_path: Path) -> None:
    for source in range(3):
        snapshot = Snapshot(source)
        for model in range(MAX_LABELS // 2):
            labels = ("anonymous", "nnhal", f"{source}-{model}", f"pushed-{source}-{model}", "1", "unary")
            snapshot.add(catalog.DEVICE_SECONDS, 1, *labels)
        (tmp_path / FILE).write_bytes(snapshot.encode())
        supervisor.add_ended_worker(source, tmp_path, "reload")
    values = totals(supervisor).values["nnhal_device_seconds"]
    assert len(values) <= MAX_LABELS + 1
    assert sum(values.values()) == 3 * (MAX_LABELS // 2)


def test_labels_of_a_worker_are_bounded() -> None:
    meter = CallMeter()
    for number in range(calls.MAX_IDENTITIES + 50):
        client = Client(f"token:{number}")
        for model in range(calls.MAX_SERIES_OF_IDENTITY + 50 if number < 20 else 3):
            started(meter, client, model.to_bytes(4, "big")).finish()
    snapshot = Snapshot()
    meter.collect(snapshot)
    labels = set(snapshot.histograms["nnhal_call_duration_seconds"])
    assert len(labels) <= calls.MAX_SERIES + 2 * (calls.MAX_IDENTITIES + 1)
    assert len({identity for identity, *_ in labels}) <= calls.MAX_IDENTITIES + 2
    assert count(snapshot) == 20 * (calls.MAX_SERIES_OF_IDENTITY + 50) + 3 * (calls.MAX_IDENTITIES + 30)
    assert snapshot.values["nnhal_metrics_overflow"][()] > 0


def test_models_of_one_identity_take_no_place_of_others() -> None:
    meter = CallMeter()
    greedy = Client("token:greedy")
    for model in range(2 * calls.MAX_SERIES):
        started(meter, greedy, model.to_bytes(4, "big")).finish()
    started(meter, Client("token:modest"), b"\xab").finish()
    snapshot = Snapshot()
    meter.collect(snapshot)
    assert ("token:modest", "nnhal", "ab", "", "", "unary", "ok") in snapshot.values["nnhal_calls"]


def test_names_of_models_are_bounded() -> None:
    """Clients that may push models choose their names."""
    meter, client = CallMeter(), Client("token:c")
    for number in range(calls.MAX_SERIES_OF_IDENTITY + 50):
        meter.start(calls.MeteredCall("unary"), client, calls.ModelLabels("nnhal", b"", f"pushed-{number}/1")).finish()
    snapshot = Snapshot()
    meter.collect(snapshot)
    counts = snapshot.values["nnhal_calls"]
    assert len(counts) == calls.MAX_SERIES_OF_IDENTITY + 1
    assert counts["token:c", "nnhal", "", "pushed-0", "1", "unary", "ok"] == 1
    assert counts["token:c", "nnhal", "other", "", "", "unary", "ok"] == 50


def test_failed_work_is_wasted() -> None:
    meter, client = CallMeter(), Client()
    call = started(meter, client, b"\x01\x23")
    call.device_ns = 2 * 10**9
    call.fail(RuntimeError())
    snapshot = Snapshot()
    meter.collect(snapshot)
    assert snapshot.values["nnhal_wasted_seconds"] == {(*LABELS, "failed"): 2}
    assert snapshot.values["nnhal_device_seconds"] == {LABELS: 2}


def test_supervisor_counts_workers_and_suspects(supervisor: SupervisorMetrics) -> None:
    supervisor.show_workers({"serving": 2, "starting": 1})
    supervisor.show_workers({"serving": 3})
    supervisor.add_backends(["CpuAcc", "CpuRef"])
    supervisor.count_suspect("CpuAcc")
    values = totals(supervisor).values
    assert values["nnhal_worker_restarts"]["hang",] == 0, "so that the first one is an increase"
    assert values["nnhal_workers"] == {("serving",): 3}
    assert values["nnhal_suspect_models"] == {("CpuAcc",): 1, ("CpuRef",): 0}
    assert values["nnhal_start_time_seconds"][()] > 1e9
    supervisor.close()
    assert not supervisor.file.parent.exists()


def test_late_answer_does_not_turn_counters_back(supervisor: SupervisorMetrics) -> None:
    service, worker = ServiceMetrics(), WorkerMetrics(1)
    answers = []
    for _ in range(2):
        record(worker, 5)
        answers.append(answer_of(worker))
    assert count(service.merge(totals(supervisor), [answers[1]])) == 10
    assert count(service.merge(totals(supervisor), [answers[0]])) == 10


def test_the_order_of_workers_does_not_change_a_total() -> None:
    """Otherwise, a counter goes back by its last bits, which Prometheus takes for a restart."""
    times = [0.1, 0.2, 0.3]

    def rendered(order: list[float]) -> bytes:
        total = Snapshot()
        for time in order:
            worker = Snapshot()
            worker.add(catalog.DEVICE_SECONDS, time, *LABELS)
            observed = HistogramValue([1] * (len(catalog.DURATION_BOUNDS) + 1), time)
            worker.add_histogram(catalog.CALL_DURATION, observed, *LABELS)
            total.merge(worker)
        return render(total)[0]

    assert len({sum(order) for order in permutations(times)}) > 1
    assert len({rendered([*order]) for order in permutations(times)}) == 1
