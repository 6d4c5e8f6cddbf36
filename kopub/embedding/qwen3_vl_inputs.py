"""The inputs of Qwen3-VL-Embedding: texts as prompts of tokens, and pages as images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from kopub.errors import EngineError, UndecodableImage
from kopub.pages.model_pictures import grey_as_one_channel, quick_png, whole_patches
from kopub.pages.page import PackedPixels, decode, inspect, is_plain

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TURN = "<|im_start|>"
_HEAD = f"{_TURN}system\n{{instruction}}<|im_end|>\n{_TURN}"
_START = "user\n"
_TAIL = f"<|im_end|>\n{_TURN}assistant\n"
_REACH = 8
"""A chunk ends within one over this of its length from where equal chunks would end."""
_IMAGE_MARKS = 2
"""Number of tokens that mark the start and end of an image."""
_SENTENCE_ENDS = ".?!。"


class Chunker:
    """The maker of prompts from texts under one instruction, of at most `max_tokens` each.

    The limit includes the template, which is the one of the model's authors. Special tokens spelt out in a text are
    treated as text, so that no page can end its turn. Raises `EngineError` for a tokenizer of another kind.
    """

    def __init__(self, tokenizer: Path, instruction: str, max_tokens: int) -> None:
        self._tokenizer = take_tokenizer(tokenizer)
        head = _HEAD.format(instruction=instruction)
        self._head, self._start = self._plain(head), self._plain(_START)
        tail = self._plain(_TAIL)
        core = [*self._head, *self._start, *tail]
        whole = self._tokenizer.encode(head + _START + _TAIL).ids
        if whole[: len(core)] != core or self._tokenizer.token_to_id(_TURN) is None:
            form = "{tokenizer} is of another model: it does not keep the turns of Qwen3-VL apart"
            raise EngineError(form, tokenizer)
        # The tokenizer adds the token at which the vector is taken to every prompt.
        self._tail = [*tail, *whole[len(core) :]]
        self._room = max_tokens - len(self._head) - len(self._start) - len(self._tail)
        if self._room < 1:
            form = "max_tokens: {max_tokens} leave no room beside the instruction of {count} characters"
            raise EngineError(form, max_tokens, len(head))
        self._tokenizer.encode_special_tokens = True

    def prompts(self, text: str) -> list[list[int]]:
        """Return a text's prompts, one per chunk of sentences, with as few as possible."""
        turn = _START + text
        encoded = self._tokenizer.encode(turn, add_special_tokens=False)
        prompts: list[list[int]] = []
        for start, end in _chunks(turn, encoded.offsets, self._room + len(self._start), self._room):
            # The first chunk has the start of the turn among its own tokens.
            opening = self._start if start else []
            prompts.append([*self._head, *opening, *encoded.ids[start:end], *self._tail])
        return prompts

    def beginning(self, text: str, most: int) -> tuple[str, int]:
        """Return the first characters of a text within `most` tokens, and their token count."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        while len(encoded.ids) > most:
            text = text[: min(encoded.offsets[most][0], len(text) - 1)]
            encoded = self._tokenizer.encode(text, add_special_tokens=False)
        return text, len(encoded.ids)

    def tokens_around_image(self) -> int:
        """Return the number of tokens in a prompt with an image, without the image's own."""
        return len(self._head) + len(self._start) + _IMAGE_MARKS + len(self._tail)

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


_preloaded: "dict[Path, Tokenizer]" = {}
"""Tokenizers that have been loaded but not taken yet."""


def preload_tokenizer(tokenizer: Path) -> None:
    """Read a tokenizer in advance, which takes a quarter of a second."""
    if tokenizer not in _preloaded:
        _preloaded[tokenizer] = _read_tokenizer(tokenizer)


def take_tokenizer(tokenizer: Path) -> "Tokenizer":
    """Return a tokenizer for exclusive use: its settings may be changed.

    Raises `EngineError` for a file that is not a tokenizer.
    """
    return _preloaded.pop(tokenizer, None) or _read_tokenizer(tokenizer)


def _read_tokenizer(tokenizer: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        read = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # tokenizers raises no narrower class
        raise EngineError("{tokenizer} cannot be read as a tokenizer: {error}", tokenizer, error) from None
    # The file may contain a length to which everything is cut.
    read.no_truncation()
    read.no_padding()
    return read


def _chunks(text: str, offsets: Sequence[tuple[int, int]], whole: int, room: int) -> list[tuple[int, int]]:
    """Return (start, end) of the chunks of a token sequence.

    There is one of up to `whole` tokens, or several of up to `room` and nearly equal length. `offsets` are the tokens'
    places in `text`.
    """
    total = len(offsets)
    if total <= whole:
        return [(0, total)]
    ends = [0]
    for left in range(math.ceil(total / room), 1, -1):
        start = ends[-1]
        length = math.ceil((total - start) / left)
        reach = length // _REACH
        first = max(start + length - reach, total - (left - 1) * room)
        last = min(start + length + reach, start + room)
        near = sorted(range(first, last + 1), key=lambda end, equal=start + length: abs(end - equal))
        ends.append(max(near, key=lambda end: _rank(text, offsets, end)))
    return list(zip(ends, [*ends[1:], total], strict=True))


def _rank(text: str, offsets: Sequence[tuple[int, int]], end: int) -> int:
    """Return the rank of a cut before token `end`, or -1 within a character."""
    before, after = offsets[end - 1][1], offsets[end][0]
    if after < before:
        return -1
    so_far, follows = text[after - 1 : after], text[after : after + 1]
    if so_far == "\n":
        return 3
    if so_far in _SENTENCE_ENDS and follows.isspace():
        return 2
    return int(so_far.isspace() or follows.isspace())


PATCH = 32
"""Pixels per side of one image token: patches of 16, merged two by two."""
MIN_TOKENS = 4
"""4,096 pixels, the authors' minimum."""
MAX_ASPECT = 200
"""Largest aspect ratio that the model's preprocessor accepts."""
_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
"""Formats that the server decodes as the authors do; a TIFF is sent as a PNG of its pixels."""

_NO_TORCH = "pages are resized with PyTorch, which is not installed here: type `make setup GPU=1`"


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An encoded page at the size that the model sees, and its image tokens.

    `untouched` means that the bytes are the source's own.
    """

    data: bytes
    media_type: str
    tokens: int
    untouched: bool


def warm_up_resizer() -> None:
    """Resize a small page, because libraries do much work at their first call."""
    page_image(quick_png(np.full((3 * PATCH, 2 * PATCH, 3), 255, np.uint8)), MIN_TOKENS)


def check_resizer() -> None:
    """Raise `EngineError` if PyTorch is not installed, without the slow import."""
    if find_spec("torch") is None:
        raise EngineError(_NO_TORCH)


def page_image(data: bytes | PackedPixels, max_tokens: int) -> EncodedImage:
    """Return a page of at most `max_tokens` tokens.

    Its bytes are the source's own if their size is right, else it is resized. Raises `UndecodableImage`, and
    `EngineError` if PyTorch cannot be imported.
    """
    info = inspect(data)
    if max(info.width, info.height) > MAX_ASPECT * min(info.width, info.height):
        form = "the page of {width} x {height} pixels is too long and thin for the model"
        raise UndecodableImage(form, width=info.width, height=info.height)
    columns, rows = whole_patches(info.width, info.height, PATCH, MIN_TOKENS, max_tokens)
    size, tokens = (columns * PATCH, rows * PATCH), columns * rows
    fits = size == (info.width, info.height) and info.format in _MEDIA_TYPES
    if fits and not isinstance(data, PackedPixels) and is_plain(data):
        return EncodedImage(data, _MEDIA_TYPES[info.format], tokens, True)
    # PyTorch resizes like transformers' own preprocessor, with an eighth of the work of Pillow's bicubic, which the
    # authors' code uses: one value in 6,000 differs by a grey level. OpenCV's bicubic is a different filter. PyTorch is
    # imported with the first page that must be resized.
    try:
        import torch
        from torch.nn.functional import interpolate
    except ImportError:
        raise EngineError(_NO_TORCH) from None

    pixels = torch.from_numpy(np.require(decode(data), requirements="W")).permute(2, 0, 1)[None]
    small = interpolate(pixels, size=(size[1], size[0]), mode="bicubic", antialias=True)
    # OpenCV takes a tenth of the time that it takes to copy PyTorch's channels into pixels one by one.
    resized = grey_as_one_channel(np.asarray(cv2.merge(list(small[0].numpy())), np.uint8))
    return EncodedImage(quick_png(resized), _MEDIA_TYPES["PNG"], tokens, False)
