"""What comes from a page, a source or a server, as a person may see it: text, never markup. Pure."""

import html
import re

from markupsafe import Markup

_SHOWN = 200
"""Characters of a value that are shown; ids and reasons can come from a damaged source."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|~$])")


def one_line(value: object) -> str:
    """`value` on one line of a terminal: no control characters, its end left off when it is long."""
    text = "".join(char if char.isprintable() else " " for char in str(value))
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def markdown(value: object) -> str:
    """`value` as one line of markdown that is read as it stands: no markup, no HTML, no links."""
    if isinstance(value, Markup):
        return value
    # An address would become a link by itself.
    unlinked = html.escape(one_line(value), quote=False).replace("://", "&#58;//").replace("www.", "www&#46;")
    return _MARKDOWN.sub(r"\\\1", unlinked)
