"""Documents that are generated from the code: `python -m tools.dev.documents --write` writes them.

With `--check` it writes nothing, and fails if one is stale. `NAME ...` selects documents, for example `settings`. Each
name is a module of this package, whose `generate()` returns the documents.
"""

import argparse
from importlib import import_module
from pkgutil import iter_modules

import tools.dev.documents
from tools.dev.documents.markdown import COMMAND, Documents, stale, write

HELPERS = ("__main__", "error_message", "markdown")
NAMES = [module.name for module in iter_modules(tools.dev.documents.__path__) if module.name not in HELPERS]


def generate(name: str) -> Documents:
    """Return the documents of a module of this package."""
    documents: Documents = import_module(f"tools.dev.documents.{name}").generate()
    return documents


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write the documents")
    mode.add_argument("--check", action="store_true", help="write nothing, and fail if a document is stale")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; by default all")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"unknown documents: {', '.join(sorted(unknown))}")
    for name in arguments.names or NAMES:
        documents = generate(name)
        if arguments.write:
            write(documents)
        elif outdated := stale(documents):
            raise SystemExit(f"stale: {', '.join(map(str, outdated))}; run `{COMMAND} {name}`")
        print(f"{name} is up to date")


if __name__ == "__main__":
    main()
