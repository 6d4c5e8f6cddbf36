"""The registry of all assets made shard by shard, in the order of making."""

from dataclasses import dataclass
from functools import cached_property

from kopub.config.settings import Resources
from kopub.tables.asset import ShardAsset
from kopub.tables.document_chunks import DocumentChunks
from kopub.tables.embeddings import CorpusImageEmbeddings, CorpusTextEmbeddings, PassageEmbeddings, QueryEmbeddings
from kopub.tables.figures import FigureEmbeddings, FigureNotes
from kopub.tables.hf_release import HfRelease
from kopub.tables.ocr_and_texts import OcrResults, ParsedTexts
from kopub.tables.pages_and_layout import LayoutRegions, RawPages
from kopub.tables.search_sink import ChunkEmbeddings, SearchSink


@dataclass(frozen=True)
class Graph:
    """Assets in the order of making: each comes after its parents."""

    assets: tuple[type[ShardAsset], ...]

    @cached_property
    def by_name(self) -> dict[str, type[ShardAsset]]:
        return {asset.table.name: asset for asset in self.assets}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.by_name)

    def on(self, resources: Resources) -> "Graph":
        """Return the graph without the assets that these resources switch off."""
        return Graph(tuple(asset for asset in self.assets if asset.off(resources) is None))

    def off(self, resources: Resources) -> dict[str, str]:
        """Return the assets that these resources switch off, with the reason."""
        return {name: why for name, asset in self.by_name.items() if (why := asset.off(resources)) is not None}

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the assets that the asset `name` may be made from."""
        return tuple(parent.table.name for parent in self.by_name[name].parents)

    def declared(self, resources: Resources) -> dict[str, ShardAsset]:
        """Return an instance of every asset with these resources, by name."""
        return {name: asset(resources) for name, asset in self.by_name.items()}


GRAPH = Graph(
    (
        RawPages,
        LayoutRegions,
        OcrResults,
        ParsedTexts,
        DocumentChunks,
        FigureNotes,
        FigureEmbeddings,
        CorpusImageEmbeddings,
        CorpusTextEmbeddings,
        PassageEmbeddings,
        QueryEmbeddings,
        HfRelease,
        ChunkEmbeddings,
        SearchSink,
    )
)
