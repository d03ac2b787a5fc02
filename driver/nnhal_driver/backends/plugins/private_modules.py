"""Modules of a plug-in file: the file and the siblings that it imports, apart from all other modules.

A plug-in file may import modules and packages of its folder by name. Each loading of the file has its own copies, as
submodules of a package that no other code imports. sys.path stays as it is, so plug-ins of several folders may have
siblings of the same name.
"""

import ast
import builtins
import hashlib
import importlib.util
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from nnhal_driver.backends.plugins.discovery import writable_by_all

PREFIX = "_nnhal_backend_"
"""Start of the names of private packages; a number follows."""

_NUMBERS = itertools.count()
_PACKAGES: "dict[str, PrivatePackage]" = {}
_SUFFIXES = (".py", *EXTENSION_SUFFIXES)


class PrivatePackage:
    """Package of one loading of a plug-in file. It is in sys.modules until `remove` is called.

    Attributes:
        module: the module of the file. `run` executes it.
    """

    def __init__(self, path: Path) -> None:
        self.name = f"{PREFIX}{next(_NUMBERS)}"
        self._digest = FilesDigest(path.parent)
        self._siblings: dict[str, bool] = {}
        self.builtins = {**vars(builtins), "__import__": self._import}
        package = ModuleType(self.name)
        package.__path__ = [str(path.parent)]
        name = f"{self.name}.{path.stem.replace('.', '_')}"
        spec = self.spec(name, path)
        assert spec is not None
        self.module = importlib.util.module_from_spec(spec)
        sys.modules |= {self.name: package, name: self.module}
        _PACKAGES[self.name] = self
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)

    def run(self) -> None:
        """Execute the file. Exceptions of the plug-in propagate."""
        spec = self.module.__spec__
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(self.module)

    def digest(self) -> str:
        """Return the digest of the file and of the siblings that it imports."""
        return self._digest.hexdigest()

    def spec(self, name: str, path: Path) -> ModuleSpec | None:
        """Return the specification of a private module from its file."""
        locations = [str(path.parent)] if path.name == "__init__.py" else None
        loader = _PrivateLoader(name, str(path), self) if path.suffix == ".py" else ExtensionFileLoader(name, str(path))
        return importlib.util.spec_from_file_location(name, path, loader=loader, submodule_search_locations=locations)

    def read(self, path: Path) -> bytes:
        """Return the contents of a file of the plug-in, as part of the digest.

        Raises:
            ImportError: every user can change the file.
        """
        if fault := writable_by_all(path):
            raise ImportError(f"{path} {fault}")
        data = path.read_bytes()
        self._digest.add(path, data)
        return data

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module for an import statement of the plug-in."""
        top = name.partition(".")[0]
        if level or not self._is_sibling(top):
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = builtins.__import__(f"{self.name}.{name}", globals, locals, fromlist, 0)
        return module if fromlist else sys.modules[f"{self.name}.{top}"]

    def _is_sibling(self, name: str) -> bool:
        if name not in self._siblings:
            self._siblings[name] = self._digest.sibling_file((name,)) is not None
        return self._siblings[name]


def remove(name: str) -> None:
    """Remove a private package and its modules from sys.modules."""
    _PACKAGES.pop(name, None)
    for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
        sys.modules.pop(module, None)


class FilesDigest:
    """Digest of Python files in a folder: those that were loaded, and those that their import statements name.

    Statements within functions count too, although they may not have run yet: the digest must not change later.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[Path, str] = {}
        self._imported: set[Path] = set()

    def add(self, path: Path, data: bytes) -> None:
        """Add a file."""
        self._digests[path] = hashlib.sha256(data).hexdigest()
        if path.suffix == ".py":
            self._imported.update(self._imported_files(path, data))

    def hexdigest(self) -> str:
        """Return the digest: that of the file itself if there is only one."""
        while pending := self._imported - self._digests.keys():
            for path in pending:
                self.add(path, path.read_bytes())
        if len(self._digests) == 1:
            return next(iter(self._digests.values()))
        return _combine(self._folder, self._digests)

    def sibling_file(self, parts: Sequence[str]) -> Path | None:
        """Return the file of a module that an absolute import names; None unless it is in the folder.

        The standard library and nnhal cannot be replaced by a sibling.
        """
        is_reserved = parts[0] in sys.stdlib_module_names or parts[0].startswith("nnhal")
        return None if is_reserved else module_file(self._folder, parts)

    def _imported_files(self, path: Path, data: bytes) -> Iterator[Path]:
        for is_absolute, parts in _imported_names(data, path.relative_to(self._folder).parts[:-1]):
            for end in range(1, len(parts) + 1):
                part = parts[:end]
                if file := self.sibling_file(part) if is_absolute else module_file(self._folder, part):
                    yield file


def module_file(folder: Path, parts: Sequence[str]) -> Path | None:
    """Return the file of a module in a folder, by the parts of its dotted name; None if there is none."""
    path = folder.joinpath(*parts)
    files = (path / "__init__.py", *(path.with_name(path.name + suffix) for suffix in _SUFFIXES))
    return next((file for file in files if file.is_file()), None)


def _imported_names(source: bytes, package: tuple[str, ...]) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """Yield the modules that a source may import: whether absolutely, and the parts of the name from the folder on.

    Names of objects in modules are among them. An invalid source has none.
    """
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((True, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            base = (*start, *(node.module.split(".") if node.module else ()))
            yield from ((not node.level, (*base, alias.name)) for alias in node.names)


def package_digest(module: ModuleType) -> str:
    """Return the digest of the outermost package of an imported module, or of the module; "" without files."""
    parts = module.__name__.split(".")
    modules = (sys.modules.get(".".join(parts[: end + 1])) for end in range(len(parts)))
    # packages without __init__.py may be shared by several distributions
    path = next(filter(None, (getattr(item, "__file__", None) for item in modules)), None)
    file = Path(path) if path else None
    if file is None or not file.is_file():
        return ""
    if file.name != "__init__.py":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    files = (path for path in file.parent.rglob("*") if path.name.endswith(_SUFFIXES) and path.is_file())
    return _combine(file.parent, {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})


def _combine(folder: Path, digests: Mapping[Path, str]) -> str:
    lines = sorted(f"{path.relative_to(folder)}={digest}" for path, digest in digests.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class _PrivateLoader(SourceFileLoader):
    """Loader of a private module. It writes no bytecode, so that the digest is that of the code that runs."""

    def __init__(self, name: str, path: str, package: PrivatePackage) -> None:
        super().__init__(name, path)
        self._package = package

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self._package.read(Path(self.path)), self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._package.builtins  # import statements call its __import__
        super().exec_module(module)


class _PrivateFinder(MetaPathFinder):
    """Finder of the modules in private packages."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = _PACKAGES.get(fullname.partition(".")[0])
        if package is None or path is None:
            return None
        file = next(filter(None, (module_file(Path(folder), [fullname.rpartition(".")[2]]) for folder in path)), None)
        if file is None:
            return None
        if file.suffix != ".py":
            package.read(file)
        return package.spec(fullname, file)


_FINDER = _PrivateFinder()
