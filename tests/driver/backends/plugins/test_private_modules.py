"""Siblings of plug-in files: how they are found, their isolation, and the digest of all files."""

import hashlib
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nnhal_driver.backends.identity import full_fingerprint, full_version
from nnhal_driver.backends.plugins import private_modules
from nnhal_driver.backends.plugins.discovery import Candidate, CandidateKind, file_candidate
from nnhal_driver.backends.plugins.loading import LoadError, load
from nnhal_driver.backends.plugins.private_modules import PrivatePackage
from tests.driver.backends.plugins import plugin_files


@pytest.fixture
def packages() -> Iterator[list[PrivatePackage]]:
    """Return a list of packages, which are removed after the test."""
    created: list[PrivatePackage] = []
    yield created
    for package in created:
        private_modules.remove(package.name)


def _write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files, and return the path of the first."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / next(iter(files))


def _run(path: Path, packages: list[PrivatePackage]) -> PrivatePackage:
    package = PrivatePackage(path)
    packages.append(package)
    package.run()
    return package


IMPORTS = {
    "module": "from acme_common import K",
    "module by name": "import acme_common\nK = acme_common.K",
    "package": "from acme_kernels import K",
    "submodule": "from acme_kernels.relu import K",
    "submodule of a package": "from acme_kernels import relu\nK = relu.K",
    "dotted name": "import acme_kernels.relu\nK = acme_kernels.relu.K",
    "dotted name with alias": "import acme_kernels.relu as relu\nK = relu.K",
    "relative": "from .acme_common import K",
    "relative module": "from . import acme_common\nK = acme_common.K",
    "folder without __init__": "from .plain.values import K",
    "within a function": "def find():\n    from acme_common import K\n    return K\n\nK = find()",
    "module that imports a sibling": "from acme_user import K",
    "import_module, relative": "import importlib\nK = importlib.import_module('.acme_common', __package__).K",
}
SIBLINGS = {
    "acme_common.py": "K = 7",
    "acme_kernels/__init__.py": "from .relu import K",
    "acme_kernels/relu.py": "from acme_common import K",
    "acme_user.py": "import acme_kernels.relu\nK = acme_kernels.relu.K",
    "plain/values.py": "K = 7",
}


@pytest.mark.parametrize("source", IMPORTS.values(), ids=IMPORTS)
def test_plugin_imports_siblings(source: str, tmp_path: Path, packages: list[PrivatePackage]) -> None:
    before = set(sys.modules), list(sys.path)
    package = _run(_write(tmp_path, {"A_B_backend.py": source, **SIBLINGS}), packages)
    assert package.module.K == 7
    new = set(sys.modules) - before[0]
    assert new and all(name.startswith(package.name) for name in new) and sys.path == before[1]
    private_modules.remove(package.name)
    assert not set(sys.modules) - before[0]


def test_siblings_of_the_same_name_do_not_collide(tmp_path: Path, packages: list[PrivatePackage]) -> None:
    sources = [{"A_B_backend.py": "from acme_common import K", "acme_common.py": f"K = {i}"} for i in range(2)]
    files = [_write(tmp_path / str(i), source) for i, source in enumerate(sources)]
    first, second, again = (_run(file, packages).module for file in (*files, files[0]))
    assert (first.K, second.K, again.K) == (0, 1, 0)
    with pytest.raises(ModuleNotFoundError):
        __import__("acme_common")


def test_each_loading_has_siblings_of_its_own(tmp_path: Path, packages: list[PrivatePackage]) -> None:
    path = _write(tmp_path, {"A_B_backend.py": "import acme_common", "acme_common.py": "RUNS = []"})
    first, second = (_run(path, packages).module.acme_common for _ in range(2))
    assert first is not second and first.RUNS is not second.RUNS


def test_sibling_is_imported_late_and_by_other_threads(tmp_path: Path, packages: list[PrivatePackage]) -> None:
    source = "def find():\n    from acme_common import K\n    return K"
    module = _run(_write(tmp_path, {"A_B_backend.py": source, "acme_common.py": "K = 7"}), packages).module
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(module.find()))
    thread.start()
    thread.join()
    assert results == [7]


def test_siblings_do_not_replace_the_standard_library(tmp_path: Path, packages: list[PrivatePackage]) -> None:
    siblings = {"json.py": "K = 1", "nnhal_backend.py": "K = 1", "numpy.py": "K = 1"}
    source = "import json, numpy, nnhal_backend.v1"
    module = _run(_write(tmp_path, {"A_B_backend.py": source, **siblings}), packages).module
    assert module.json is sys.modules["json"] and module.nnhal_backend is sys.modules["nnhal_backend"]
    assert module.numpy.K == 1, "as for a script, siblings precede installed packages"
    assert sys.modules["numpy"] is not module.numpy


def test_missing_sibling_is_reported_by_its_own_name(tmp_path: Path) -> None:
    path = plugin_files.write(
        tmp_path, "A_B_backend.py", {"class Doubler": "from .acme_gone import K\n\nclass Doubler"}
    )
    with pytest.raises(LoadError, match="No module named 'acme_gone'"):
        load(file_candidate(path))
    assert not [name for name in sys.modules if name.startswith(private_modules.PREFIX)]


def test_sibling_that_every_user_can_change_is_refused(tmp_path: Path, packages: list[PrivatePackage]) -> None:
    path = _write(tmp_path, {"A_B_backend.py": "import acme_common", "acme_common.py": ""})
    (tmp_path / "acme_common.py").chmod(0o666)
    with pytest.raises(ImportError, match=r"acme_common\.py can be changed by every user"):
        _run(path, packages)


def _digest(path: Path, packages: list[PrivatePackage]) -> str:
    return _run(path, packages).digest()


def test_digest_of_one_file_is_that_of_the_file(tmp_path: Path, packages: list[PrivatePackage]) -> None:
    path = _write(tmp_path, {"A_B_backend.py": "import numpy", "acme_other.py": "K = 1"})
    assert _digest(path, packages) == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("source", IMPORTS.values(), ids=IMPORTS)
def test_digest_has_the_siblings(source: str, tmp_path: Path, packages: list[PrivatePackage]) -> None:
    """Only those that the plug-in imports count. An edit of the same length within a second is seen, too."""
    path = _write(tmp_path, {"A_B_backend.py": source, **SIBLINGS, "acme_other.py": "K = 1"})
    digest = _digest(path, packages)
    (tmp_path / "acme_other.py").write_text("K = 2")
    assert _digest(path, packages) == digest
    changed = tmp_path / ("plain/values.py" if "plain" in source else "acme_common.py")
    changed.write_text("K = 8")
    package = _run(path, packages)
    assert package.module.K == 8 and package.digest() != digest
    changed.write_text("K = 7")
    assert _digest(path, packages) == digest


def test_digest_has_siblings_that_are_not_loaded_yet(tmp_path: Path, packages: list[PrivatePackage]) -> None:
    sources = {
        "A_B_backend.py": "def late():\n    import acme_user",
        "acme_user.py": "def later():\n    from acme_kernels import relu",
        "acme_kernels/__init__.py": "",
        "acme_kernels/relu.py": "from .. import acme_common",
        "acme_common.py": "K = 7",
        "acme_broken.py": "def",
    }
    path = _write(tmp_path, sources)
    package = _run(path, packages)
    digest = package.digest()
    for name in sources:
        original = (tmp_path / name).read_text()
        (tmp_path / name).write_text(original + "\n# edited")
        assert (_digest(path, packages) == digest) == (name == "acme_broken.py"), name
        (tmp_path / name).write_text(original)
    package.module.late()
    assert package.digest() == digest


def test_digest_does_not_depend_on_the_folder(tmp_path: Path, packages: list[PrivatePackage]) -> None:
    sources = {"A_B_backend.py": "import acme_common", "acme_common.py": "K = 7"}
    first, second = (_digest(_write(tmp_path / name, sources), packages) for name in "ab")
    assert first == second


def test_edited_plugin_has_another_version(tmp_path: Path) -> None:
    versions = []
    for number in (2, 3, 2):
        changes = {"* 2  # wrong on purpose": f"* {number}  # wrong on purpose"}
        backend = load(file_candidate(plugin_files.write(tmp_path, "A_B_backend.py", changes))).backend
        assert backend.version == "7"
        versions.append((full_version(backend), full_fingerprint(backend)))
        digest = hashlib.sha256((tmp_path / "A_B_backend.py").read_bytes()).hexdigest()
        assert versions[-1] == (f"7+{digest[:8]}", digest)
    assert versions[0] == versions[2] != versions[1]


def test_package_is_identified_by_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the entry point, a module that it does not import yet, and no other files."""
    monkeypatch.syspath_prepend(str(tmp_path))
    versions = []
    for edited in (None, "backend.py", "late/kernels.py", "README"):
        for name in ("__init__.py", "late/__init__.py", "late/kernels.py", "README"):
            _write(tmp_path / "acme_npu", {name: ""})
        plugin_files.write(tmp_path / "acme_npu", "backend.py")
        if edited:
            with (tmp_path / "acme_npu" / edited).open("a") as file:
                file.write("# edited")
        for name in [name for name in sys.modules if name.startswith("acme_npu")]:
            del sys.modules[name]
        loaded = load(Candidate(CandidateKind.PACKAGE, "acme_npu.backend", "package acme"))
        versions.append(full_version(loaded.backend))
    for name in [name for name in sys.modules if name.startswith("acme_npu")]:
        del sys.modules[name]
    assert versions[0].startswith("7+")
    assert len(set(versions[:3])) == 3 and versions[3] == versions[0]


def test_package_of_several_distributions_is_not_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer package has no __init__.py, so that others may install packages into it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    _write(tmp_path / "acme_tools" / "npu", {"__init__.py": "", "other.py": ""})
    plugin_files.write(tmp_path / "acme_tools" / "npu", "backend.py")
    backend = load(Candidate(CandidateKind.PACKAGE, "acme_tools.npu.backend", "package acme")).backend
    module = sys.modules["acme_tools.npu.backend"]
    assert private_modules.package_digest(module) == full_fingerprint(backend) != ""
    _write(tmp_path / "acme_tools", {"elsewhere.py": ""})
    assert private_modules.package_digest(module) == full_fingerprint(backend)
    _write(tmp_path / "acme_tools" / "npu", {"other.py": "# edited"})
    assert private_modules.package_digest(module) != full_fingerprint(backend)
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_tools"]:
        del sys.modules[name]
