"""A table of the corpus: the outcomes of the models of each operator, and why some are not NNAPI operations.

The columns: `direct` is one NNAPI operation, `composed` several; `extension` is a region of the LiteRT extension;
`refused` has no import; `not run` are models that LiteRT itself refuses. `unprepared` counts models that a device
refuses, `wrong` those with other results than LiteRT.
"""

import sys
from collections import Counter
from collections.abc import Sequence

from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, cases
from tests.nnhal.tflite.corpus.exceptions import crash
from tests.nnhal.tflite.corpus.result import Result
from tests.nnhal.tflite.corpus.run import run

KINDS = ("direct", "composed", "extension", "refused", "not run", "crashed")
_REASON_WIDTH = 110


def table(results: Sequence[Result]) -> list[str]:
    """Return one line per operator with the counts of each kind, and the totals."""
    counts = {operator: Counter[str]() for operator in sorted({result.operator for result in results})}
    for result in results:
        failures = {"unprepared": result.unprepared, "wrong": result.problems}
        counts[result.operator].update([result.kind, *(name for name, lines in failures.items() if lines)])
    columns = (*KINDS, "unprepared", "wrong")
    lines = [f"{'operator':32}" + "".join(f"{column:>11}" for column in columns)]
    for name, count in (*counts.items(), ("total", sum(counts.values(), Counter[str]()))):
        lines.append(f"{name:32}" + "".join(f"{count[column] or '':>11}" for column in columns))
    return lines


def reasons(results: Sequence[Result]) -> list[str]:
    """Return why models are not NNAPI operations, with counts."""
    count = Counter((result.operator, result.reason[:_REASON_WIDTH]) for result in results if result.refusal)
    return [f"{number:4} {operator}: {reason}" for (operator, reason), number in sorted(count.items())]


def main(operators: Sequence[str]) -> None:
    """Print the table of all operators, or every model of some operators."""
    names = [
        case.name for operator in operators or sorted(GENERATORS) for case in cases(operator) if not crash(case.name)
    ]
    results = run(names)
    for result in sorted(results, key=lambda each: each.name):
        if operators:
            print(f"{result.kind:9} {result.name}  {result.litert or result.reason or ' '.join(result.operations)}")
        for problem in result.problems:
            print(f"WRONG {problem}")
        for problem in result.unprepared:
            print(f"UNPREPARED {problem}")
    print(*([] if operators else reasons(results)), *table(results), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
