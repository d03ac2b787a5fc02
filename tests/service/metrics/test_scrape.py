"""Metrics of a running service: each path of a call counts, and scrapes parse with the official parsers."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import nnhal
from nnhal.client.core.session import Transport
from nnhal.version import find_revision
from nnhal_service.metrics.calls import MODEL_DIGITS
from nnhal_service.metrics.exposition import render
from nnhal_service.metrics.snapshot import Snapshot
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.driver.blocking_backend import TWICE

ONE = np.ones(2, np.float32)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(Settings(listen=("127.0.0.1:0",), backends=("CpuRef",))) as running:
        yield running


def run_every_path(device: "nnhal.Device") -> None:
    """Execute a model on each path."""
    prepared = device.prepare(TWICE).result(60)
    prepared.execute([ONE, ONE])
    prepared.profile([ONE, ONE])
    prepared.execute_fenced([ONE, ONE]).result(60)
    with prepared.burst() as burst:
        burst.execute([ONE, ONE])
    with prepared.reusable([ONE, ONE]) as execution:
        execution.run()
    device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])


def paths(snapshot: Snapshot) -> dict[str, float]:
    """Return the number of successful calls of each path."""
    counts: dict[str, float] = {}
    for (*_, path, status), count in snapshot.values.get("nnhal_calls", {}).items():
        if status == "ok":
            counts[path] = counts.get(path, 0) + count
    return counts


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_each_path_counts_its_calls(server: Server, transport: Transport) -> None:
    before = paths(server.metrics.snapshot())
    with nnhal.connect(server.addresses[0], transport=transport) as device:
        run_every_path(device)
    after = paths(server.metrics.snapshot())
    counts = {path: count - before.get(path, 0) for path, count in after.items() if count > before.get(path, 0)}
    common = {"prepare", "fenced", "reusable", "allocate", "upload", "download"}
    assert set(counts) == common | ({"unary", "stream"} if transport == "grpc" else {"data_socket"}), counts


def test_calls_have_labels_and_times(server: Server) -> None:
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        device.prepare(TWICE).result(60).execute([ONE, ONE])
    snapshot = server.metrics.snapshot()
    durations = snapshot.histograms["nnhal_call_duration_seconds"]
    (labels,) = (labels for labels in durations if labels[-1] == "unary")
    duration = durations[labels]
    assert labels[:2] == ("anonymous", "nnhal")
    assert len(labels[2]) == MODEL_DIGITS
    calls = snapshot.values["nnhal_calls"][*labels, "ok"]
    assert sum(duration.counts) == calls >= 1
    assert duration.sum >= snapshot.values["nnhal_device_seconds"][labels] > 0
    assert snapshot.values["nnhal_received_bytes"][labels] >= calls * 16
    assert snapshot.values["nnhal_sent_bytes"][labels] >= calls * 8


def test_build_has_its_version_and_revision(server: Server) -> None:
    (labels,) = server.metrics.snapshot().values["nnhal_build_info"]
    assert labels == (nnhal.__version__, find_revision(), "4") and len(find_revision()) in (0, 12)


def test_errors_count_with_their_status(server: Server) -> None:
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        prepared = device.prepare(TWICE).result(60)
        with pytest.raises(nnhal.HalError):
            prepared.execute([ONE, ONE], deadline=1e-9)
    values = server.metrics.snapshot().values
    failed = {labels: count for labels, count in values["nnhal_calls"].items() if "deadline" in labels[-1]}
    assert sum(failed.values()) >= 1
    assert any("deadline" in labels[1] for labels in values["nnhal_rpc_errors"])


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_scrape_during_load_parses(server: Server, accept: str, parse: object) -> None:
    assert callable(parse)
    stop = threading.Event()

    def load() -> None:
        with nnhal.connect(server.addresses[0]) as device:
            prepared = device.prepare(TWICE).result(60)
            while not stop.is_set():
                prepared.execute([ONE, ONE])

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        last = 0.0
        for _ in range(5):
            text, content_type = render(server.metrics.snapshot(), accept)
            families = {family.name: family for family in parse(text.decode())}
            assert content_type.startswith("application/openmetrics-text" if accept else "text/plain")
            total = sum(sample.value for sample in families["nnhal_calls"].samples if sample.name.endswith("_total"))
            assert total >= last
            last = total
    finally:
        stop.set()
        for thread in threads:
            thread.join()
