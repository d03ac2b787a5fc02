"""Python plug-ins: the version rule, everything that may be wrong with one, and that loading leaves nothing behind."""

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from driver.backends.api import API_VERSION
from driver.backends.discovery import Candidate, Kind, file_candidate
from driver.backends.loading import LoadError, load, version_fault
from driver.device import Device
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.dynamic import plugins
from tests.driver.one_operation import execute, float_tensor, model_of, prepare, tensor
from tests.shared import SHARED, shared

FACTORY = "return Doubler()"
VERSION = "return API_VERSION"
GUIDE = "reference/dynamic-backends.md"


def _version_rows() -> list[tuple[str, str, str]]:
    """The rows "| plug-in | host | loads | because |" of the guide's table."""
    path = SHARED / GUIDE
    lines = path.read_text().splitlines() if path.exists() else []
    start = next((i for i, line in enumerate(lines) if line.startswith("| plug-in | host |")), None)
    if start is None:
        return [("", "", "")]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        plugin, host, loads, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        rows.append((plugin, host, loads))
    return rows


@pytest.mark.parametrize(("plugin", "host", "loads"), _version_rows())
def test_versions_of_the_table(plugin: str, host: str, loads: str) -> None:
    shared(GUIDE)
    assert loads in ("yes", "no")
    numbers = [(int(a), int(b)) for a, b in (text.split(".") for text in (plugin, host))]
    assert (version_fault(*numbers) == "") is (loads == "yes")


@pytest.mark.parametrize(
    ("plugin", "host", "fault"),
    [
        ((1, 0), (1, 0), ""),
        ((1, 0), (1, 7), ""),
        ((1, 2), (1, 1), "it may need what this host lacks"),
        ((2, 0), (1, 9), "the major versions differ"),
        ((0, 9), (1, 0), "the major versions differ"),
    ],
)
def test_versions(plugin: tuple[int, int], host: tuple[int, int], fault: str) -> None:
    found = version_fault(plugin, host)
    assert fault in found and bool(found) == bool(fault)


def test_a_backend_for_1_0_works_on_this_host(tmp_path: Path) -> None:
    """It has nothing that came later: no load, no hooks, no optimize."""
    path = plugins.write(tmp_path, "A_B_backend.py", {VERSION: "return (1, 0)"})
    loaded = load(file_candidate(path))
    assert loaded.api_version == (1, 0) < API_VERSION
    assert not any(loaded.hooks.values()), "all that it lacks has a default"
    device = Device("test", [loaded.backend])
    model = model_of(Op.RELU, [float_tensor([1, -2])], [tensor(T.TENSOR_FLOAT32, (2,))], constants=False)
    np.testing.assert_array_equal(execute(prepare(model, device), [np.array([1, -2], np.float32)])[1][0], [2, -4])
    device.close()


BROKEN = {
    "syntax": ({"def GetVersion():": "def GetVersion(:"}, "running the file failed: SyntaxError"),
    "import": ({"class Doubler": "import no_such_module\n\nclass Doubler"}, "No module named 'no_such_module' (A_B_"),
    "exit while running": ({"class Doubler": "raise SystemExit(3)\n\nclass Doubler"}, "SystemExit: 3"),
    "no id function": ({"def GetBackendId": "def get_backend_id"}, "it has no GetBackendId; a backend needs"),
    "no version function": ({"def GetVersion": "def Version"}, "it has no GetVersion"),
    "no factory": ({"def BackendFactory": "def Factory"}, "it has no BackendFactory"),
    "id no function": ({'def GetBackendId():\n    return "Doubler"': 'GetBackendId = "Doubler"'}, "must be a function"),
    "empty id": ({'    return "Doubler"': '    return ""'}, "GetBackendId gave ''"),
    "id no text": ({'    return "Doubler"': "    return 5"}, "GetBackendId gave 5"),
    "id of two lines": ({'    return "Doubler"': '    return "a\\nb"'}, "GetBackendId gave 'a\\nb'"),
    "version no pair": ({VERSION: 'return "1.0"'}, "GetVersion gave '1.0'; it must give (major, minor)"),
    "negative version": ({VERSION: "return (1, -1)"}, "GetVersion gave (1, -1)"),
    "version raises": ({VERSION: "raise OSError('gone')"}, "GetVersion failed: OSError: gone (A_B_backend.py, line"),
    "later minor": ({VERSION: "return (API_VERSION[0], API_VERSION[1] + 1)"}, "it may need what this host lacks"),
    "other major": ({VERSION: "return (API_VERSION[0] + 1, 0)"}, "the major versions differ"),
    "factory raises": ({FACTORY: "raise ValueError('no device')"}, "BackendFactory failed: ValueError: no device"),
    "factory exits": ({FACTORY: "raise SystemExit('bye')"}, "BackendFactory failed: SystemExit: bye"),
    "factory gives nothing": ({FACTORY: "pass"}, "BackendFactory gave nothing"),
    "factory gives a class": ({FACTORY: "return Doubler"}, "BackendFactory gave a ABCMeta, not a"),
    "another object": (
        {FACTORY: "return 5"},
        "gave a int, not a driver.backends.api.Backend, and lacks supports, comp",
    ),
    "no supports": ({"def supports": "def support"}, "BackendFactory failed: TypeError: Can't instantiate abstract"),
    "another id": ({'id = "Doubler"': 'id = "Tripler"'}, "GetBackendId says 'Doubler', the backend's id is 'Tripler'"),
    "no id": ({'    id = "Doubler"\n': ""}, "the backend's id is None"),
    "no version": ({'version = "7"': 'version = ""'}, "the backend has no version"),
}


@pytest.mark.parametrize(("changes", "reason"), BROKEN.values(), ids=BROKEN)
def test_what_may_be_wrong(changes: dict[str, str], reason: str, tmp_path: Path) -> None:
    before = set(sys.modules)
    path = plugins.write(tmp_path, "A_B_backend.py", changes)
    with pytest.raises(LoadError) as error:
        load(file_candidate(path))
    assert reason in str(error.value)
    assert not {name for name in set(sys.modules) - before if name.startswith("_nnhal_backend")}


def test_an_error_after_the_id_names_the_backend(tmp_path: Path) -> None:
    path = plugins.write(tmp_path, "A_B_backend.py", {FACTORY: "pass"})
    with pytest.raises(LoadError) as error:
        load(file_candidate(path))
    assert error.value.id == "Doubler"


def test_an_older_minor_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driver.backends.loading._Python.host", (1, 9))
    path = plugins.write(tmp_path, "A_B_backend.py", {VERSION: "return (1, 3)"})
    assert load(file_candidate(path)).api_version == (1, 3)


def test_hooks_that_a_plugin_has(tmp_path: Path) -> None:
    with_one = {"    def workload": "    def capabilities(self):\n        return {'Fast': True}\n\n    def workload"}
    hooks = load(file_candidate(plugins.write(tmp_path, "A_B_backend.py", with_one))).hooks
    assert hooks["capabilities"] and not hooks["performance"]
    assert "supports" not in hooks


def test_a_module_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins.write(tmp_path, "acme_doubler.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert load(Candidate(Kind.PACKAGE, "acme_doubler", "package acme")).backend.id == "Doubler"
    finally:
        sys.modules.pop("acme_doubler", None)
    with pytest.raises(LoadError, match="importing it failed: ModuleNotFoundError: No module named 'acme_tripler'"):
        load(Candidate(Kind.PACKAGE, "acme_tripler", "package acme"))


def test_two_runtimes_at_once_share_nothing(tmp_path: Path) -> None:
    counted = {
        "class Doubler": "RUNS = []\n\nclass Doubler",
        "return lambda call:": "RUNS.append(1)\n        return lambda call:",
    }
    candidate = file_candidate(plugins.write(tmp_path, "A_B_backend.py", counted))
    one, two = load(candidate).backend, load(candidate).backend
    modules = [sys.modules[type(backend).__module__] for backend in (one, two)]
    assert modules[0] is not modules[1]
    devices = [Device("one", [one]), Device("two", [two])]
    try:
        model = model_of(Op.RELU, [float_tensor([-1.0, 2.0])], [tensor(T.TENSOR_FLOAT32, (2,))], constants=False)
        outcomes = [prepare(model, device) for device in devices]
        for outcome in (*outcomes, outcomes[0]):
            assert execute(outcome, [np.array([-1, 2], np.float32)])[1][0].tolist() == [-2, 4]
        assert [len(module.RUNS) for module in modules] == [1, 1]
    finally:
        for device in devices:
            device.close()


def test_loading_again_and_again_leaves_nothing(tmp_path: Path) -> None:
    candidate = file_candidate(plugins.write(tmp_path, "A_B_backend.py"))
    model = model_of(Op.RELU, [float_tensor([-1.0])], [tensor(T.TENSOR_FLOAT32, (1,))], constants=False)
    modules = []
    for _ in range(20):
        device = Device("test", [load(candidate).backend])
        outcome = prepare(model, device)
        modules.append(weakref.ref(sys.modules[type(device.backends[0]).__module__]))
        assert execute(outcome, [np.array([1], np.float32)])[1][0].tolist() == [2]
        device.close()
        del device, outcome
    gc.collect()
    assert [module() for module in modules] == [None] * 20
    assert not [name for name in sys.modules if name.startswith("_nnhal_backend")]
