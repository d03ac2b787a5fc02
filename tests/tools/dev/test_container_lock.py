"""The pinned packages of the container image fit pyproject.toml."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.dev import container_lock

LOCKS = container_lock.requirements()


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.name))
def test_lock_is_fresh(path: Path) -> None:
    """If this fails, run `python -m tools.dev.container_lock --write`."""
    text = path.read_text()
    assert container_lock.digest(LOCKS[path]) in text.splitlines()
    pins = container_lock.pins(text)
    for required in map(Requirement, LOCKS[path]):
        version, _ = pins[canonicalize_name(required.name)]
        assert required.specifier.contains(version), required


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.name))
def test_every_package_is_pinned_with_hashes(path: Path) -> None:
    pins = container_lock.pins(path.read_text())
    assert pins and all(re.fullmatch(r"[\w.]+", version) and count for version, count in pins.values())


def test_another_requirement_makes_another_digest() -> None:
    assert container_lock.digest(["a>=1"]) != container_lock.digest(["a>=2"])
    assert container_lock.digest(["a>=1"]).startswith("# requirements: ")
