"""Build of C libraries with the system's C compiler, for the Python environment that builds them.

One is `libneuralnetworks.so`. Others share its runtime, which hosts Python.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")
# nodelete: the interpreter cannot be unloaded with the library
_LINK_FLAGS = ("-Wl,-z,nodelete", "-Wl,-z,relro,-z,now", "-ldl", "-lpthread")


class BuildError(Exception):
    """The library cannot be built."""


def native_folder(package: str = "nnhal_ndk") -> Path:
    """Return the folder of the C sources of a package; the header of NNAPI is in `include`."""
    with as_file(files(package).joinpath("native")) as folder:
        return folder


@dataclass(frozen=True)
class NativeLibrary:
    """A library: its file name, the package that it calls, and its source besides the runtime."""

    name: str
    package: str
    source: str

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders of its sources: its own and that of the runtime."""
        return tuple(dict.fromkeys((native_folder(self.package), native_folder())))


NDK = NativeLibrary("libneuralnetworks.so", "nnhal_ndk", "entry_points.c")


def include_folder() -> Path:
    """Return the folder for `cc -I`, so that programs include <android/NeuralNetworks.h> or <NeuralNetworks.h>."""
    return native_folder() / "include"


def python_library() -> Path | None:
    """Return the shared library of this Python, or None if it has none: then only Python programs can use nnhal."""
    variables = (sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY"))
    names = [name for name in variables if name and ".so" in name]
    folders = [sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix) / "lib"]
    candidates = (Path(folder) / name for folder in folders if folder for name in names)
    return next((path for path in candidates if path.is_file()), None)


def default_folder(library: NativeLibrary = NDK) -> Path:
    """Return the folder of the library that this environment uses, below the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nnhal" / library.package.removeprefix("nnhal_") / _fingerprint(library)


def _fingerprint(library: NativeLibrary) -> str:
    """Return a name that changes with everything that the library depends on."""
    digest = hashlib.sha256(repr(_definitions()).encode())
    for path in sorted(path for folder in library.folders for path in folder.rglob("*.[ch]")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _definitions() -> dict[str, str]:
    # import paths for programs in an interpreter without nnhal: those of this package and its requirements
    paths = [
        str(Path(__file__).resolve().parents[1]),
        *dict.fromkeys(sysconfig.get_paths()[key] for key in ("purelib", "platlib")),
    ]
    return {
        "NNHAL_PYTHON_LIBRARY": str(python_library() or ""),
        "NNHAL_PYTHON_PROGRAM": sys.executable,
        "NNHAL_PYTHON_PATHS": ":".join(paths),
        "NNHAL_PYTHON_VERSION": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def build(folder: Path | None = None, *, library: NativeLibrary = NDK, flags: tuple[str, ...] = ()) -> Path:
    """Compile a library and return its path.

    Args:
        folder: where to put it; by default the folder of this environment.
        library: the library.
        flags: further options of the compiler, for example `-fsanitize=thread`.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    target = folder or default_folder(library)
    target.mkdir(parents=True, exist_ok=True)
    own, runtime = native_folder(library.package), native_folder()
    definitions = [f'-D{name}="{value}"' for name, value in _definitions().items()]
    inputs = [f"-I{runtime}", f"-I{runtime / 'include'}", str(runtime / "runtime.c"), str(own / library.source)]
    with tempfile.TemporaryDirectory(dir=target) as temporary:
        output = Path(temporary) / library.name
        link = ["-o", str(output), f"-Wl,-soname,{library.name}", *_LINK_FLAGS]
        _compile([_compiler(), *_FLAGS, *flags, *definitions, *inputs, *link])
        output.replace(target / library.name)  # atomic, so that another process never loads a half of it
    return target / library.name


def find_or_build(library: NativeLibrary = NDK) -> Path:
    """Return a library of this environment, and build it if there is none yet.

    Raises:
        BuildError: see `build`.
    """
    path = default_folder(library) / library.name
    return path if path.is_file() else build(library=library)


def run_check() -> str:
    """Compile `native/check.c` and run it with the library. Return what it prints.

    Raises:
        BuildError: it cannot be compiled, or it fails.
    """
    library = find_or_build()
    with tempfile.TemporaryDirectory() as temporary:
        program = Path(temporary) / "check"
        source = native_folder() / "check.c"
        link = [f"-L{library.parent}", f"-Wl,-rpath,{library.parent}", "-lneuralnetworks"]
        _compile([_compiler(), "-std=c11", f"-I{include_folder()}", str(source), "-o", str(program), *link])
        done = subprocess.run([program], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"the check failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}".strip())
    return done.stdout


def _compiler() -> str:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise BuildError("there is no C compiler: install gcc or clang, or name one in the variable CC")
    return compiler


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{command[0]} failed:\n{done.stderr.strip()}")
