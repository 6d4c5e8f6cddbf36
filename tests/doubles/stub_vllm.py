"""A double of `vllm serve` with its processes, port, key and counters, but no model.

An engine process in a process group of its own makes the answers one by one, and survives the end of the server, as
vLLM's does. It reads "read" in every image and returns a vector of STUB_WIDTH equal numbers for every embedding
request. The environment sets its behaviour: STUB_BOOT and STUB_STEP (seconds for the start and for an answer),
STUB_HELD (do not start while this file exists), STUB_LAST_WORDS (print these and fail), STUB_LOSE_PORT (fail once, and
leave this file), STUB_VERSION, STUB_WIDTH, STUB_FRAME (tokens of a prompt around its image), STUB_GPU (a file that only
one server may lock), and STUB_MEASURES (a folder in which each start puts a file; a start that sees another's file has
mismeasured the memory, and fails as vLLM does).
"""

import argparse
import base64
import fcntl
import json
import os
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ENGINE = """
import sys, time
for line in sys.stdin:
    time.sleep(float(sys.argv[1]))
    print(line, end="", flush=True)
time.sleep(3600)
"""
COUNTERS = (
    'vllm:generation_tokens_total{model_name="m"}',
    'vllm:request_success_total{model_name="m",finished_reason="stop"}',
)
"""Counters of answers."""


class StubServer(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def __init__(self, port: int, model: str) -> None:
        super().__init__(("127.0.0.1", port), StubHandler)
        self.model = model
        self.answered = 0
        self.gpu = os.open(os.environ.get("STUB_GPU", os.devnull), os.O_RDWR | os.O_CREAT)
        self.take_gpu()
        self.lock = threading.Lock()
        self.engine = subprocess.Popen(
            [sys.executable, "-S", "-c", ENGINE, os.environ.get("STUB_STEP", "0"), "stub_vllm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )

    def take_gpu(self) -> None:
        if "STUB_GPU" in os.environ:
            try:
                fcntl.flock(self.gpu, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.stdout.write("torch.OutOfMemoryError: CUDA out of memory.\n")
                sys.stdout.flush()
                os._exit(1)

    def generate(self) -> None:
        with self.lock:
            assert self.engine.stdin is not None
            assert self.engine.stdout is not None
            self.engine.stdin.write(b"x\n")
            self.engine.stdin.flush()
            self.engine.stdout.readline()
            self.answered += 1


class StubHandler(BaseHTTPRequestHandler):
    server: StubServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        pages = {
            "/version": json.dumps({"version": os.environ.get("STUB_VERSION", "0.32.0+cpu")}),
            "/v1/models": json.dumps({"data": [{"id": self.server.model}]}),
            "/metrics": "".join(f"{name} {self.server.answered}\n" for name in COUNTERS),
            "/processes": json.dumps([os.getpid(), self.server.engine.pid]),
        }
        self._answer(200 if self.path in pages else 404, pages.get(self.path, ""))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != f"Bearer {os.environ['VLLM_API_KEY']}":
            self._answer(401, '{"error": "Unauthorized"}')
        elif body["model"] != self.server.model:
            self._answer(404, '{"error": "no such model"}')
        else:
            self.server.generate()
            self._answer(200, json.dumps(answer(self.path, body)))

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, since the real server is started without request logs."""


def answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
    if path == "/v1/embeddings":
        width = int(os.environ.get("STUB_WIDTH", "4"))
        vector = base64.b64encode(struct.pack(f"<{width}f", *[1.0] * width)).decode()
        frame = int(os.environ.get("STUB_FRAME", "0"))
        tokens = len(body["input"]) if "input" in body else frame + picture_tokens(body)
        return {"data": [{"embedding": vector}], "usage": {"prompt_tokens": tokens}}
    choice = {"message": {"content": "read"}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"completion_tokens": 1}}


def picture_tokens(body: dict[str, Any]) -> int:
    """Return the number of 32 x 32 pixel patches, by the header of the PNG."""
    header = base64.b64decode(body["messages"][1]["content"][0]["image_url"]["url"].partition(",")[2])[16:24]
    width, height = struct.unpack(">II", header)
    return width * height // 32**2


def measure(seconds: float) -> None:
    """Measure the free memory for `seconds`, in which no other server may start."""
    folder = Path(os.environ.get("STUB_MEASURES", os.devnull))
    if not folder.is_dir():
        return time.sleep(seconds)
    own = folder / str(os.getpid())
    own.touch()
    before = {path.name for path in folder.iterdir()}
    time.sleep(seconds)
    after = {path.name for path in folder.iterdir()}
    own.unlink()
    if len(before) > 1 or after - before:
        sys.exit("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    options, _ = parser.parse_known_args()
    lost = os.environ.get("STUB_LOSE_PORT")
    if lost and not Path(lost).exists():
        Path(lost).touch()
        sys.exit("OSError: [Errno 98] Address already in use")
    if "STUB_LAST_WORDS" in os.environ:
        sys.exit(os.environ["STUB_LAST_WORDS"])
    sys.stdout.write("INFO 11-21 12:00:00 [loader.py:1] Loading safetensors checkpoint shards\n")
    sys.stdout.flush()
    measure(float(os.environ.get("STUB_BOOT", "0")))
    while os.path.exists(os.environ.get("STUB_HELD", "")):
        time.sleep(0.02)
    StubServer(options.port, options.model).serve_forever()


if __name__ == "__main__":
    main()
