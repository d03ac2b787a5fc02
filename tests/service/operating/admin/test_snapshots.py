"""Parts of the state of a service: load, and what the shadow has found out."""

from nnhal.admin.v1.admin_pb2 import ModelSnapshot, WorkerReport
from nnhal_service.metrics import catalog
from nnhal_service.metrics.snapshot import Snapshot
from nnhal_service.operating.admin.snapshots import load_snapshot, model_snapshots


def test_models_may_have_the_names_of_paths() -> None:
    metrics = Snapshot()
    for labels in (("", "", "unary"), ("load", "1", "unary"), ("prepare", "1", "stream"), ("a", "1", "load")):
        metrics.add(catalog.CALLS, 1, "anonymous", "nnhal", "0123", *labels, "ok")
    assert load_snapshot(metrics).executions == 3


def test_results_of_the_shadow_belong_to_all_models_with_a_digest() -> None:
    metrics = Snapshot()
    for result, count in (("equal", 5), ("within tolerance", 2), ("different", 3), ("failed", 7), ("dropped", 8)):
        metrics.add(catalog.SHADOW, count, "ab" * 6, result)
    metrics.add(catalog.SHADOW, 9, "other", "different")
    reports = [WorkerReport(models=[ModelSnapshot(digest="ab" * 32)]), WorkerReport(models=[ModelSnapshot()] * 2)]
    reports[1].models[1].digest = "ab" * 32
    found = [(model.shadow_compared, model.shadow_different) for model in model_snapshots(reports, metrics)]
    assert found == [(10, 3), (0, 0), (10, 3)]
