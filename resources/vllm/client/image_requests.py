"""JSON requests that carry an image. Pure.

The text around the image is encoded once and reused: JSON never scans megabytes of base64.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

_IMAGE = "\0"
"""Stands for the image while the rest is encoded; no prompt holds it."""

Frame = tuple[bytes, bytes]
"""A request before and after its image."""


def image_part(media_type: str) -> dict[str, Any]:
    """The part of a chat message that will hold the image."""
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{_IMAGE}"}}


def request_frame(body: Mapping[str, Any]) -> Frame:
    """A body with one `image_part`, encoded and split at its image."""
    start, end = json.dumps(body, ensure_ascii=False).split(json.dumps(_IMAGE)[1:-1])
    return start.encode(), end.encode()


def framed(frame: Frame, image: bytes) -> bytes:
    """The whole request with an encoded image in its place."""
    start, end = frame
    return b"".join((start, base64.b64encode(image), end))
