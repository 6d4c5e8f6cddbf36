"""The benchmarks by name: the one place where an adapter is registered."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from resources.errors import ConfigError, SourceError, did_you_mean
from resources.evaluation.adapter import OWN_PAGES, Adapter
from resources.evaluation.adapters import answers, dp_bench, facts, lines, omnidocbench, pubtabnet, texts, unimer
from resources.evaluation.benchmark import Benchmark

ADAPTERS: Mapping[str, Adapter] = MappingProxyType(
    {
        adapter.name: adapter
        for adapter in (
            texts.TEXTS,
            texts.PDF_TEXTS,
            facts.KOREAN,
            texts.KOPUB,
            omnidocbench.MDPBENCH_KO,
            omnidocbench.MDPBENCH,
            omnidocbench.OMNIDOCBENCH,
            dp_bench.ADAPTER,
            pubtabnet.ADAPTER,
            unimer.ADAPTER,
            lines.ADAPTER,
            facts.OLMOCR,
            answers.OCRBENCH,
            answers.KIE,
        )
    }
)
"""Those of one's own pages and of Korean first."""


def adapter(name: str) -> Adapter:
    """Raises `ConfigError` for a name that no adapter has."""
    if name not in ADAPTERS:
        raise ConfigError(f"{name} is no benchmark (there are {', '.join(ADAPTERS)}){did_you_mean(name, ADAPTERS)}")
    return ADAPTERS[name]


def load(name: str, folder: Path) -> Benchmark:
    """The samples of a benchmark. Nothing is downloaded: what a folder lacks is named with where to get it.

    Raises `ConfigError` for an unknown name, `SourceError` for a folder that does not hold the benchmark or holds
    nothing of it that can be scored.
    """
    chosen = adapter(name)
    get = f"; get it from {chosen.source}, licence: {chosen.licence}"
    wanted = f"{name} wants {chosen.expects}{f' ({chosen.source})' if chosen.licence == OWN_PAGES else get}"
    if not folder.is_dir():
        raise SourceError(f"{folder} is no folder: {wanted}")
    try:
        benchmark = chosen.load(folder)
    except SourceError as error:
        raise SourceError(f"{error}: {wanted}") from None
    if not benchmark.samples:
        why = f" ({len(benchmark.left_out)} left out, {benchmark.left_out[0]})" if benchmark.left_out else ""
        raise SourceError(f"{folder} has nothing to score{why}: {wanted}")
    return benchmark
