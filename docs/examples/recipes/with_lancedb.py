"""A corpus in LanceDB: `python with_lancedb.py HOME QUESTION` prints the best passages with page and box."""

import sys

import lancedb

import kopub


def find(home: str, question: str, folder: str = "lancedb") -> list[tuple[str, list[int], str]]:
    corpus = kopub.open(home)
    chunks = [chunk for document in corpus.documents for chunk in document.chunks(max_tokens=256)]
    vectors = corpus.embed([chunk.text_with_headings for chunk in chunks])
    rows = [
        {"vector": vector, "text": chunk.text, "page": chunk.places[0].page_id, "box": list(chunk.places[0].bbox_2d)}
        for chunk, vector in zip(chunks, vectors, strict=True)
    ]
    table = lancedb.connect(folder).create_table("chunks", rows, mode="overwrite")
    asked = corpus.embed([question], queries=True)[0]
    return [(row["page"], row["box"], row["text"]) for row in table.search(asked).limit(3).to_list()]


if __name__ == "__main__":
    for page, box, text in find(*sys.argv[1:]):
        print(page, box, text[:200])
