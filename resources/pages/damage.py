"""What decoders say of encoded pictures that have lost a part."""

import re

_JPEG_END = b"\xff\xd9"
_JPEG_CUT_OFF = "Premature end of JPEG file"
_JPEG_PADDING = re.compile(r"Corrupt JPEG data: (\d+) extraneous bytes before marker 0xd9")
"""The warning of libjpeg about bytes between the last pixel and the end marker: cameras put zeros there."""


def jpeg_damage(data: bytes | memoryview) -> str | None:
    """Return what libjpeg says of the damaged parts of a JPEG, None for a sound one.

    Raises `ValueError` for one of which nothing can be drawn, or that is cut off before its end marker.
    """
    from simplejpeg import decode_jpeg, decode_jpeg_header

    _, _, colours, _ = decode_jpeg_header(data)
    # An eighth of the size takes half the time, and reads every bit of the file all the same.
    grey = {
        "colorspace": "CMYK" if colours in ("CMYK", "YCCK") else "GRAY",
        "min_factor": 8,
        "min_width": 1,
        "min_height": 1,
    }
    try:
        decode_jpeg(data, **grey)
        return None
    except ValueError as error:
        damage = str(error)
    decode_jpeg(data, strict=False, **grey)
    if damage == _JPEG_CUT_OFF:
        raise ValueError(f"the JPEG is cut off before its end marker ({damage})")
    padding = _JPEG_PADDING.fullmatch(damage)
    if padding is None:
        return damage
    end = bytes(data).rfind(_JPEG_END)
    return damage if any(data[end - int(padding[1]) : end]) else None
