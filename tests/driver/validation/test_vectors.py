"""The models of the test vectors are valid."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from driver.validation.model import validate_model
from tests.driver.validation.vectors import VECTORS, cases, model_of

_PER_FOLDER = 12
_CASES_PER_FILE = 20


def _sample() -> Iterator[Path]:
    """Files spread over each folder, and all with control flow."""
    for folder in sorted(path for path in VECTORS.glob("*") if path.is_dir()):
        files = sorted(folder.glob("*.jsonl.gz"))
        chosen = files[:: max(1, len(files) // _PER_FOLDER)]
        yield from sorted({*chosen, *folder.glob("if_*"), *folder.glob("while_*"), *folder.glob("*unknown*")})


@pytest.mark.skipif(not VECTORS.exists(), reason="the test vectors are not next to the project")
@pytest.mark.parametrize("path", list(_sample()), ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_models_of_vectors_are_valid(path: Path) -> None:
    for case in islice(cases(path), _CASES_PER_FILE):
        if not case["expect_failure"]:
            validate_model(model_of(case))
