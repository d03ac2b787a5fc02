"""Share of its vectors that an operation runs on a backend."""

from typing import Any

from tests.backend_share import shares


def row(name: str, *operations: tuple[str, str], path: str = "SYNC", status: str = "passed") -> dict[str, Any]:
    return {"name": name, "suite": "generated", "path": path, "status": status, "operations": list(operations)}


def test_shares_count_the_vectors_that_test_an_operation() -> None:
    rows = [
        row("mul", ("MUL", "CpuAcc")),
        row("mul_2", ("MUL", "CpuRef")),
        row("mul_all_inputs_as_internal", ("ADD", "CpuRef"), ("MUL", "CpuAcc")),
        row("mul_twice", ("MUL", "CpuAcc"), ("MUL", "CpuRef")),
        row("mul", ("MUL", "CpuAcc"), path="SYNC-C"),
        row("mul_bad", ("MUL", "CpuAcc"), status="failed"),
        row("while", ("MUL", "CpuAcc"), ("WHILE", "driver")),
    ]
    assert shares(rows, "CpuAcc") == {"MUL": 0.5}
    assert shares(rows, "CpuRef") == {"MUL": 0.25}
