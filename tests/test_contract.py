"""The contract against its last release: `buf breaking` rejects each kind of breaking change, and accepts additions."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROTO = Path(__file__).resolve().parent.parent / "proto"
BUF = Path(sys.executable).parent / "buf"

SMALL = """\
syntax = "proto3";
package nnhal.v1;
service Device {
  rpc Get(Empty) returns (Operand);
  rpc Watch(Empty) returns (stream Operand);
}
message Operand {
  reserved 20 to 21;
  Kind type = 1;
  float scale = 3;
  repeated int32 dimensions = 4;
  oneof data {
    bytes copy = 5;
    bytes pool = 6;
  }
  optional int64 length = 7;
  map<string, bool> notes = 8;
  message Inner {
    reserved 40;
    int32 depth = 1;
    enum Mode {
      MODE_NONE = 0;
    }
  }
  Inner inner = 9;
}
message Empty {}
enum Kind {
  reserved 30, 31;
  KIND_FLOAT32 = 0;
  KIND_INT32 = 1;
}
"""
DIMENSIONS = "  repeated int32 dimensions = 4;\n"
OTHER = 'syntax = "proto3";\npackage nnhal.v1;\nmessage Other {}\n'

BREAKING = {
    "service removed": ("service Device {", "service Gadget {", 'service "Device" was deleted'),
    "method removed": ("  rpc Watch(Empty) returns (stream Operand);\n", "", 'RPC "Watch"'),
    "method input": ("rpc Get(Empty)", "rpc Get(Operand)", 'request type from "nnhal.v1.Empty"'),
    "method output": ("rpc Get(Empty) returns (Operand)", "rpc Get(Empty) returns (Empty)", "response type from"),
    "client streaming": ("rpc Get(Empty)", "rpc Get(stream Empty)", "client streaming"),
    "server streaming": ("returns (stream Operand)", "returns (Operand)", "server streaming"),
    "message renamed": ("Empty", "Nothing", 'message "Empty" was deleted'),
    "nested message renamed": ("Inner", "Outer", 'message "Operand.Inner" was deleted'),
    "field removed": ("  float scale = 3;\n", "", 'field "3" with name "scale"'),
    "field removed and reserved": ("  float scale = 3;\n", "  reserved 3;\n", 'field "3" with name "scale"'),
    "nested field removed": ("    int32 depth = 1;\n", "", 'field "1" with name "depth"'),
    "field renamed": ("float scale", "float factor", 'from "scale" to "factor"'),
    "field number": ("scale = 3", "scale = 13", 'field "3" with name "scale"'),
    "field type": ("float scale", "double scale", 'from "float" to "double"'),
    "field message type": ("  Inner inner", "  Empty inner", 'from "nnhal.v1.Operand.Inner" to "nnhal.v1.Empty"'),
    "cardinality": ("float scale", "repeated float scale", "cardinality"),
    "presence": ("optional int64 length", "int64 length", "cardinality"),
    "field numbers swapped": (
        "bytes copy = 5;\n    bytes pool = 6",
        "bytes copy = 6;\n    bytes pool = 5",
        'to "pool"',
    ),
    "into a oneof": (
        DIMENSIONS + "  oneof data {\n",
        "  oneof data {\n    int32 dimensions = 4;\n",
        "outside to inside a oneof",
    ),
    "out of a oneof": ("    bytes pool = 6;\n  }\n", "  }\n  bytes pool = 6;\n", "inside to outside a oneof"),
    "map value": ("map<string, bool>", "map<string, int32>", 'from "bool" to "int32"'),
    "reserved field number": ("  reserved 20 to 21;\n", "  bool late = 21;\n", "reserved range"),
    "reserved number of a nested message": ("    reserved 40;\n", "    int32 late = 40;\n", "reserved range"),
    "enum renamed": ("Kind ", "Sort ", 'enum "Kind" was deleted'),
    "enum value removed": ("  KIND_INT32 = 1;\n", "", 'value "1"'),
    "enum value renamed": ("KIND_INT32", "KIND_UINT32", 'from "KIND_INT32" to "KIND_UINT32"'),
    "enum number": ("KIND_INT32 = 1", "KIND_INT32 = 2", 'value "1"'),
    "reserved enum number": (
        "  reserved 30, 31;\n  KIND_FLOAT32 = 0;",
        "  KIND_FLOAT32 = 0;\n  KIND_LATE = 31;",
        "reserved range",
    ),
    "package": ("package nnhal.v1;", "package nnhal.v2;", 'package changed from "nnhal.v1"'),
}
"""By kind of change: the text to replace, its replacement, and words of the message that buf must print."""

ADDITIONS = {
    "service": ("message Empty {}", "message Empty {}\nservice Burst {}"),
    "method": ("service Device {", "service Device {\n  rpc Set(Empty) returns (Empty);"),
    "message": ("message Empty {}", "message Empty {}\nmessage Added {}"),
    "field": ("  float scale = 3;", "  float scale = 3;\n  bool added = 2;"),
    "field of a oneof": ("  oneof data {", "  oneof data {\n    bool added = 2;"),
    "field after the reserved ones": ("  float scale = 3;", "  float scale = 3;\n  bool added = 22;"),
    "enum": ("message Empty {}", "message Empty {}\nenum Added {\n  ADDED_NONE = 0;\n}"),
    "enum value": ("  KIND_INT32 = 1;", "  KIND_INT32 = 1;\n  KIND_BOOL = 2;"),
}


def buf(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUF, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the descriptors of a small contract, as a release writes them."""
    root = write_contract(tmp_path_factory.mktemp("released"), SMALL)
    image = root / "v1.binpb"
    built = buf("build", root, "--exclude-source-info", "--as-file-descriptor-set", "-o", image)
    assert built.returncode == 0, built.stderr
    return image


def write_contract(root: Path, small: str, other: str = OTHER) -> Path:
    folder = root / "nnhal" / "v1"
    folder.mkdir(parents=True)
    (folder / "small.proto").write_text(small)
    if other:
        (folder / "other.proto").write_text(other)
    shutil.copy(PROTO / "buf.yaml", root)
    return root


@pytest.mark.parametrize("kind", BREAKING)
def test_breaking_change_is_rejected(kind: str, released: Path, tmp_path: Path) -> None:
    old, new, message = BREAKING[kind]
    assert old in SMALL
    result = buf("breaking", write_contract(tmp_path, SMALL.replace(old, new)), "--against", released)
    assert result.returncode == 100, result.stderr
    assert message in result.stdout


@pytest.mark.parametrize("kind", ADDITIONS)
def test_addition_is_accepted(kind: str, released: Path, tmp_path: Path) -> None:
    old, new = ADDITIONS[kind]
    assert old in SMALL
    result = buf("breaking", write_contract(tmp_path, SMALL.replace(old, new)), "--against", released)
    assert (result.returncode, result.stdout) == (0, "")


def test_unchanged_contract_is_accepted(released: Path, tmp_path: Path) -> None:
    assert buf("breaking", write_contract(tmp_path, SMALL), "--against", released).returncode == 0


def test_removed_file_is_rejected(released: Path, tmp_path: Path) -> None:
    result = buf("breaking", write_contract(tmp_path, SMALL, other=""), "--against", released)
    assert result.returncode == 100 and "other.proto" in result.stdout


def test_changed_syntax_is_rejected(released: Path, tmp_path: Path) -> None:
    result = buf("breaking", write_contract(tmp_path, SMALL, OTHER.replace("proto3", "proto2")), "--against", released)
    assert result.returncode == 100 and "syntax" in result.stdout


def test_moved_message_is_rejected(released: Path, tmp_path: Path) -> None:
    header = OTHER.removesuffix("message Other {}\n")
    moved = write_contract(tmp_path, SMALL + "message Other {}\n", header + "message Another {}\n")
    result = buf("breaking", moved, "--against", released)
    assert result.returncode == 100 and 'message "Other" was deleted from file' in result.stdout


def test_contract_keeps_the_promises_of_its_release() -> None:
    result = buf("breaking", PROTO, "--against", PROTO / "released" / "v1.binpb")
    assert (result.returncode, result.stdout) == (0, "")


def test_contract_passes_the_linter() -> None:
    assert (result := buf("lint", PROTO)).returncode == 0, result.stdout
