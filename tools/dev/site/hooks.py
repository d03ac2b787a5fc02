"""Hooks of mkdocs: pages from outside of `docs`, reference pages from the public names, and links to sources.

A link from a page to a file that is not a page becomes its text, so that the site is complete without the repository.
"""

import importlib
import inspect
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[3]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
"""Documents of the top-level folder that are pages."""
_REFERENCES = {
    "python.md": ("Python", ("nnhal", "nnhal.tflite", "nnhal.litert"), "`nnhal.aio` has the same names for asyncio."),
    "python-backends.md": ("Python for backends", ("nnhal_backend.v1",), "What a backend imports."),
}
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s:]+)\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside of `docs`, and those of the Python reference."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    described: list[object] = []
    for name, (title, modules, text) in _REFERENCES.items():
        entries = [f"::: {entry}" for module in modules for entry in _public_names(module, described)]
        content = "\n\n".join([f"# {title}", text, *entries])
        files.append(File.generated(config, name, content=content))
    return files


def _public_names(module: str, described: list[object]) -> Iterator[str]:
    """Yield the dotted names that a module exports, except modules and what is described already."""
    imported = importlib.import_module(module)
    for name in imported.__all__:
        value = getattr(imported, name)
        if not name.startswith("_") and not inspect.ismodule(value) and not any(value is other for other in described):
            described.append(value)
            yield f"{module}.{name}"


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site, and replace those to other files by their text."""
    here = posixpath.dirname(page.file.src_uri)
    folder = "" if page.file.src_uri in PAGES else "docs"

    def resolve(match: re.Match[str]) -> str:
        text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path:
            return match[0]
        uri = posixpath.normpath(posixpath.join(folder, here, path))
        uri = uri.removeprefix("docs/") if uri.startswith("docs/") or uri in PAGES else f"../{uri}"
        if files.get_file_from_path(uri) is None:
            return text
        relative = posixpath.relpath(uri, here or ".")
        return f"[{text}]({relative}{'#' if anchor else ''}{anchor})"

    lines, fenced = [], False
    for line in markdown.splitlines():
        fenced ^= line.lstrip().startswith("```")
        lines.append(line if fenced or line.startswith("    ") else _LINK.sub(resolve, line))
    return "\n".join(lines)
