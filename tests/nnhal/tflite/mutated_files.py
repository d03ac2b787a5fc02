"""Import of mutated files: `python -m tests.nnhal.tflite.mutated_files SEED FIRST COUNT FOLDER`.

An example depends on SEED and its number only. FOLDER/last.txt has the number of the example that is being imported, so
that it is known after a crash. A hang ends the process by SIGALRM. The last line of the output has the counts.
"""

import json
import random
import re
import signal
import sys
from collections import Counter
from pathlib import Path

from nnhal import tflite
from nnhal.tflite import TfliteError
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, cases
from tests.nnhal.tflite.mutation import mutate

_HANG_S = 60
_PLACE = re.compile(
    r"model: (subgraph \d+: )?((added )?operator |tensor \d+|subgraph \d+|the list of|has |is not a \.tflite file"
    r"|is damaged or truncated: (the root|model|operator \d+|array_)|is truncated: buffer|the file is empty)"
)
"""The beginning of each message: an operator, a tensor, a field, or a property of the whole file."""


def example(seed: int, number: int) -> bytes:
    """Return a mutated file."""
    generator = random.Random(f"{seed} {number}")
    operator = generator.choice(sorted(GENERATORS))
    return mutate(generator.choice(cases(operator)).model(), generator)


def import_files(seed: int, first: int, count: int, folder: Path) -> Counter[str]:
    """Import examples, and return the numbers of imported and refused ones.

    Raises:
        AssertionError: a message does not name a place.
    """
    counts: Counter[str] = Counter()
    for number in range(first, first + count):
        (folder / "last.txt").write_text(str(number))
        data = example(seed, number)
        signal.alarm(_HANG_S)
        try:
            tflite.parse(data)
            counts["imported"] += 1
        except TfliteError as error:
            assert _PLACE.match(str(error)), error
            counts["refused"] += 1
    signal.alarm(0)
    return counts


if __name__ == "__main__":
    print(json.dumps(import_files(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))))
