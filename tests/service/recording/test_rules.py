"""Rules of recordings and of the shadow: settings, their form as JSON, and what they include."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from nnhal_service.metrics.calls import ModelLabels
from nnhal_service.recording.rules import RULES, ExecutionRules, RecordingRules, ShadowRules
from nnhal_service.settings import Settings

MODEL = ModelLabels("nnhal", bytes.fromhex("ab" * 32), "face/12")


def test_nothing_is_recorded_without_a_folder() -> None:
    assert RecordingRules.of(Settings(record_share=0.5)).share == 0
    assert RecordingRules.of(Settings(record=Path("x"), record_share=0.5)).share == 0.5


def test_rules_are_the_same_as_settings_and_as_json() -> None:
    rules = RecordingRules(0.5, ("token:a",), ("ab",), ("nnhal",), values=False)
    assert RecordingRules.read(json.loads(json.dumps(asdict(rules)))) == rules
    assert RecordingRules.of(Settings(record=Path("x")).model_copy(update=rules.settings)) == rules
    repeated = ShadowRules(0.5, ("token:a",), ("ab",), ("nnhal",))
    assert ShadowRules.read(json.loads(json.dumps(asdict(repeated)))) == repeated
    assert ShadowRules.of(Settings(shadow="CpuRef").model_copy(update=repeated.settings)) == repeated
    assert {kind: rules.kind for kind, rules in RULES.items()} == {"record": "record", "shadow": "shadow"}


def test_names_are_lists_in_settings() -> None:
    settings = Settings.model_validate({"shadow": "CpuRef", "shadow_models": "face, cat/2"})
    assert ShadowRules.of(settings).models == ("face", "cat/2")
    assert ShadowRules.of(Settings(shadow_models=("face",))) == ShadowRules()


@pytest.mark.parametrize(
    ("rules", "included"),
    [
        (RecordingRules(), True),
        (RecordingRules(identities=("token:a", "token:b")), True),
        (RecordingRules(identities=("token:b",)), False),
        (RecordingRules(models=("cd", "abab")), True),
        (RecordingRules(models=("cd",)), False),
        (RecordingRules(models=("face",)), True),
        (ShadowRules(models=("cat", "face/12")), True),
        (ShadowRules(models=("face/1", "fac", "face/", "/12", "12")), False),
        (RecordingRules(devices=("other",)), False),
        (RecordingRules(identities=("token:a",), devices=("nnhal",)), True),
    ],
)
def test_executions_are_included(rules: ExecutionRules, included: bool) -> None:
    assert rules.include("token:a", MODEL) == included


def test_models_without_a_name_are_chosen_by_their_digest() -> None:
    unnamed = MODEL._replace(name="")
    assert not ShadowRules(models=("face",)).include("token:a", unnamed)
    assert ShadowRules(models=("face", "ab")).include("token:a", unnamed)
