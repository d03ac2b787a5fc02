"""`python -m tests.weight` prints the lines of logic of each package and its budget.

With `--write`, it first makes the budgets in docs/weight.md those of today.
"""

import argparse

from tests.weight.budgets import DOCUMENT, Budget, count_packages, read_budgets, render


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the budgets those of today")
    write, counts = parser.parse_args().write, count_packages()
    if write:
        DOCUMENT.write_text(render(counts, read_budgets(), DOCUMENT.read_text("utf-8")), encoding="utf-8")
    budgets = read_budgets()
    for package, count in counts.items():
        print(f"{package:44} {count:7,} of {budgets.get(package, Budget('', 0)).lines:7,}")


if __name__ == "__main__":
    main()
