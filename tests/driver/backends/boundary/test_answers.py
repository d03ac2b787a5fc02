"""Invalid answers of backends about themselves and about operations: they cost the backend, not the call."""

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.errors import MAX_REASON_BYTES
from nnhal.types import ErrorStatus, Extension, Model, Operand, PerformanceInfo
from nnhal.types import ExtensionOperandTypeInformation as TypeInformation
from nnhal.types import OperandType as T
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Support
from nnhal_driver.backends.boundary.answers import fingerprint, memory_bytes, performance
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.backends.registry import Registration
from nnhal_driver.backends.report import CandidateState
from nnhal_driver.device import Device
from nnhal_driver.preparation.launch import GivenModel
from tests.driver.fake_backend import device_of
from tests.driver.hostile_backend import MODEL, Hostile, Unprintable, raises, returns
from tests.driver.one_operation import prepare


class HostileRepr:
    """Object that cannot be printed or compared."""

    def __repr__(self) -> str:
        raise Unprintable

    def __bool__(self) -> bool:
        raise SystemExit("from __bool__")


def assert_logged(caplog: pytest.LogCaptureFixture, method: str) -> None:
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert any("Hostile" in text and method in text for text in texts), texts


@pytest.mark.parametrize(
    "answer",
    [None, False, True, "no", 0, [], HostileRepr(), Support(None), Support(5), Support("no", 5)],  # type: ignore[arg-type]
    ids=lambda answer: type(answer).__name__,
)
def test_invalid_support_is_no_support(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    with device_of(Hostile({"supports": returns(answer)}), CpuRef()) as device:
        supported, placement = device.get_supported_operations(GivenModel(MODEL))
        (operation,) = placement.operations
        assert (supported, operation.backend) == ([True], "CpuRef")
        assert "asking it failed: backend Hostile: supports returned" in operation.refusals[0].reason
        assert prepare(MODEL, device).status == ErrorStatus.NONE
    assert_logged(caplog, "supports")


def test_reason_fits_a_message() -> None:
    """The contract takes valid Unicode only, and long reasons for many operations would exceed a message."""
    with device_of(Hostile({"supports": returns(Support("no \udcff" + "x" * 10**6, "\udcff" * 10**6))})) as device:
        _, placement = device.get_supported_operations(GivenModel(MODEL))
        (refusal,) = placement.operations[0].refusals
        assert refusal.reason.startswith("no ?x")
        for text in (refusal.reason, refusal.nearest):
            assert len(text.encode()) <= MAX_REASON_BYTES, "encode() raises for invalid Unicode"


@pytest.mark.parametrize(
    "figures",
    [
        (0.0, 1.0),
        (0.0, -1.0),
        (-1.0, 1.0),
        (1.0, 0.0),
        (math.nan, 1.0),
        (1.0, math.inf),
        (10**400, 1),
        ("1", 1.0),
        (None, None),
        (HostileRepr(), 1.0),
    ],
    ids=lambda figures: f"{type(figures[0]).__name__}",
)
def test_invalid_performance_is_that_of_the_cpu(figures: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert performance(Hostile({"performance": returns(PerformanceInfo(*figures))})) == PerformanceInfo(1.0, 1.0)
    assert_logged(caplog, "performance")


def test_device_with_an_invalid_performance_has_capabilities() -> None:
    with device_of(Hostile({"performance": returns(PerformanceInfo(0.0, -1.0))}), CpuRef()) as device:
        figures = device.get_capabilities().operand_performance
    assert figures
    for entry in figures:
        assert entry.info.exec_time == pytest.approx(entry.info.power_usage, rel=0.01), "the default says 1 and 1"


@pytest.mark.parametrize("answer", [None, (1.0, 1.0), HostileRepr()], ids=["None", "tuple", "object"])
def test_performance_of_a_wrong_type(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    assert performance(Hostile({"performance": returns(answer)})) == PerformanceInfo(1.0, 1.0)
    assert_logged(caplog, "performance")


@pytest.mark.parametrize("power", [1e-300, 3e38])
def test_extreme_performance_stays_in_the_range_of_the_contract(power: float) -> None:
    """The contract has float32, in which smaller figures would be 0 and larger ones infinite."""
    with device_of(Hostile({"performance": returns(PerformanceInfo(1e-30, power))}), CpuRef()) as device:
        for entry in device.get_capabilities().operand_performance:
            assert 0 < np.float32(entry.info.power_usage) < math.inf


GOOD = Extension("com.example.good", (TypeInformation(1, True, 4),))

EXTENSIONS: dict[str, object] = {
    "name without a period": Extension("NoDot"),
    "name with capitals": Extension("com.Example"),
    "empty name": Extension(""),
    "empty part": Extension("com..example"),
    "period at the end": Extension("com."),
    "name with a line end": Extension("com.example\n"),
    "name of no type": Extension(5),  # type: ignore[arg-type]
    "no extension": "com.example.bad",
    "None": None,
    "types of no type": Extension("com.example.bad", 7),  # type: ignore[arg-type]
    "type of no type": Extension("com.example.bad", (1,)),  # type: ignore[arg-type]
    "size 0": Extension("com.example.bad", (TypeInformation(1, True, 0),)),
    "negative size": Extension("com.example.bad", (TypeInformation(1, True, -4),)),
    "size of 2 GiB": Extension("com.example.bad", (TypeInformation(1, True, 2**31),)),
    "size of no type": Extension("com.example.bad", (TypeInformation(1, True, "4"),)),  # type: ignore[arg-type]
    "type above 16 bits": Extension("com.example.bad", (TypeInformation(2**16, True, 4),)),
    "negative type": Extension("com.example.bad", (TypeInformation(-1, True, 4),)),
    "is_tensor of no type": Extension("com.example.bad", (TypeInformation(1, 1, 4),)),  # type: ignore[arg-type]
    "type twice": Extension("com.example.bad", (TypeInformation(1, True, 4), TypeInformation(1, False, 4))),
    "the same name twice": Extension("com.example.good"),
    "unprintable": HostileRepr(),
}


@pytest.mark.parametrize("listed", EXTENSIONS.values(), ids=EXTENSIONS)
def test_malformed_extension_is_left_out(listed: object, caplog: pytest.LogCaptureFixture) -> None:
    backend = Hostile({"extensions": returns([GOOD, listed])})
    with device_of(backend, CpuRef()) as device:
        assert device.get_supported_extensions() == (GOOD,)
        b = ModelBuilder()
        b.extension("com.example.good")
        x = b.input(T.TENSOR_FLOAT32, (2,))
        b.output(b.add(b.extension("com.example.bad").operation_type(1), x, output=Operand(T.TENSOR_FLOAT32, (2,))))
        device.get_supported_operations(GivenModel(b.build()))
    assert_logged(caplog, "extensions")


def test_well_formed_extensions_are_listed(caplog: pytest.LogCaptureFixture) -> None:
    names = "com.example", "org.x_y.v2", "a.b.c.d"
    listed = tuple(Extension(name, GOOD.operand_types) for name in names)
    with device_of(Hostile({"extensions": returns(list(listed))})) as device:
        assert sorted(device.get_supported_extensions(), key=lambda item: item.name) == sorted(
            listed, key=lambda item: item.name
        )
    assert not caplog.records


@pytest.mark.parametrize("answer", [None, 5, HostileRepr()], ids=["None", "int", "object"])
def test_extensions_of_a_wrong_type(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    with device_of(Hostile({"extensions": returns(answer)})) as device:
        assert device.get_supported_extensions() == ()
    assert_logged(caplog, "extensions")


def _with_constant(size: int, dimensions: Sequence[int], type_: int) -> Model:
    b = ModelBuilder()
    extension = b.extension(NAME)
    key = b.constant(bytes(size), extension.operand_type(type_))
    x = b.input(T.TENSOR_FLOAT32, (2,))
    operation = extension.operation_type(1)
    b.output(b.add(operation, x, key, output=Operand(T.TENSOR_FLOAT32, (2,))))
    model = b.build()
    operands = [
        Operand(operand.type, tuple(dimensions), lifetime=operand.lifetime, location=operand.location)
        if operand.type >> 16
        else operand
        for operand in model.main.operands
    ]
    return Model(
        type(model.main)(tuple(operands), model.main.operations, model.main.input_indexes, model.main.output_indexes),
        operand_values=model.operand_values,
        extension_name_to_prefix=model.extension_name_to_prefix,
    )


NAME = "com.example.keys"
SCALAR, TENSOR = 1, 2


@pytest.mark.parametrize(
    ("size", "dimensions", "type_", "supported"),
    [
        (64, (), SCALAR, True),
        (25, (), SCALAR, False),
        (128, (), SCALAR, False),
        (16, (4,), TENSOR, True),
        (12, (4,), TENSOR, False),
        (17, (4,), TENSOR, False),
        (24, (3, 2), TENSOR, True),
        (24, (), TENSOR, True),
        (25, (), TENSOR, False),
    ],
)
def test_constant_has_the_size_of_its_type(size: int, dimensions: Sequence[int], type_: int, supported: bool) -> None:
    """An operation with another one is unsupported, instead of failing in the backend."""
    listed = Extension(NAME, (TypeInformation(SCALAR, False, 64), TypeInformation(TENSOR, True, 4)))
    model = _with_constant(size, dimensions, type_)
    with device_of(Hostile({"extensions": returns((listed,))})) as device:
        answers, placement = device.get_supported_operations(GivenModel(model))
        assert answers == [supported]
        outcome = prepare(model, device)
    if supported:
        assert outcome.status == ErrorStatus.NONE
    else:
        assert f"has {size} bytes; expected {list(dimensions)} elements" in placement.operations[0].refusals[0].reason
        assert (outcome.status, f"has {size} bytes" in outcome.reason) == (ErrorStatus.GENERAL_FAILURE, True)


@pytest.mark.parametrize("answer", [None, 5, HostileRepr()], ids=["None", "int", "object"])
def test_unknown_fingerprint_finds_no_cached_model(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    backend = Hostile({"fingerprint": returns(answer)})
    with device_of(backend):
        assert_logged(caplog, "fingerprint")
    assert fingerprint(backend).startswith("unknown ")
    assert fingerprint(Hostile()) == "f"


@pytest.mark.parametrize("name", ["id", "version"])
@pytest.mark.parametrize("text", [None, 5, "", "a\nb", b"x"])
def test_invalid_identity(name: str, text: object) -> None:
    """A device does not begin with such a backend. In a list of backends it fails alone."""
    backend = Hostile()
    vars(backend)[name] = text
    with pytest.raises(ValueError, match=f"its {name} is .*; expected a non-empty, printable string"):
        Device("test", [backend])
    _assert_left_out(backend, f"its {name} is")


@pytest.mark.parametrize(
    "answer",
    [None, 5, {"A": 1}, {"A": "yes"}, {5: True}, ["AB"], HostileRepr()],
    ids=["None", "int", "number", "text", "name", "list", "object"],
)
def test_invalid_capabilities_cost_the_backend(answer: object) -> None:
    _assert_left_out(Hostile({"capabilities": returns(answer)}), "capabilities")


@pytest.mark.parametrize(
    ("answer", "known"),
    [({"driver": "5.0"}, {"driver": "5.0"}), ({"driver": "5.0", "memory": 5, 1: "x"}, {"driver": "5.0"}), (None, {})],
)
def test_hardware_is_reported_as_far_as_it_is_text(answer: object, known: object) -> None:
    backend = Hostile({"hardware": returns(answer)})
    plugins = registry.SearchResult((Registration("Hostile", lambda *_: backend),))
    (report, *_) = registry.assemble(["Hostile"], plugins).reports
    assert report.hardware == known


@pytest.mark.parametrize(("answer", "known"), [(5, 5), (0, 0), (-1, 0), (2**63, 0), ("5", 0), (None, 0)])
def test_memory_is_a_number_of_bytes(answer: object, known: int) -> None:
    assert memory_bytes(Hostile({"memory_bytes": returns(answer)})) == known


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, ValueError])
def test_backend_that_cannot_be_made_is_left_out(error: type[BaseException]) -> None:
    _assert_left_out(Hostile({"capabilities": raises(error)}), "capabilities")


def _assert_left_out(backend: Hostile, reason: str) -> None:
    plugins = registry.SearchResult((Registration("Hostile", lambda *_: backend),))
    assembly = registry.assemble(["Hostile", "CpuRef"], plugins)
    assert [used.id for used in assembly.backends] == ["CpuRef"]
    (report,) = [report for report in assembly.reports if report.id == "Hostile"]
    assert report.state is CandidateState.FAILED
    assert reason in report.reason
