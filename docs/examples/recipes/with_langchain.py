"""A retriever of LangChain on the chunks in LanceDB: `python with_langchain.py HOME QUESTION`."""

import sys
from pathlib import Path
from typing import Any

import lancedb
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

import kopub


class CorpusRetriever(BaseRetriever):
    corpus: Any
    table: Any
    k: int = 3

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        (asked,) = self.corpus.embed([query], queries=True)
        rows = self.table.search(asked).limit(self.k).to_list()
        return [Document(row["text"], metadata={"page": row["page_id"], "box": row["bbox_2d"]}) for row in rows]


def find(home: str, question: str) -> list[tuple[str, list[int], str]]:
    table = lancedb.connect(Path(home, "lancedb")).open_table("chunks")
    found = CorpusRetriever(corpus=kopub.open(home), table=table).invoke(question)
    return [(hit.metadata["page"], hit.metadata["box"], hit.page_content) for hit in found]


if __name__ == "__main__":
    for page, box, text in find(*sys.argv[1:]):
        print(page, box, text[:200])
