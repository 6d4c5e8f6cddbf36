"""A corpus in LangChain: `python with_langchain.py HOME QUESTION`. The store may be any of LangChain's."""

import sys

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

import kopub


class CorpusEmbeddings(Embeddings):
    def __init__(self, corpus: kopub.Corpus) -> None:
        self.corpus = corpus

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.corpus.embed(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.corpus.embed([text], queries=True)[0].tolist()


def find(home: str, question: str) -> list[tuple[str, list[int], str]]:
    corpus = kopub.open(home)
    chunks = [chunk for document in corpus.documents for chunk in document.chunks(max_tokens=256)]
    places = [{"page": chunk.places[0].page_id, "box": list(chunk.places[0].bbox_2d)} for chunk in chunks]
    documents = [Document(c.text_with_headings, metadata=place) for c, place in zip(chunks, places, strict=True)]
    store = InMemoryVectorStore.from_documents(documents, CorpusEmbeddings(corpus))
    found = store.as_retriever(search_kwargs={"k": 3}).invoke(question)
    return [(hit.metadata["page"], hit.metadata["box"], hit.page_content) for hit in found]


if __name__ == "__main__":
    for page, box, text in find(*sys.argv[1:]):
        print(page, box, text[:200])
