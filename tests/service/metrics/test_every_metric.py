"""Each metric is driven: a service at work, and what happens to workers, move all of them."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import numpy as np
import pytest
import trustme

import nnhal
from nnhal.types import Model, OperandType, OperationType
from nnhal.v1 import prepared_model_pb2
from nnhal_driver.backends.api import CompiledSubgraph, CompileOptions, SubgraphView
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.quarantine import HARMLESS, NoQuarantine, Verdict
from nnhal_service import log
from nnhal_service.identity.tokens import create_token
from nnhal_service.metrics import calls
from nnhal_service.metrics.catalog import METRICS, Kind
from nnhal_service.metrics.snapshot import Snapshot
from nnhal_service.metrics.supervisor_metrics import SupervisorMetrics, read_totals
from nnhal_service.metrics.worker_metrics import WorkerMetrics
from nnhal_service.operating.admin.recent_warnings import RecentWarnings
from nnhal_service.operating.admin.snapshots import count_members
from nnhal_service.peers.fleet.member import Member
from nnhal_service.server import Server
from nnhal_service.serving.gauges import Gauges
from nnhal_service.sessions.limits import Limits
from nnhal_service.settings import Settings
from tests.concurrency import run_concurrently, wait_until
from tests.driver.blocking_backend import TIMEOUT_S, TWICE
from tests.driver.hostile_backend import Hostile
from tests.end_to_end.support.raw_client import open_raw_session
from tests.service.repository.model_files import adding_to_items, put

ONE = np.ones(2, np.float32)


class Suspicious:
    """Quarantine with one model for each backend."""

    def verdict(self, digest: bytes) -> Verdict:
        return HARMLESS

    def count(self, backend: str) -> int:
        return 1


def chain(length: int) -> Model:
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, [2])
    for _ in range(length):
        x = b.add(OperationType.RELU, x, output=x.description)
    b.output(x)
    return b.build()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = Settings(
        listen=("127.0.0.1:0",),
        backends=("CpuRef",),
        cache_dir=tmp_path / "cache",
        cache_bytes=6000,
        limits={"prepared_models": 30},
    )
    with Server(settings) as running:
        yield running


def moved(snapshot: Snapshot) -> set[str]:
    """Return the metrics of a snapshot that are not zero."""
    values = {name for name, values in snapshot.values.items() if any(values.values())}
    return values | {name for name, each in snapshot.histograms.items() if any(sum(v.counts) for v in each.values())}


OF_CLIENTS = {
    *("nnhal_calls", "nnhal_call_duration_seconds", "nnhal_queue_duration_seconds", "nnhal_device_seconds"),
    *("nnhal_received_bytes", "nnhal_sent_bytes", "nnhal_rpc_errors", "nnhal_sessions", "nnhal_sessions_opened"),
    *("nnhal_prepared_models", "nnhal_memory_bytes", "nnhal_memory_limit_bytes", "nnhal_build_info"),
    *("nnhal_cache_results", "nnhal_cache_evictions", "nnhal_cache_bytes", "nnhal_cache_limit_bytes"),
    *("nnhal_cache_entries", "nnhal_start_time_seconds"),
    *("nnhal_process_cpu_seconds", "nnhal_open_descriptors", "nnhal_descriptor_limit"),
}
OF_WORK = {"nnhal_calls_in_progress", "nnhal_calls_queued"}
OF_WASTE = {"nnhal_wasted_seconds"}
OF_DAMAGE = {"nnhal_cache_damaged"}
OF_WORKERS = {"nnhal_workers", "nnhal_worker_restarts", "nnhal_suspect_models"}
OF_QUARANTINE = {"nnhal_quarantined_models"}
OF_BACKENDS = {"nnhal_backend_memory_bytes"}
OF_BOUNDS = {"nnhal_metrics_overflow"}
OF_FLEET = {"nnhal_fleet_members"}
OF_NAMES = {"nnhal_named_models", "nnhal_batches", "nnhal_batched_calls"}
OF_IDENTITIES = {"nnhal_authentication_failures", "nnhal_credentials_invalid", "nnhal_certificate_expiry_seconds"}
OF_TLS = {"nnhal_tls_failures"}
"""tests/end_to_end/service/test_failed_handshakes.py moves it."""
OF_LOG = {"nnhal_log_lines"}
OF_TRACES = {"nnhal_spans"}
"""tests/service/tracing/test_tracer.py moves it."""
OF_SHADOW = {"nnhal_shadow_executions"}
OF_SHARE = {name for name in METRICS if name.startswith("nnhal_cache_share_")}


def test_each_metric_has_a_test() -> None:
    tested = (
        OF_CLIENTS,
        OF_WORK,
        OF_WASTE,
        OF_DAMAGE,
        OF_WORKERS,
        OF_QUARANTINE,
        OF_BACKENDS,
        OF_BOUNDS,
        OF_SHARE,
        OF_SHADOW,
        OF_FLEET,
        OF_NAMES,
    )
    assert set[str]().union(*tested, OF_IDENTITIES, OF_TLS, OF_LOG, OF_TRACES) == set(METRICS)


def test_clients_move_metrics(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnhal_service.serving.gauges.CACHE_S", 0.0)
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        kept = [device.prepare(chain(length), cache=True).result(60) for length in range(1, 9)]
        device.prepare(chain(8), cache=True).result(60)
        kept[0].execute([ONE])
        with pytest.raises(nnhal.HalError):
            kept[0].execute([ONE], deadline=1e-9)
        snapshot = server.metrics.snapshot()
    assert moved(snapshot) >= OF_CLIENTS
    results = {labels[1:] for labels in snapshot.values["nnhal_cache_results"]}
    assert {("miss", "no_entry"), ("saved", ""), ("hit", "")} <= results


def test_members_of_a_fleet_are_counted() -> None:
    snapshot = Snapshot()
    members = [Member(id_, "", "", draining=id_ == "b") for id_ in "abc"]
    count_members(snapshot, members)
    assert moved(snapshot) == OF_FLEET
    assert snapshot.values["nnhal_fleet_members"] == {("serving",): 2, ("draining",): 1}


def test_models_by_name_are_counted(tmp_path: Path) -> None:
    put(tmp_path / "models/a.tflite", adding_to_items(1))
    put(tmp_path / "models/a.toml", b"max_batch = 2\nmax_delay = 60000")
    settings = Settings(listen=("127.0.0.1:0",), backends=("CpuRef",), cache_bytes=0, models=str(tmp_path / "models"))
    with Server(settings) as server, nnhal.connect(server.addresses[0]) as device:
        model = device.model("a")

        def use(_: int) -> None:
            model.execute([np.ones((1, 2), np.float32)])

        run_concurrently(2, use)
        with pytest.raises(nnhal.HalError):
            model.execute([np.ones((1, 2), np.float32)], deadline=1e-9)
        snapshot = server.metrics.snapshot()
    assert moved(snapshot) >= OF_NAMES
    assert snapshot.values["nnhal_named_models"] == {("a", "1", "ready"): 1}
    assert snapshot.values["nnhal_batches"] == {("a", "1"): 1}
    assert snapshot.values["nnhal_batched_calls"] == {("a", "1"): 2}
    assert {labels[3:]: count for labels, count in snapshot.values["nnhal_calls"].items() if labels[3]} == {
        ("a", "1", "name", "ok"): 1,
        ("a", "1", "data_socket", "ok"): 2,
        ("a", "1", "data_socket", "missed_deadline_persistent"): 1,
    }


def test_damaged_entry_is_counted(server: Server, tmp_path: Path) -> None:
    with nnhal.connect(server.addresses[0]) as device:
        device.prepare(chain(1), cache=True).result(60)
        for file in (tmp_path / "cache").rglob("model"):
            file.write_bytes(bytes(file.stat().st_size))
        device.prepare(chain(1), cache=True).result(60)
    snapshot = server.metrics.snapshot()
    assert moved(snapshot) >= OF_DAMAGE
    assert ("nnhal", "miss", "damaged") in snapshot.values["nnhal_cache_results"]


def test_work_in_progress_and_its_waste_are_counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilations block; two run at once, and a third one waits. Their client leaves."""
    compile_, go = CpuRef.compile, threading.Event()

    def block(self: CpuRef, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        assert go.wait(TIMEOUT_S)
        return compile_(self, subgraph, options)

    def values(name: str) -> Mapping[tuple[str, ...], float]:
        return server.metrics.snapshot().values.get(name, {})

    def failed() -> float:
        return sum(count for (*_, status), count in values("nnhal_calls").items() if status != "ok")

    labels = ("nnhal", "preparation")
    monkeypatch.setattr(CpuRef, "compile", block)
    try:
        with nnhal.connect(server.addresses[0]) as device:
            for length in range(1, 4):
                device.prepare(chain(length))
            assert wait_until(lambda: values("nnhal_calls_in_progress")[labels] == 2, TIMEOUT_S)
            assert wait_until(lambda: values("nnhal_calls_queued")[labels] == 1, TIMEOUT_S)
            server.sessions.end(server.sessions.all()[0], "the test ends it")
        # all three have been told so, before the first of them compiles; the client may have repeated one until it left
        assert wait_until(lambda: failed() >= 3, TIMEOUT_S)
    finally:
        go.set()
    assert wait_until(lambda: sum(values("nnhal_wasted_seconds").values()) > 0, TIMEOUT_S)
    assert {labels[5:] for labels in values("nnhal_wasted_seconds")} == {("prepare", "cancelled")}


def test_quarantine_is_shown(server: Server) -> None:
    device = server.devices.get("")
    gauges = Gauges(server.sessions, Limits(), server.quota, server.store, [device], Suspicious())
    snapshot = Snapshot()
    gauges.collect(snapshot)
    assert snapshot.values["nnhal_quarantined_models"] == {("CpuRef",): 1}


def test_memory_of_backends_is_shown(server: Server) -> None:
    device = Device("npu", [Hostile()])
    gauges = Gauges(server.sessions, Limits(), server.quota, server.store, [device], NoQuarantine())
    snapshot = Snapshot()
    gauges.collect(snapshot)
    assert snapshot.values["nnhal_backend_memory_bytes"] == {("npu", "Hostile"): 1000}


def test_calls_that_are_refused_count(server: Server) -> None:
    """A call whose session is lost has no meter, and one whose handle is unknown neither."""
    with open_raw_session(server.addresses[0]) as raw:
        for session in (raw.session, b"lost"):
            with pytest.raises(grpc.RpcError):
                raw.prepared_model.Run(prepared_model_pb2.RunRequest(session=session, definition=b"unknown"))
    snapshot = server.metrics.snapshot()
    refused = {labels: count for labels, count in snapshot.values["nnhal_calls"].items() if labels[:3] == ("",) * 3}
    assert refused == {("",) * 5 + ("unary", status): 1 for status in ("invalid_argument", "device_unavailable")}


def test_credentials_move_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens, authority = tmp_path / "tokens", trustme.CA()
    tokens.write_text(create_token("a")[1])
    own = authority.issue_cert("localhost", not_after=datetime.now(UTC) + timedelta(days=2))
    own.cert_chain_pems[0].write_to_path(tmp_path / "crt")
    own.private_key_pem.write_to_path(tmp_path / "key")
    authority.cert_pem.write_to_path(tmp_path / "ca")
    settings = Settings(
        listen=("localhost:0",),
        backends=("CpuRef",),
        tls_cert=tmp_path / "crt",
        tls_key=tmp_path / "key",
        tokens=tokens,
    )
    with Server(settings) as server:
        tokens.write_text("damaged")
        with pytest.raises(nnhal.HalError, match="UNAUTHENTICATED"):
            nnhal.connect(server.addresses[0], ca=tmp_path / "ca", token="nnhal_wrong")
        snapshot = server.metrics.snapshot()
    assert moved(snapshot) >= OF_IDENTITIES
    assert snapshot.values["nnhal_authentication_failures"] == {("unauthenticated",): 1}
    assert snapshot.values["nnhal_credentials_invalid"] == {("tokens",): 1, ("certificates",): 0}
    (expiry,) = snapshot.values["nnhal_certificate_expiry_seconds"].values()
    assert 0 < expiry - time.time() <= 2 * 86400
    (line,) = (record for record in caplog.records if record.getMessage() == "audit")
    assert line.nnhal_fields["result"] == "failed: the token is unknown or has been revoked"  # type: ignore[attr-defined]


def test_the_log_moves_a_metric() -> None:
    metrics = WorkerMetrics()
    warnings = RecentWarnings(0, metrics.count)
    log.watch(warnings)
    try:
        log.event("jwks-unusable", logging.WARNING)
        log.event("serving")
        logging.getLogger("nnhal.service").error("internal error %d", 1)
    finally:
        for name in ("nnhal", "nnhal_driver"):
            logging.getLogger(name).removeHandler(warnings)
    lines = metrics.snapshot().values["nnhal_log_lines"]
    assert lines == {("warning", "jwks-unusable"): 1, ("error", "message"): 1}


def test_metrics_go_on_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without free descriptors, a collector fails."""
    monkeypatch.setattr("nnhal_service.metrics.worker_metrics.WRITE_S", 0.001)
    metrics, calls_, done = WorkerMetrics(1, tmp_path), list[int](), threading.Event()

    def collect(snapshot: Snapshot) -> None:
        calls_.append(1)
        if len(calls_) == 1:
            raise OSError(24, "Too many open files")
        done.set()

    metrics.collect_with(collect)
    metrics.start()
    assert done.wait(TIMEOUT_S)
    metrics.close()


def test_workers_move_metrics(tmp_path: Path) -> None:
    metrics = SupervisorMetrics()
    try:
        metrics.show_workers({"serving": 1})
        metrics.count_suspect("CpuRef")
        metrics.add_ended_worker(1, tmp_path, "crash")
        assert moved(read_totals(metrics.file)) >= OF_WORKERS
    finally:
        metrics.close()


def test_the_share_moves_metrics() -> None:
    metrics = SupervisorMetrics()
    try:
        counters = {name for name in OF_SHARE if METRICS[name].kind == Kind.COUNTER}
        counts = [(name, ["hit"] * len(METRICS[name].labels), 2.0) for name in counters]
        metrics.add_process([*counts, ("nnhal_unknown", [], 1.0)], dict.fromkeys(OF_SHARE - counters, 1.0))
        metrics.add_process(counts, {})
        totals = read_totals(metrics.file)
        assert moved(totals) >= OF_SHARE
        assert totals.values["nnhal_cache_share_reads"] == {("hit",): 4.0}
    finally:
        metrics.close()


def test_further_labels_move_a_metric(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_SERIES", 0)
    with nnhal.connect(server.addresses[0]) as device:
        device.prepare(TWICE).result(60)
    assert wait_until(lambda: moved(server.metrics.snapshot()) >= OF_BOUNDS, TIMEOUT_S)
