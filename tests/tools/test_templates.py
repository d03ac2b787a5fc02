"""Rendering of HTML pages from templates."""

import json
import re

import pytest
from jinja2 import UndefinedError

from nnhal_tools.templates import render

HOSTILE = "</script><b>&'\"\u2028"


def test_values_are_escaped() -> None:
    page = render("base.html.j2", title=HOSTILE, data=[HOSTILE])
    assert "<b>" not in page and "<title>&lt;/script&gt;" in page
    (data,) = re.findall(r'<script type="application/json" id="data">(.*)</script>', page)
    assert json.loads(data) == [HOSTILE]


def test_missing_variable_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="title"):
        render("base.html.j2", data=[])
