"""The engines that describe figures and tables."""

from typing import Any

from resources.base import ProfileResource
from resources.server import ServedResource


class NoNotesResource(ProfileResource):
    """No notes on figures."""


class ChatNotesResource(ServedResource):
    """Notes on figures by a chat model that sees pictures."""

    language: str
    structured: bool
    max_tokens: int
    tries: int
    sampling: dict[str, Any]


class DeepSeekNotesResource(ServedResource):
    """Notes on figures by DeepSeek-OCR."""

    max_tokens: int
    tries: int
