"""The notebook of examples/: it runs from top to bottom in a kernel, and is committed without outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.language import violations

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "tour.ipynb"
PNG = "image/png"


def cells(kind: str) -> list[dict[str, Any]]:
    """Return the cells of a kind."""
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def test_outputs_are_not_committed() -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells("code"))


def test_text_follows_the_style_guide() -> None:
    assert [problem for cell in cells("markdown") for problem in violations("cell.md", "".join(cell["source"]))] == []


@pytest.mark.slow
def test_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat
    from jupyter_client.manager import AsyncKernelManager

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "kernel"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(notebook, km=manager, timeout=300).execute(cwd=str(tmp_path))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    plots = sum("plt.show()" in cell.source for cell in notebook.cells)
    assert sum(PNG in output.get("data", {}) for output in outputs) == plots > 0
    text = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "97.5% of 359 answers are correct" in text
    assert "TOPK_V2    CpuRef\n    not CpuAcc: " in text
    assert [output.name for output in outputs if output.output_type == "stream" and output.name != "stdout"] == []
