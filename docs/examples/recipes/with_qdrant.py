"""A corpus in Qdrant, without a server: `python with_qdrant.py HOME QUESTION`."""

import sys

from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams

import kopub


def find(home: str, question: str, folder: str = "qdrant") -> list[tuple[str, list[int], str]]:
    corpus = kopub.open(home)
    chunks = [chunk for document in corpus.documents for chunk in document.chunks(max_tokens=256)]
    vectors = corpus.embed([chunk.text_with_headings for chunk in chunks])
    client = QdrantClient(path=folder)  # or url="http://..."
    size = VectorParams(size=vectors.shape[1], distance=Distance.DOT)
    client.delete_collection("chunks")
    client.create_collection("chunks", size)
    payloads = [{"text": c.text, "page": c.places[0].page_id, "box": list(c.places[0].bbox_2d)} for c in chunks]
    points = [PointStruct(id=at, vector=v.tolist(), payload=payloads[at]) for at, v in enumerate(vectors)]
    client.upload_points("chunks", points, wait=True)
    asked = corpus.embed([question], queries=True)[0].tolist()
    found = [point.payload or {} for point in client.query_points("chunks", asked, limit=3).points]
    client.close()
    return [(payload["page"], payload["box"], payload["text"]) for payload in found]


if __name__ == "__main__":
    for page, box, text in find(*sys.argv[1:]):
        print(page, box, text[:200])
