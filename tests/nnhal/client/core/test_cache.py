"""Cache tokens: equal models have equal tokens, and any change makes another."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nnhal.client.core.cache import PreparationSpec, derived_token, model_digest
from nnhal.errors import HalError, SessionLostError
from nnhal.types import Memory, Model
from nnhal.v1 import device_pb2, enums_pb2
from tests.nnhal.changed_models import CHANGES, WEIGHTS, model


def test_equal_models_have_equal_tokens() -> None:
    original, other = model(), model(WEIGHTS.copy())
    other = replace(other, input_names=("x",), output_names=("y",), operation_names=("add",))
    wide = np.concatenate([np.zeros(3, np.uint8), WEIGHTS.view(np.uint8), np.zeros(5, np.uint8)])
    window = replace(other, pools=(Memory.of(wide[3:-5]), other.pools[1]))
    assert model_digest(original) == model_digest(other) == model_digest(window)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_makes_another_digest(change: Callable[[Model], Model]) -> None:
    assert model_digest(change(model())) != model_digest(model())


def test_changed_constants_change_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = WEIGHTS.copy()
    original = model(weights)
    before = model_digest(original)
    monkeypatch.setattr("nnhal.wire.model_message", lambda *_: pytest.fail("the graph was hashed again"))
    assert model_digest(original) == before
    weights[0] += 1
    assert model_digest(original) != before


def test_device_version_preference_and_priority_change_the_token() -> None:
    digest = bytes(32)
    tokens = [
        derived_token(digest, "nnhal", "1.0", 1, 1),
        derived_token(bytes(31) + b"\1", "nnhal", "1.0", 1, 1),
        derived_token(digest, "nnhal1", ".0", 1, 1),
        derived_token(digest, "", "nnhal1.0", 1, 1),
        derived_token(digest, "nnhal", "1.1", 1, 1),
        derived_token(digest, "nnhal", "1.0", 2, 1),
        derived_token(digest, "nnhal", "1.0", 1, 2),
    ]
    assert len(set(tokens)) == len(tokens) and {len(token) for token in tokens} == {32}
    assert derived_token(digest, "nnhal", "1.0", 1, 1) == tokens[0]


def test_given_token_is_used_unchanged() -> None:
    token = bytes(range(32))
    assert PreparationSpec.of(model(), "nnhal", 1, 1, token).token_for("1.0") == token
    for invalid in (b"", bytes(31), bytes(33)):
        with pytest.raises(HalError, match="must have 32"):
            PreparationSpec.of(model(), "nnhal", 1, 1, invalid)


def test_changed_model_is_not_prepared_again() -> None:
    weights = WEIGHTS.copy()
    spec = PreparationSpec.of(model(weights), "nnhal", 1, 1, None)
    spec.check_model_unchanged()
    weights[0] = 1
    with pytest.raises(SessionLostError, match="changed"):
        spec.check_model_unchanged()


def test_other_model_of_a_hit_is_not_used() -> None:
    spec = PreparationSpec.of(model(), "nnhal", 1, 1, None)
    for digest, is_other in ((spec.digest, False), (b"", False), (bytes(32), True)):
        assert spec.is_other_model(device_pb2.Notify(model_digest=digest)) == is_other
    missed = device_pb2.Notify(model_digest=bytes(32), status=enums_pb2.ERROR_STATUS_GENERAL_FAILURE)
    assert not spec.is_other_model(missed)
