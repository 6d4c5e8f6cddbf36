"""Whether a server sees pictures at the size they are sent: the tokens of its prompts tell. Pure."""

from resources.errors import EngineError

_TEMPLATE = 64
"""Tokens that a template may put around a picture and a prompt; a prompt itself has at most one for each byte."""
_SURE = 3
"""Prompts of another size, and none of the right one, after which every picture is resized."""


class PromptTokens:
    """The tokens of prompts as a server counts them, held against those of the pictures in them.

    What a prompt has besides its picture is the same in every request with that prompt.
    """

    def __init__(self) -> None:
        self._around: dict[str, int] = {}
        self._right = self._wrong = 0

    def problem(self, prompt: str, sent: int, counted: int | None) -> str | None:
        """What is wrong with `counted` tokens for a picture of `sent`; None for nothing, and for a server that
        counts none. Raises `EngineError` where nothing is ever right.
        """
        if counted is None:
            return None
        around = counted - sent
        if 0 <= around <= _TEMPLATE + len(prompt.encode()) and self._around.setdefault(prompt, around) == around:
            self._right += 1
            return None
        self._wrong += 1
        reason = (
            f"the server read {counted} tokens where a picture of {sent} was sent: it resizes pictures or has another "
            "template"
        )
        if self._wrong >= _SURE and not self._right:
            raise EngineError(f"{reason}; check which model it serves and its mm_processor")
        return reason
