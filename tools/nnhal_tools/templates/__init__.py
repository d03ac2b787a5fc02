"""HTML pages of the tools: Jinja2 templates with their style sheets and scripts.

Each page is one file that loads nothing from elsewhere. Values are escaped by default.
"""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__name__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals["source"] = _source
    return environment


def _source(name: str) -> Markup:
    """Return the text of a style sheet or script, which is neither escaped nor expanded."""
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def render(template: str, **values: object) -> str:
    """Return a page.

    Args:
        template: the name of a template in this folder, for example `conformance_report.html.j2`.
        values: the variables of the template; `data` is the JSON that the page's script reads.
    """
    return _environment().get_template(template).render(values)
