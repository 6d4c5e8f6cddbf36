"""Passages from Qdrant: `python with_qdrant.py HOME QUESTION [FOLDER]` prints the best with page and box."""

import sys

from qdrant_client import QdrantClient

import kopub


def find(home: str, question: str, folder: str = "") -> list[tuple[str, list[int], str]]:
    (asked,) = kopub.open(home).embed([question], queries=True)
    client = QdrantClient(path=folder) if folder else QdrantClient(url="http://localhost:6333")
    points = client.query_points("chunks", asked.tolist(), limit=3).points
    client.close()
    payloads = [point.payload or {} for point in points]
    return [(payload["page_id"], payload["bbox_2d"], payload["text"]) for payload in payloads]


if __name__ == "__main__":
    for page, box, text in find(*sys.argv[1:]):
        print(page, box, text[:200])
