"""Rules of recording: settings, their form as JSON, and what they include."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from nnhal_service.recording.rules import RecordingRules
from nnhal_service.settings import Settings

DIGEST = bytes.fromhex("ab" * 32)


def test_nothing_is_recorded_without_a_folder() -> None:
    assert RecordingRules.of(Settings(record_share=0.5)).share == 0
    assert RecordingRules.of(Settings(record=Path("x"), record_share=0.5)).share == 0.5


def test_rules_are_the_same_as_settings_and_as_json() -> None:
    rules = RecordingRules(0.5, ("token:a",), ("ab",), ("nnhal",), values=False)
    assert RecordingRules.read(json.loads(json.dumps(asdict(rules)))) == rules
    assert RecordingRules.of(Settings(record=Path("x")).model_copy(update=rules.settings)) == rules


@pytest.mark.parametrize(
    ("rules", "included"),
    [
        (RecordingRules(), True),
        (RecordingRules(identities=("token:a", "token:b")), True),
        (RecordingRules(identities=("token:b",)), False),
        (RecordingRules(models=("cd", "abab")), True),
        (RecordingRules(models=("cd",)), False),
        (RecordingRules(devices=("other",)), False),
        (RecordingRules(identities=("token:a",), devices=("nnhal",)), True),
    ],
)
def test_executions_are_included(rules: RecordingRules, included: bool) -> None:
    assert rules.include("token:a", DIGEST, "nnhal") == included
