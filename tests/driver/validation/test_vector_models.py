"""The models of the test vectors are valid."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from nnhal_driver.validation.model import validate_model
from tests.driver.validation.vector_models import VECTORS, cases, model_of
from tests.shared import shared

_PER_FOLDER = 12
_CASES_PER_FILE = 20


def _sample() -> Iterator[Path]:
    """Yield files spread over each folder, and all files with control flow."""
    for folder in sorted(path for path in VECTORS.glob("*") if path.is_dir()):
        files = sorted(folder.glob("*.jsonl.gz"))
        chosen = files[:: max(1, len(files) // _PER_FOLDER)]
        yield from sorted({*chosen, *folder.glob("if_*"), *folder.glob("while_*"), *folder.glob("*unknown*")})


def test_vectors_are_present() -> None:
    shared("vectors")


@pytest.mark.parametrize("path", list(_sample()), ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_models_of_vectors_are_valid(path: Path) -> None:
    for case in islice(cases(path), _CASES_PER_FILE):
        if not case["expect_failure"]:
            validate_model(model_of(case))
