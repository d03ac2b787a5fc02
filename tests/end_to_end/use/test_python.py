"""Objects, errors and help as Python programmers expect them."""

import asyncio
import copy
import pickle
import pydoc
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnhal
from nnhal.client.core.arrays import Outputs
from nnhal.embedded import EmbeddedService
from nnhal.errors import MissingExtraError
from nnhal.types import UNMEASURED
from nnhal_tools.demo import digits
from tests.end_to_end.support.service_process import Service

X = digits.scale_pixels(digits.load_images()[0][:1])


@pytest.fixture
def model(service: Service) -> Any:
    with nnhal.load(digits.MODEL, service.target) as loaded:
        yield loaded


@pytest.fixture
def objects(model: Any, service: Service) -> dict[str, Any]:
    """Return an object of each kind that belongs to a connection."""
    device = model.owner
    return {
        "device": device,
        "model": model,
        "burst": model.burst(),
        "buffer": device.allocate(inputs=[(model, 0)]),
        "fence": device.fence(),
        "preparation": device.prepare(digits.MODEL),
        "reusable": model.reusable([X]),
        "fenced": model.execute_fenced([X]),
        "fleet": nnhal.Fleet(service.target),
        "connecting": nnhal.aio.connect(service.target),
    }


def test_objects_of_a_connection_say_how_to_use_processes(objects: dict[str, Any]) -> None:
    for value in objects.values():
        for method in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(
                TypeError, match=rf"{type(value).__name__} objects .* connect and prepare in each process"
            ):
                method(value)


def test_values_can_be_pickled(model: Any) -> None:
    outputs = pickle.loads(pickle.dumps(model(X)))
    assert outputs["probabilities"].argmax() == 4 and outputs.timing == UNMEASURED
    assert pickle.loads(pickle.dumps(model.inputs)) == model.inputs
    for error in (nnhal.errors.argument_error("wrong"), nnhal.HalError(3, "broken", rule="V-RUN-01", request="7")):
        other = pickle.loads(pickle.dumps(error))
        assert type(other) is type(error) and vars(other) == vars(error) and str(other) == str(error)


def test_reprs_are_short_and_have_no_addresses(objects: dict[str, Any], model: Any) -> None:
    objects["preparation"].result()
    texts = [repr(value) for value in (*objects.values(), model.placement, model.cache, UNMEASURED)]
    for text in texts:
        assert len(text) < 150 and "0x" not in text
    assert "<nnhal.OwnFence open>" in texts and "<nnhal.Preparation done>" in texts
    assert "<nnhal.Placement: 5 operations: 5 on CpuAcc>" in texts
    assert texts[-2:] == ["CacheOutcome(not requested)", "Timing(not measured)"]
    objects["burst"].close()
    objects["reusable"].close()
    assert repr(objects["reusable"]) == "<nnhal.Execution closed>"


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda model: model(X[:, :7]), ValueError, "has shape [1, 7, 8, 1]"),
        (lambda model: model(np.repeat(X, 8, 0)), ValueError, "for another batch, prepare the model with shapes="),
        (lambda model: model(X.astype(np.float64)), TypeError, "input 0 (image) is float64"),
        (lambda model: model(picture=X), ValueError, "no input is named 'picture'"),
        (lambda model: model(None), ValueError, "has no value: input 0 was omitted"),
        (lambda model: model.owner.prepare(digits.MODEL, priority="urgent"), ValueError, "unknown Priority 'urgent'"),
        (lambda model: model.owner.prepare(digits.MODEL, priority=99).result(), ValueError, "the priority is 99"),
        (lambda model: model.owner.allocate(inputs=[(model, 7)]), ValueError, "there is no input 7"),
        (lambda _: nnhal.connect("nowhere"), ValueError, "nowhere"),
        (lambda _: nnhal.aio.connect("localhost:1", transport="pigeon"), ValueError, "pigeon"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_also_errors_of_python(
    call: Callable[[Any], object], kind: type[Exception], words: str, model: Any
) -> None:
    with pytest.raises(kind, match=re.escape(words)) as caught:
        call(model)
    assert isinstance(caught.value, nnhal.HalError)


def test_asyncio_device_must_be_awaited() -> None:
    connecting = nnhal.aio.connect("localhost:1")
    with pytest.raises(AttributeError, match="no attribute 'prepare'; await it to get the device"):
        _ = connecting.prepare
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = connecting.nothing


def test_missing_extra_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "nnhal: this command needs more packages: pip install 'nnhal[server]'\n"
    monkeypatch.setattr("nnhal.embedded._read_first_line", lambda _: "")
    monkeypatch.setattr("nnhal.embedded._read_last_line", lambda _: text)
    for kind in (ImportError, nnhal.DeadObjectError, MissingExtraError):
        with pytest.raises(kind, match=r"pip install 'nnhal\[server\]'"):
            EmbeddedService()


def test_outputs_are_a_sequence_and_a_mapping() -> None:
    outputs = Outputs.of([np.zeros(2), np.ones(3)], ("zeros", "ones"), UNMEASURED)
    zeros, ones = outputs
    assert outputs[1] is outputs["ones"] is outputs[-1] is ones and len(outputs) == 2 and outputs[:1] == (zeros,)
    assert dict(outputs)["zeros"] is zeros and dict(outputs.items()).keys() == {"zeros", "ones"}
    assert "ones" in outputs and "twos" not in outputs
    with pytest.raises(KeyError, match="there is no output 'twos'; there are zeros, ones"):
        outputs["twos"]
    with pytest.raises(IndexError, match="there is no output 2; there are 2"):
        outputs[len(outputs)]


def test_help_begins_with_an_example_and_stays_short() -> None:
    text = pydoc.plain(pydoc.render_doc(nnhal))
    assert text.index("with nnhal.load(") < 700
    for method in (nnhal.PreparedModel.execute, nnhal.PreparedModel.reusable, nnhal.aio.PreparedModel.execute):
        assert len(pydoc.plain(pydoc.render_doc(method)).splitlines()[2]) < 400


def test_models_have_inputs_and_outputs_before_they_are_prepared() -> None:
    model = nnhal.tflite.load(digits.MODEL)
    assert [operand.dimensions for operand in (*model.inputs, *model.outputs)] == [(1, 8, 8, 1), (1, 10)]


def test_calls_of_both_clients_have_the_same_form(service: Service) -> None:
    async def call() -> Any:
        async with await nnhal.aio.load(digits.MODEL, service.target) as model:
            return (await model(X)).items()

    ((name, probabilities),) = asyncio.run(call())
    assert (name, probabilities.argmax()) == ("probabilities", 4)
