"""The plain way to read regions with a model server, the baseline of measured claims.

It is that of the published GLM-OCR client: Pillow cuts each region from a copy of the whole page, by a box on a grid
of 1000; the crop is always resized and encoded as JPEG (twice, because it is re-encoded for its request); and one
thread builds all requests and sends them to a pool.
"""

import base64
import io
import json
import math
from typing import TYPE_CHECKING

import numpy as np

from kopub.layout.regions import Region, Task
from kopub.recognition.vlm.client.chat_requests import PROMPTS

if TYPE_CHECKING:
    from PIL import Image

READ = (Task.TEXT, Task.TABLE, Task.FORMULA)


def decoded(data: bytes) -> "Image.Image":
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def crop(page: "Image.Image", region: Region) -> "Image.Image":
    """Return the crop of a region, by its box in thousandths of the page.

    The page's size is taken from a copy of its pixels.
    """
    height, width = np.asarray(page).shape[:2]
    x1, y1, x2, y2 = (
        int(int(edge / side * 1000) * side / 1000) for edge, side in zip(region.bbox, (width, height) * 2, strict=True)
    )
    return page.crop((x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)))


def jpeg(image: "Image.Image") -> bytes:
    """Return the JPEG of an image, resized, at Pillow's default quality of 75.

    Its sides become multiples of 28, for at most 6144 squares of 28 by 28 pixels.
    """
    from PIL import Image

    width, height = image.size
    columns, rows = max(1, round(width / 28)), max(1, round(height / 28))
    if columns * rows > 6144:
        shrink = math.sqrt(width * height / 28**2 / 6144)
        columns, rows = max(1, int(width / shrink / 28)), max(1, int(height / shrink / 28))
    sink = io.BytesIO()
    image.resize((columns * 28, rows * 28), Image.Resampling.BICUBIC).save(sink, "JPEG")
    return sink.getvalue()


def request(model: str, task: Task, picture: bytes, options: dict[str, object]) -> bytes:
    url = "data:image/jpeg;base64," + base64.b64encode(picture).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": PROMPTS[task]}]
    return json.dumps({"model": model, "messages": [{"role": "user", "content": content}], **options}).encode()
