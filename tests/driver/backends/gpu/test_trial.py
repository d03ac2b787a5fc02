"""Trials of GPUs: faulty ones are left out, with the reason, and the named one is the one that is used."""

from dataclasses import asdict

import pytest

from nnhal_driver.backends.gpu import trial
from nnhal_driver.backends.gpu.adapters import Adapter, NoAdapterError
from nnhal_driver.backends.gpu.trial import SelectedAdapter, run_trial, select_adapter
from tests.driver.backends.gpu import faulty_driver
from tests.driver.backends.gpu.faulty_driver import FaultyDriver
from tests.driver.backends.gpu.software_gpu import DRIVER, NAME, gpu, require_software_gpu


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyDriver:
    return FaultyDriver(tmp_path_factory.mktemp("driver"))


def test_tiny_model_agrees_with_the_cpu() -> None:
    require_software_gpu()
    gpu()  # this process uses the GPU of the tests
    assert run_trial().fault(half_precision=False) == ""


@pytest.mark.parametrize(
    ("letter", "reason"),
    [
        ("a", f"the trial of the GPU {faulty_driver.NAME} failed: killed by SIGABRT"),
        ("l", f"the trial of the GPU {faulty_driver.NAME} failed: "),
        ("n", f"the trial of the GPU {faulty_driver.NAME} failed: results of the GPU differ from those of the CPU"),
    ],
)
def test_faulty_gpu_is_left_out(
    letter: str, reason: str, faulty: FaultyDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty.set_fault(letter)
    monkeypatch.setenv("VK_DRIVER_FILES", str(faulty.manifest))
    with pytest.raises(NoAdapterError, match=reason):
        select_adapter(faulty_driver.NAME)


def test_named_gpu_is_used(faulty: FaultyDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    require_software_gpu()
    faulty.set_fault("")
    for files in (f"{DRIVER}:{faulty.manifest}", f"{faulty.manifest}:{DRIVER}"):
        monkeypatch.setenv("VK_DRIVER_FILES", files)
        for name in (faulty_driver.NAME, NAME):
            assert name in select_adapter(name).adapter.name


def tried(code: str, monkeypatch: pytest.MonkeyPatch) -> SelectedAdapter:
    """Return the selection if processes of trials run other code, after a definition of their GPUs and arguments."""
    adapters = [asdict(Adapter(name, "5.0", 1 << 30, is_software=False, id=name)) for name in ("first", "second")]
    start = f"""
import json, os, signal, sys
first, second = {adapters}
print("noise of the engine")
def answer(**values): print(json.dumps(values), flush=True)
def passed(): answer(trial=dict(gpu_s=1e-3, transfer_s=1e-4, cpu_s=1e-2, difference=0))
left_out = sys.argv[2:]
"""
    monkeypatch.setattr(trial, "_COMMAND", ("-c", start + code))
    return select_adapter("")


def test_next_gpu_is_used_instead_of_a_faulty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "answer(tried=second if left_out else first); passed() if left_out else os.abort()"
    selection = tried(code, monkeypatch)
    assert selection.adapter.name == "second"
    assert selection.left_out == {"first": "the trial of the GPU first failed: killed by SIGABRT, without a message"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("answer(problem='no loader')", "no loader"),
        ("print('oops', file=sys.stderr); os.abort()", "Vulkan failed: killed by SIGABRT, oops"),
        ("answer(problem='none') if left_out else answer(tried=first)", "the trial of the GPU first failed: without"),
        (
            "left_out and os._exit(0)\nanswer(tried=first); passed()\n"
            "print('Selected adapter: second, arch=x', file=sys.stderr)",
            "the trial of the GPU first failed: the engine uses second instead; select it with VK_DRIVER_FILES",
        ),
    ],
)
def test_failure_is_explained(code: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoAdapterError, match=reason):
        tried(code, monkeypatch)


def test_hang_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_TIMEOUT_S", 0.5)
    with pytest.raises(NoAdapterError, match=r"Vulkan gave no answer in 0.5 s"):
        tried("signal.pause()", monkeypatch)


def test_missing_driver_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    require_software_gpu()
    monkeypatch.setenv("VK_DRIVER_FILES", "/nonexistent.json")
    with pytest.raises(NoAdapterError, match="Vulkan finds no driver of a GPU"):
        select_adapter("")


def test_hardware_is_described() -> None:
    require_software_gpu()
    facts = gpu().hardware()
    assert NAME in facts["adapter"] and facts["driver"] and facts["memory"].endswith(" GiB")
    assert facts["precision"] == "float32, and float16 where the model allows it"
    assert facts["tiny model"].startswith("GPU ") and "CPU" in facts["tiny model"]
