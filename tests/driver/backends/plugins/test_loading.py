"""Python plug-ins: the version rule, faults, and the release of unloaded modules."""

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import API_VERSION
from nnhal_driver.backends.plugins.discovery import Candidate, CandidateKind, file_candidate
from nnhal_driver.backends.plugins.loading import LoadError, load, version_mismatch
from nnhal_driver.device import Device
from tests.driver.backends.plugins import plugin_files
from tests.driver.one_operation import execute, float_tensor, model_of, prepare, tensor
from tests.shared import SHARED, shared

FACTORY = "return Doubler()"
VERSION = "return API_VERSION"
GUIDE = "reference/dynamic-backends.md"


def _version_rows() -> list[tuple[str, str, str]]:
    """Return the rows "| plug-in | host | loads | because |" of the guide's table."""
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
def test_versions_of_arm_nn(plugin: str, host: str, loads: str) -> None:
    shared(GUIDE)
    assert loads in ("yes", "no")
    numbers = [(int(a), int(b)) for a, b in (text.split(".") for text in (plugin, host))]
    assert (version_mismatch(*numbers) == "") is (loads == "yes")


@pytest.mark.parametrize(
    ("plugin", "host", "fault"),
    [
        ((1, 0), (1, 0), ""),
        ((1, 0), (1, 7), ""),
        ((1, 2), (1, 1), "it may need features that this host lacks"),
        ((2, 0), (1, 9), "the major versions differ"),
        ((0, 9), (1, 0), "the major versions differ"),
    ],
)
def test_versions(plugin: tuple[int, int], host: tuple[int, int], fault: str) -> None:
    mismatch = version_mismatch(plugin, host)
    assert fault in mismatch and bool(mismatch) == bool(fault)


def test_backend_for_version_1_0_works(tmp_path: Path) -> None:
    """The backend has none of the later members: no `load`, no hooks and no `optimize`."""
    path = plugin_files.write(tmp_path, "A_B_backend.py", {VERSION: "return (1, 0)"})
    loaded = load(file_candidate(path))
    assert loaded.api_version == (1, 0) < API_VERSION
    assert not any(loaded.hooks.values()), "every missing member has a default"
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
    "id is not a function": (
        {'def GetBackendId():\n    return "Doubler"': 'GetBackendId = "Doubler"'},
        "must be a function",
    ),
    "empty id": ({'    return "Doubler"': '    return ""'}, "GetBackendId returned ''"),
    "id is not text": ({'    return "Doubler"': "    return 5"}, "GetBackendId returned 5"),
    "id of two lines": ({'    return "Doubler"': '    return "a\\nb"'}, "GetBackendId returned 'a\\nb'"),
    "version is not a pair": ({VERSION: 'return "1.0"'}, "GetVersion returned '1.0'; expected (major, minor)"),
    "negative version": ({VERSION: "return (1, -1)"}, "GetVersion returned (1, -1)"),
    "version raises": ({VERSION: "raise OSError('gone')"}, "GetVersion failed: OSError: gone (A_B_backend.py, line"),
    "later minor": (
        {VERSION: "return (API_VERSION[0], API_VERSION[1] + 1)"},
        "it may need features that this host lacks",
    ),
    "other major": ({VERSION: "return (API_VERSION[0] + 1, 0)"}, "the major versions differ"),
    "factory raises": ({FACTORY: "raise ValueError('no device')"}, "BackendFactory failed: ValueError: no device"),
    "factory exits": ({FACTORY: "raise SystemExit('bye')"}, "BackendFactory failed: SystemExit: bye"),
    "factory gives nothing": ({FACTORY: "pass"}, "BackendFactory returned nothing"),
    "factory gives a class": ({FACTORY: "return Doubler"}, "BackendFactory returned a ABCMeta, not a"),
    "another object": (
        {FACTORY: "return 5"},
        "returned a int, not a nnhal_backend.v1.Backend, and lacks supports, comp",
    ),
    "no compile": ({"PerOperationBackend": "Backend"}, "BackendFactory failed: TypeError: Can't instantiate abstract"),
    "another id": (
        {'id = "Doubler"': 'id = "Tripler"'},
        "GetBackendId returned 'Doubler', but the backend's id is 'Tripler'",
    ),
    "no id": ({'    id = "Doubler"\n': ""}, "the backend's id is None"),
    "no version": ({'version = "7"': 'version = ""'}, "the backend has no version"),
}


@pytest.mark.parametrize(("changes", "reason"), BROKEN.values(), ids=BROKEN)
def test_faults_are_reported(changes: dict[str, str], reason: str, tmp_path: Path) -> None:
    before = set(sys.modules)
    path = plugin_files.write(tmp_path, "A_B_backend.py", changes)
    with pytest.raises(LoadError) as error:
        load(file_candidate(path))
    assert reason in str(error.value)
    assert not {name for name in set(sys.modules) - before if name.startswith("_nnhal_backend")}


def test_errors_after_the_id_name_the_backend(tmp_path: Path) -> None:
    path = plugin_files.write(tmp_path, "A_B_backend.py", {FACTORY: "pass"})
    with pytest.raises(LoadError) as error:
        load(file_candidate(path))
    assert error.value.id == "Doubler"


def test_older_minor_version_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnhal_driver.backends.plugins.loading._Python.host", (1, 9))
    path = plugin_files.write(tmp_path, "A_B_backend.py", {VERSION: "return (1, 3)"})
    assert load(file_candidate(path)).api_version == (1, 3)


def test_overridden_hooks_are_reported(tmp_path: Path) -> None:
    changes = {"    def workload": "    def capabilities(self):\n        return {'Fast': True}\n\n    def workload"}
    hooks = load(file_candidate(plugin_files.write(tmp_path, "A_B_backend.py", changes))).hooks
    assert hooks["capabilities"] and not hooks["performance"]
    assert "supports" not in hooks


def test_package_modules_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_files.write(tmp_path, "acme_doubler.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert load(Candidate(CandidateKind.PACKAGE, "acme_doubler", "package acme")).backend.id == "Doubler"
    finally:
        sys.modules.pop("acme_doubler", None)
    with pytest.raises(LoadError, match="importing it failed: ModuleNotFoundError: No module named 'acme_tripler'"):
        load(Candidate(CandidateKind.PACKAGE, "acme_tripler", "package acme"))


def test_devices_have_separate_modules(tmp_path: Path) -> None:
    changes = {
        "class Doubler": "RUNS = []\n\nclass Doubler",
        "return lambda call:": "RUNS.append(1)\n        return lambda call:",
    }
    candidate = file_candidate(plugin_files.write(tmp_path, "A_B_backend.py", changes))
    backends = [load(candidate).backend for _ in range(2)]
    modules = [sys.modules[type(backend).__module__] for backend in backends]
    assert modules[0] is not modules[1]
    devices = [Device("test", [backend]) for backend in backends]
    try:
        model = model_of(Op.RELU, [float_tensor([-1.0, 2.0])], [tensor(T.TENSOR_FLOAT32, (2,))], constants=False)
        outcomes = [prepare(model, device) for device in devices]
        for outcome in (*outcomes, outcomes[0]):
            assert execute(outcome, [np.array([-1, 2], np.float32)])[1][0].tolist() == [-2, 4]
        assert [len(module.RUNS) for module in modules] == [1, 1]
    finally:
        for device in devices:
            device.close()


def test_closed_devices_free_their_modules(tmp_path: Path) -> None:
    candidate = file_candidate(plugin_files.write(tmp_path, "A_B_backend.py"))
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
