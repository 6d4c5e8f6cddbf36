"""A retriever of LlamaIndex on the chunks in LanceDB: `python with_llamaindex.py HOME QUESTION`."""

import sys
from pathlib import Path

import lancedb
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

import kopub


class ChunkRetriever(BaseRetriever):
    def __init__(self, home: str, k: int = 3) -> None:
        super().__init__()
        self._corpus, self._k = kopub.open(home), k
        self._table = lancedb.connect(Path(home, "lancedb")).open_table("chunks")

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        (asked,) = self._corpus.embed([query_bundle.query_str], queries=True)
        rows = self._table.search(asked).limit(self._k).to_list()
        places = [{"page": row["page_id"], "box": row["bbox_2d"]} for row in rows]
        nodes = [TextNode(text=row["text"], metadata=place) for row, place in zip(rows, places, strict=True)]
        # The squared distance of vectors of norm 1, as the cosine of their angle.
        cosines = [1 - row["_distance"] / 2 for row in rows]
        return [NodeWithScore(node=node, score=cosine) for node, cosine in zip(nodes, cosines, strict=True)]


def find(home: str, question: str) -> list[tuple[str, list[int], str]]:
    found = ChunkRetriever(home).retrieve(question)
    return [(hit.metadata["page"], hit.metadata["box"], hit.text) for hit in found]


if __name__ == "__main__":
    for page, box, text in find(*sys.argv[1:]):
        print(page, box, text[:200])
