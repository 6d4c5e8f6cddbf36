"""Compare settings of the server by regions read a second.

    python -m benchmarks.servers.sweep CASES.yaml --model zai-org/GLM-OCR --revision COMMIT --profile profiles/h200.yaml

CASES.yaml is a list of groups; a group is a list of cases, whose servers are started together, share the
GPU and are measured one by one while the others are idle. A case has a `name`, `in_flight` (a list),
and optionally: `server` (fields of VLLMServer that replace the profile's), `flags` and `env` (added to
the profile's), `without` (words of the profile's flags to omit), `rounds` (how often, with the last of
`in_flight`, requests made beforehand and the whole step take turns, followed for GLM-OCR by the plain way)
and `trace` (the server profiles itself). Requests are made beforehand, every crop is unique and the caches
are off; the server's counters must show no hit.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.servers.recognition import (
    HEAD,
    Jobs,
    Work,
    by_turns,
    ceiling,
    measured,
    pages_by_grid,
    profile,
    ready_made,
    recognizer_of,
    server_arguments,
    server_fields,
    unique_pages,
)
from kopub.errors import EngineError
from kopub.vllm.endpoint import Endpoint
from kopub.vllm.server import VLLMServer

Case = dict[str, Any]


def server_of(fields: dict[str, Any], case: Case) -> VLLMServer:
    """Return the profile's server with the changes of a case."""
    flags = [flag for flag in fields["extra_flags"] if flag not in case.get("without", [])]
    changed = {
        "share_gpu": True,
        "idle_seconds": 1.0,  # they end with the group
        "extra_flags": [*flags, *case.get("flags", [])],
        "env": {**fields.get("env", {}), **case.get("env", {})},
    }
    return VLLMServer(**{**fields, **changed, **case.get("server", {})})


@dataclass(frozen=True)
class Load:
    """The work for the servers: pages with their regions, and as requests."""

    engine: str
    work: Work
    jobs: Jobs
    tokens: int
    processes: int


def run_group(cases: Sequence[Case], fields: dict[str, Any], load: Load) -> None:
    """Start the servers of a group together, then measure each.

    If a server does not start, its row says so.
    """
    servers = [server_of(fields, case) for case in cases]
    with ExitStack() as leases, ThreadPoolExecutor(len(servers)) as pool:
        started = time.monotonic()

        def lease(server: VLLMServer) -> Endpoint | EngineError:
            try:
                return leases.enter_context(server.lease())
            except EngineError as error:
                return error

        endpoints = list(pool.map(lease, servers))
        print(f"-- {len(servers)} servers started together in {time.monotonic() - started:.0f} s", flush=True)
        for case, server, endpoint in zip(cases, servers, endpoints, strict=True):
            if isinstance(endpoint, EngineError):
                print(f"{case['name']}: {endpoint}", flush=True)
                continue
            try:
                run_case(case, server, endpoint, load)
            except EngineError as error:
                print(f"{case['name']}: {error}", flush=True)


def run_case(case: Case, server: VLLMServer, endpoint: Endpoint, load: Load) -> None:
    *several, last = case["in_flight"]
    for in_flight in several if case.get("rounds") else case["in_flight"]:
        name = f"{case['name']}, {in_flight} in flight"
        measured(lambda n=in_flight: ceiling(load.jobs, server, n, load.processes), endpoint, name)
    if case.get("rounds"):
        print(f"{case['name']}, {last} in flight:", flush=True)
        recognizer = recognizer_of(load.engine, server, load.tokens, last, load.processes)
        rows = ["ceiling", "ours", *(["plain"] if load.engine == "glm_ocr" else [])]
        by_turns(load.work, rows, case["rounds"], recognizer, endpoint)
    if case.get("trace"):
        with ProcessPoolExecutor(1) as profiler:
            traced = profiler.submit(profile, endpoint.urls[0], endpoint.api_key)
            ceiling(load.jobs, server, last, load.processes)
            traced.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    server_arguments(parser)
    arguments = parser.parse_args()
    fields = server_fields(arguments)
    groups: list[list[Case]] = yaml.safe_load(arguments.cases.read_text("utf-8"))
    work = unique_pages(pages_by_grid(arguments), arguments.count, "sweep")
    recognizer = recognizer_of(arguments.engine, server_of(fields, {}), arguments.tokens, 1, arguments.processes)
    jobs = ready_made(work, recognizer, recognizer.sampling)
    print(HEAD)
    for cases in groups:
        run_group(cases, fields, Load(arguments.engine, work, jobs, arguments.tokens, arguments.processes))


if __name__ == "__main__":
    main()
