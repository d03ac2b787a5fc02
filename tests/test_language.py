"""The tree follows the style guide, and the checker finds what the guide rules out."""

import sys

import pytest

from tests.language import ROOT, files, main, violations


def test_the_tree_follows_the_style_guide() -> None:
    found = [violation for path in files() for violation in violations(path, (ROOT / path).read_text())]
    assert not found, "\n".join(f"{path}:{line}: {text}" for path, line, text in found)


GUIDE_SENTENCES = [
    "What is waited for on the data socket was slept for then.",
    "What is answered to bytes that are no message: an error of ours.",
    "Messages of which only the values differ: what surrounds the values is encoded once.",
    "Requests like one that was found valid: nothing is judged again.",
    "How long a transfer waits for its client: one that stands still is ended, so that it does not keep its thread.",
    "Until when a service process runs: SIGINT, SIGTERM, or the end of the process that it belongs to.",
    "Work that can no longer be done in time never gets a turn, and nobody waits behind it.",
    "What the host does around the code of a backend",
    "'x' is no limit: NAME=VALUE is wanted",
    "nobody answers at X",
    "Executions like those before: inputs go into a message that is encoded but for them.",
    "From so many bytes on memory has a mapping of its own, which goes when it is let go; malloc allows no more.",
    "Is told that a preparation's stream has ended; until then, whoever tells holds the stream.",
]
"""The left column of the guide's table, and sentences of the same kind."""


@pytest.mark.parametrize("sentence", GUIDE_SENTENCES)
def test_sentences_of_the_guide_are_refused(sentence: str) -> None:
    assert violations("a.py", f'def f():\n    """{sentence}"""\n')


@pytest.mark.parametrize(
    "sentence",
    [
        "LRU cache of parsed requests.",
        "Return the handle. There is no default.",
        "Waits for shutdown: SIGINT, SIGTERM, or the exit of the parent process.",
        "Expired work is dropped. It is no longer in the queue.",
    ],
)
def test_plain_sentences_pass(sentence: str) -> None:
    assert violations("a.py", f'def f():\n    """{sentence}"""\n') == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.py", "x = 1\n# Whoever reads this.\n"),
        ("a.py", "raise ValueError(f'{x} is no address')\n"),
        ("a.py", "class Door" + "s: ...\n"),
        ("a.md", "# Title\n\nWhat is kept stays.\n"),
        ("a.md", "A list:\n\n- text that nobody reads\n"),
        ("a.proto", "// Nobody calls it.\n"),
        ("a.sh", "# lets go of it\n"),
    ],
)
def test_every_kind_of_file_is_read(path: str, source: str) -> None:
    assert violations(path, source)


if __name__ == "__main__":
    main(sys.argv[1:])
