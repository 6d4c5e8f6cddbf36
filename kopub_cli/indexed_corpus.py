"""What the commands know of the indexed corpus: whose tables are in the store, and the command that makes them."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from resources.errors import KopubError
from resources.printable import counted

if TYPE_CHECKING:
    from resources.config.located import Location
    from resources.config.settings import Settings
    from resources.pages.manifest import Manifest
    from resources.store.table_source import CorpusCheck, Source
    from resources.store.table_store import TableStore

COMMAND = "kopub run"
"""Makes or goes on with every table of the indexed corpus."""


def open_settings() -> "Settings":
    """The settings, when their store answers: object stores that do not would look as if nothing had been made."""
    from resources.config.settings import load_settings
    from resources.store.faults import require_reachable

    settings = load_settings()
    require_reachable(settings.store.url)
    return settings


def open_located() -> "Location":
    """The home and its tables, for a command that needs no engine: it starts without loading one, or Dagster."""
    from resources.config.located import locate
    from resources.store.faults import require_reachable

    located = locate(os.environ)
    require_reachable(located.store_url)
    return located


def corpus_check(manifest: "Manifest", store: "TableStore") -> "CorpusCheck":
    """Tells tables of the indexed corpus from those of another one."""
    from resources.pages.corpus_sources import corpus_source
    from resources.store.table_source import CorpusCheck

    def of_other_assets() -> "Source":
        from kopub_assets.upgrades.stale_scan import sources_of
        from resources.config.settings import load_settings

        return sources_of(load_settings().resources)

    return CorpusCheck(store, corpus_source(manifest, of_other_assets))


def require_indexed(settings: "Settings", assets: Sequence[str]) -> None:
    """Raise `KopubError` when a table of the corpus's shards was made from another corpus."""
    is_of_corpus = corpus_check(settings.corpus.manifest, settings.store).look()
    for asset in assets:
        published = settings.store.published(asset)
        other = [key for key in settings.corpus.manifest.keys if key in published and not is_of_corpus(asset, key)]
        if other:
            more = f" and {len(other) - 1} more shards" if other[1:] else ""
            raise KopubError(
                f"{asset} of {other[0]}{more} was made from another corpus than "
                f"{settings.corpus.manifest.location}: run `{COMMAND}`"
            )


def newer_lines(tables: int) -> Iterator[str]:
    """Say of how many tables another machine's code is ahead of this one's."""
    if tables:
        yield f"upgrade this machine: a newer release of KoPub made {counted(tables, 'table')}, which it leaves alone"
