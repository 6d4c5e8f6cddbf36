"""Arrow files and streams, opened unless they state too large a size."""

import struct
from contextlib import suppress

import pyarrow as pa

MOST_UNPACKED = 1 << 30
"""Bytes to which the messages of a file may unpack."""
_FILE_MAGIC = b"ARROW1\0\0"
"""The start of an Arrow file; a stream of messages follows, as in the stream format."""
_OLD_COMPRESSION = b"ARROW:experimental_compression"
"""What Arrow 0.17 wrote into the metadata of compressed messages."""


def open_stream(file: pa.NativeFile) -> pa.RecordBatchStreamReader:
    """Return a reader of an Arrow file or stream, placed at its first batch.

    Raises `pa.ArrowInvalid` if compressed messages state too large a size, before they are unpacked.
    """
    file.seek(0)
    start = len(_FILE_MAGIC) if file.read(len(_FILE_MAGIC)) == _FILE_MAGIC else 0
    unpacked = 0
    # Damage is left to the reader.
    with suppress(pa.ArrowException, OSError, StopIteration, struct.error):
        file.seek(start)
        messages = pa.ipc.MessageReader.open_stream(file)
        while True:
            unpacked += _unpacked_size(messages.read_next_message())
    if unpacked > MOST_UNPACKED:
        raise pa.ArrowInvalid(f"it unpacks to {unpacked:,} bytes: save it without compression, or as Parquet")
    file.seek(start)
    return pa.ipc.open_stream(file)


def _unpacked_size(message: pa.Message) -> int:
    """Return the size that the compressed buffers of a message state in their first bytes."""
    about = memoryview(message.metadata)

    def number(form: str, at: int) -> int:
        return struct.unpack_from(f"<{form}", about, at)[0]

    def field(table: int, index: int) -> int:
        """Return the target of a field of a FlatBuffers table, 0 without one."""
        fields, place = table - number("i", table), 4 + 2 * index
        offset = number("H", fields + place) if place < number("H", fields) else 0
        return table + offset + number("I", table + offset) if offset else 0

    if message.type == "schema":
        return 0
    batch = field(number("I", 0), 2)
    if message.type == "dictionary":
        batch = field(batch, 1)
    if not field(batch, 3) and _OLD_COMPRESSION not in bytes(about):
        return 0
    buffers = field(batch, 2)
    places = struct.iter_unpack("<qq", about[buffers + 4 : buffers + 4 + 16 * number("I", buffers)])
    return sum(max(0, *struct.unpack_from("<q", message.body, offset)) for offset, length in places if length)
