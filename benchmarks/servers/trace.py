"""Summarise a vLLM profile of the GPU: busy time, kernels, and causes of gaps.

    python -m benchmarks.servers.trace TRACE.json.gz

Kernels are attributed to the part of the engine's step that launched them (the server needs
VLLM_CUSTOM_SCOPES_FOR_PROFILING=1): "preprocess" includes the vision encoder, "forward" the language model.
"""

import argparse
import gzip
import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FAMILIES = {
    "attention": r"flash|fmha|attention|attn",
    "matrix product": r"gemm|nvjet|cutlass|xmma|cublas|splitK",
    "copy host to GPU": r"Memcpy HtoD",
    "other copies": r"Memcpy|Memset|copy",
    "norm": r"norm",
    "rotary": r"rotary|rope",
    "fused (triton)": r"triton",
    "elementwise": r"elementwise|vectorized|unrolled|CUDAFunctor",
}
WAITS = "Synchronize|Memcpy|HostAlloc"
"""Calls that may block the host."""
Event = dict[str, Any]


def family(name: str) -> str:
    return next((known for known, pattern in FAMILIES.items() if re.search(pattern, name, re.IGNORECASE)), "other")


class Scopes:
    """The named parts of the engine's steps over time, innermost first."""

    def __init__(self, events: Sequence[Event]) -> None:
        marks = [e for e in events if e.get("cat") == "user_annotation" and ":" in e["name"]]
        self._marks = sorted(marks, key=lambda e: e["ts"])
        self._starts = [e["ts"] for e in self._marks]

    def at(self, moment: float) -> str:
        for mark in reversed(
            self._marks[max(0, bisect_right(self._starts, moment) - 12) : bisect_right(self._starts, moment)]
        ):
            if moment <= mark["ts"] + mark["dur"]:
                return str(mark["name"])
        return "outside the steps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    path = parser.parse_args().trace
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = [event for event in json.loads(data)["traceEvents"] if event.get("ph") == "X"]
    work = sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"])
    launches = {
        e["args"]["correlation"]: e["ts"]
        for e in events
        if e.get("cat") == "cuda_runtime" and "correlation" in e.get("args", {})
    }
    scopes = Scopes(events)
    waits: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "cuda_runtime" and re.search(WAITS, event["name"]):
            waits[event["name"], scopes.at(event["ts"])].append(event["dur"])
    begin, end = work[0]["ts"], max(e["ts"] + e["dur"] for e in work)
    spent: dict[tuple[str, str], list[float]] = defaultdict(list)
    names: dict[str, list[float]] = defaultdict(list)
    gaps: dict[str, float] = defaultdict(float)
    busy, last = 0.0, begin
    for event in work:
        launched = launches.get(event["args"].get("correlation"), event["ts"])
        spent[scopes.at(launched), family(event["name"])].append(event["dur"])
        names[event["name"]].append(event["dur"])
        stop = event["ts"] + event["dur"]
        if event["ts"] > last:
            gaps[scopes.at((event["ts"] + last) / 2)] += event["ts"] - last
        busy += max(0.0, stop - max(last, event["ts"]))
        last = max(last, stop)
    total = end - begin
    print(f"{total / 1e3:.0f} ms, GPU busy {busy / total:.1%}, {len(work)} pieces of work")
    print("\nshare   pieces  what")
    for (scope, kind), times in sorted(spent.items(), key=lambda item: -sum(item[1]))[:18]:
        print(f"{sum(times) / total:6.1%}{len(times):9d}  {scope}: {kind}")
    print("\nshare   pieces  mean us  kernel")
    for name, times in sorted(names.items(), key=lambda item: -sum(item[1]))[:22]:
        print(f"{sum(times) / total:6.1%}{len(times):9d}{sum(times) / len(times):9.1f}  {name[:110]}")
    print("\nshare   where the host is while the GPU waits")
    for scope, time in sorted(gaps.items(), key=lambda item: -item[1])[:10]:
        print(f"{time / total:6.1%}  {scope}")
    print("\nshare   pieces  calls that may keep the host, by name and place")
    for (name, scope), times in sorted(waits.items(), key=lambda item: -sum(item[1]))[:10]:
        print(f"{sum(times) / total:6.1%}{len(times):9d}  {name} in {scope}")


if __name__ == "__main__":
    main()
