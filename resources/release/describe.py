"""What a release says of itself besides what its files tell, gathered from the platform's settings and store."""

from collections.abc import Mapping

from resources.engine import Engine
from resources.gates import Gates
from resources.pages.corpus import Corpus
from resources.release.base import ReleaseAbout
from resources.release.local import LocalRelease
from resources.retrieval.comparison import significant_drops
from resources.shards import ShardStore

SCORES = ("retrieval_scores", "all")
"""Asset and shard of the table of retrieval scores: one for the whole corpus."""


def describe(
    release: LocalRelease,
    corpus: Corpus,
    store: ShardStore,
    engines: Mapping[str, Engine],
    gates: Gates,
    profile: str,
) -> ReleaseAbout:
    """`engines` are the ones behind each asset, for rows that do not say what made them."""
    scores = store.read(*SCORES) if store.has(*SCORES) else None
    return ReleaseAbout(
        title=release.title,
        source=corpus.manifest.name,
        profile=profile,
        shards=corpus.manifest.keys,
        made_with={asset: engine.recipe() for asset, engine in engines.items()},
        limits=list(dict.fromkeys(limit for engine in engines.values() for limit in engine.limits)),
        license=release.license,
        publish_under=release.publish_under,
        gates=gates,
        scores=scores,
        drops=[] if scores is None else significant_drops(scores),
    )
