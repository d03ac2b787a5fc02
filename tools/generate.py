"""Makes the Python code of the contract: proto/nnhal/v1/*.proto -> nnhal/v1/*_pb2*.py(i).

`python -m tools.generate` writes it; `--check` fails when what is committed is stale.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def plugin(name: str) -> str:
    """Path of a protoc plugin: beside the running interpreter first, as in a virtual environment not activated."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed: pip install mypy-protobuf")
    return found


def generate(out: Path) -> list[Path]:
    """Writes the generated modules below `out`; returns their paths relative to it."""
    sources = sorted(PROTO.glob("nnhal/v1/*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{PROTO}", f"-I{well_known}"]
    arguments += [f"--plugin={name}={plugin(name)}" for name in PLUGINS]
    arguments += [f"--{kind}_out={out}" for kind in ("python", "grpc_python")]
    arguments += [f"--{kind}_out=quiet:{out}" for kind in ("mypy", "mypy_grpc")]
    if protoc.main(arguments + [str(path) for path in sources]) != 0:
        raise SystemExit("protoc failed")
    return sorted(path.relative_to(out) for path in (out / "nnhal/v1").glob("*_pb2*"))


def stale(committed: Path, fresh: Path, names: list[Path]) -> list[Path]:
    """Generated modules that are missing, differ, or have no source any more."""
    present = {path.relative_to(committed) for path in (committed / "nnhal/v1").glob("*_pb2*")}
    changed = {
        name for name in names if name in present and (committed / name).read_bytes() != (fresh / name).read_bytes()
    }
    return sorted(changed | (present ^ set(names)))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the committed code is stale")
    if not parser.parse_args().check:
        print(f"{len(generate(ROOT))} modules written")
        return
    with tempfile.TemporaryDirectory() as folder:
        names = generate(Path(folder))
        if old := stale(ROOT, Path(folder), names):
            raise SystemExit("stale: " + ", ".join(map(str, old)) + "; run `make proto`")
        print(f"{len(names)} generated modules are fresh")


if __name__ == "__main__":
    main()
