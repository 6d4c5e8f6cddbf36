"""A corpus in LlamaIndex: `python with_llamaindex.py HOME QUESTION`. The store may be any of LlamaIndex's."""

import sys

from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import QueryBundle, TextNode

import kopub


def find(home: str, question: str) -> list[tuple[str, list[int], str]]:
    corpus = kopub.open(home)
    chunks = [chunk for document in corpus.documents for chunk in document.chunks(max_tokens=256)]
    vectors = corpus.embed([chunk.text_with_headings for chunk in chunks])
    nodes = [
        TextNode(
            text=chunk.text,
            embedding=vector.tolist(),
            metadata={"page": chunk.places[0].page_id, "box": list(chunk.places[0].bbox_2d)},
        )
        for chunk, vector in zip(chunks, vectors, strict=True)
    ]
    # Every vector is given, so the model that it would make others with is never asked.
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=vectors.shape[1]))
    asked = QueryBundle(question, embedding=corpus.embed([question], queries=True)[0].tolist())
    found = index.as_retriever(similarity_top_k=3).retrieve(asked)
    return [(hit.metadata["page"], hit.metadata["box"], hit.text) for hit in found]


if __name__ == "__main__":
    for page, box, text in find(*sys.argv[1:]):
        print(page, box, text[:200])
