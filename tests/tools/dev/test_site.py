"""Pages of the site: links, and the names that its reference describes."""

import re

import pytest
from mkdocs.config.base import load_config
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import nnhal
from tools.dev.site import hooks

CONFIG = load_config(str(hooks.ROOT / "tools/dev/site/mkdocs.yml"))
CONFIG.plugins._current_plugin = "tests"  # mkdocs sets it while it runs a hook
NAMES = ("index.md", "running.md", "contract/buffer.md")


@pytest.fixture(scope="module")
def files() -> Files:
    return hooks.on_files(Files([File.generated(CONFIG, name, content="") for name in NAMES]), config=CONFIG)


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "[a](running.md)", "[a](running.md)"),
        ("index.md", "[a](#part)", "[a](#part)"),
        ("contract/buffer.md", "[a](../running.md#part)", "[a](../running.md#part)"),
        ("contract/buffer.md", "[a](../../ARCHITECTURE.md)", "[a](../ARCHITECTURE.md)"),
        ("ARCHITECTURE.md", "[a](docs/contract/buffer.md)", "[a](contract/buffer.md)"),
        ("ARCHITECTURE.md", "[a](driver/nnhal_driver/device.py)", "a"),
        ("index.md", "[a](../README.md)", "a"),
        ("index.md", "    [a](../README.md)", "    [a](../README.md)"),
    ],
)
def test_link(files: Files, page: str, link: str, expected: str) -> None:
    file = files.get_file_from_path(page)
    assert file is not None
    result = hooks.on_page_markdown(link, page=Page(None, file, CONFIG), config=CONFIG, files=files)
    assert result == expected


def test_reference_describes_each_public_name_once(files: Files) -> None:
    python, backends = (files.get_file_from_path(name) for name in ("python.md", "python-backends.md"))
    assert python is not None and backends is not None
    described = re.findall(r"^::: ([\w.]+)$", f"{python.content_string}\n{backends.content_string}", re.MULTILINE)
    assert {"nnhal.Device", "nnhal.connect", "nnhal.tflite.load", "nnhal_backend.v1.Backend"} <= set(described)
    assert {f"nnhal.{name}" for name in nnhal.__all__} - {
        "nnhal.__version__",
        "nnhal.aio",
        "nnhal.tflite",
        "nnhal.types",
    } <= set(described)
    assert len(described) == len(set(described))
