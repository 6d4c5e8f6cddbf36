"""What comes from a page, a source or a setting, as text of a card: never markup. Pure."""

import html
import re

from markupsafe import Markup

from resources.printable import visible, without_paths

_SHOWN = 200
"""Characters of a value that are shown; ids and reasons can come from a damaged source."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|~$])")


def markdown(value: object) -> str:
    """`value` as one line of markdown that is read as it stands: no markup, no HTML, no links, no path of a machine."""
    if isinstance(value, Markup):
        return value
    # An address would become a link by itself.
    text = visible(without_paths(str(value)), _SHOWN)
    unlinked = html.escape(text, quote=False).replace("://", "&#58;//").replace("www.", "www&#46;")
    return _MARKDOWN.sub(r"\\\1", unlinked)
