"""Generates the Python code of the contract: proto/nnhal/**/*.proto -> client/nnhal/**/*_pb2*.py(i).

`python -m tools.dev.generate` writes it. With `--check` it writes nothing, and fails if the committed code is stale.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "client"
PROTO = ROOT / "proto"
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def plugin(name: str) -> str:
    """Return the path of a protoc plugin. The folder of the running interpreter comes first."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        raise SystemExit(f"{name} is not installed: pip install mypy-protobuf")
    return path


def generate(out: Path) -> list[Path]:
    """Write the generated modules below `out`, and return their paths relative to it."""
    sources = sorted(PROTO.glob("nnhal/**/*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{PROTO}", f"-I{well_known}"]
    arguments += [f"--plugin={name}={plugin(name)}" for name in PLUGINS]
    arguments += [f"--{kind}_out={out}" for kind in ("python", "grpc_python")]
    arguments += [f"--{kind}_out=quiet:{out}" for kind in ("mypy", "mypy_grpc")]
    if protoc.main(arguments + [str(path) for path in sources]) != 0:
        raise SystemExit("protoc failed")
    return sorted(_modules(out))


def _modules(root: Path) -> set[Path]:
    """Return the paths of the generated modules below a folder, relative to it."""
    found = (root / "nnhal").glob("**/*_pb2*")
    return {path.relative_to(root) for path in found if path.suffix in {".py", ".pyi"}}


def stale(committed: Path, fresh: Path, names: list[Path]) -> list[Path]:
    """Return the generated modules that are missing, differ, or no longer have a source."""
    present = _modules(committed)
    changed = {
        name for name in names if name in present and (committed / name).read_bytes() != (fresh / name).read_bytes()
    }
    return sorted(changed | (present ^ set(names)))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if the committed code is stale")
    if not parser.parse_args().check:
        print(f"{len(generate(CLIENT))} modules written")
        return
    with tempfile.TemporaryDirectory() as folder:
        names = generate(Path(folder))
        if outdated := stale(CLIENT, Path(folder), names):
            raise SystemExit("stale: " + ", ".join(map(str, outdated)) + "; run `make proto`")
        print(f"{len(names)} generated modules are up to date")


if __name__ == "__main__":
    main()
