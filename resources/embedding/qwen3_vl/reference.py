"""The vectors that transformers makes of a page and a text, to compare a server's with."""

import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from resources.errors import EngineError
from resources.printable import first_line
from resources.vllm.server_fields import VLLMServerFields

_SCRIPT = Path(__file__).with_name("transformers_vectors.py")
_SECONDS = 1200.0
"""A page takes 15 TFLOP in float32: half a minute on 16 cores, ten minutes on a small laptop."""


def reference_vectors(
    python: str, server: VLLMServerFields, instruction: str, data: bytes, max_pixels: int, text: str
) -> np.ndarray:
    """(2, width) raw vectors of the page whose encoded image is `data`, and of `text`; by the interpreter `python`.

    Raises `EngineError` where it cannot be run.
    """
    with TemporaryDirectory(prefix="kopub-reference-") as folder:
        picture, inputs, output = (Path(folder) / name for name in ("page", "inputs.json", "vectors.npy"))
        picture.write_bytes(data)
        items = [
            {"instruction": instruction, "image": str(picture), "max_pixels": max_pixels},
            {"instruction": instruction, "text": text},
        ]
        inputs.write_text(json.dumps(items), "utf-8")
        command = [python, str(_SCRIPT), str(_checkpoint(server)), str(inputs), str(output)]
        # The modules beside the script are no modules of transformers'.
        alone = {**os.environ, "PYTHONSAFEPATH": "1"}
        try:
            done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"transformers' own vectors were not made: {first_line(error)}") from None
        if done.returncode:
            said = done.stderr.strip().rpartition("\n")[2] or f"it ended with status {done.returncode}"
            raise EngineError(f"transformers' own vectors were not made: {said}")
        return np.load(output)


def _checkpoint(server: VLLMServerFields) -> Path:
    """The folder of the weights; those of a repository are in the Hub's cache when they have been served."""
    from huggingface_hub import snapshot_download

    if server.folder.is_dir():
        return server.folder.absolute()
    try:
        return Path(str(snapshot_download(server.model, revision=server.revision, local_files_only=True)))
    except OSError as error:
        raise EngineError(f"{server.model} is not in the Hub's cache: {first_line(error)}") from None
