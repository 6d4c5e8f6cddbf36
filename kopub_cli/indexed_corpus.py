"""What the commands know of the indexed corpus: whose tables are in the store, and the command that makes them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resources.errors import KopubError

if TYPE_CHECKING:
    from resources.config.settings import Settings
    from resources.store.table_source import CorpusCheck

COMMAND = "kopub run"
"""Makes or goes on with every table of the indexed corpus."""


def open_settings() -> "Settings":
    """The settings, when their store answers: object stores that do not would look as if nothing had been made."""
    from resources.config.settings import load_settings
    from resources.store.reachable import require_reachable

    settings = load_settings()
    require_reachable(settings.store.url)
    return settings


def corpus_check(settings: "Settings") -> "CorpusCheck":
    """Tells tables of the indexed corpus from those of another one."""
    from kopub_assets.upgrades.stale_scan import sources_of
    from resources.store.table_source import CorpusCheck

    return CorpusCheck(settings.store, sources_of(settings.resources))


def require_indexed(settings: "Settings", assets: Sequence[str]) -> None:
    """Raise `KopubError` when a table of the corpus's shards was made from another corpus."""
    is_of_corpus = corpus_check(settings).look()
    for asset in assets:
        published = settings.store.published(asset)
        other = [key for key in settings.corpus.manifest.keys if key in published and not is_of_corpus(asset, key)]
        if other:
            more = f" and {len(other) - 1} more shards" if other[1:] else ""
            raise KopubError(
                f"{asset} of {other[0]}{more} was made from another corpus than "
                f"{settings.corpus.manifest.location}: run `{COMMAND}`"
            )
