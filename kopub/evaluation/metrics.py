"""Metrics by name, their means with intervals, and their changes between runs.

Pure; uses NumPy.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from kopub.evaluation.benchmark import Sample, SampleScore
from kopub.search.scores import FEWEST, interval


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and its meaning.

    `says` is one sentence for a table's legend. Values are shares of 1; that of a lost reading is `worst`. The mean of
    a `pooled` metric weights each sample by the size of its score, so a long page counts more; otherwise every sample
    counts the same. A change below `margin` does not matter to a reader.
    """

    name: str
    says: str
    lower_is_better: bool
    pooled: bool = False
    margin: float = 0.01

    @property
    def worst(self) -> float:
        return 1.0 if self.lower_is_better else 0.0


def _errors(name: str, says: str, pooled: bool = False) -> Metric:
    return Metric(name, says, lower_is_better=True, pooled=pooled, margin=0.005)


def _hits(name: str, says: str, pooled: bool = False) -> Metric:
    return Metric(name, says, lower_is_better=False, pooled=pooled)


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            # Text of a page or a line. A page's error rate is at most 1, as no reading is worse than none at all.
            _errors("cer", "Character error rate without blanks, mean over pages."),
            _errors(
                "cer_pooled", "Character error rate without blanks, errors of all pages by their characters.", True
            ),
            _errors("cer_blanks", "Character error rate with runs of blanks as one, mean over pages."),
            _errors("cer_jamo", "Error rate over jamo without blanks, mean over pages."),
            _errors("wer", "Word error rate, words between blanks, mean over lines."),
            _errors("edit", "Edit distance by the longer of both texts, without blanks, mean over pages."),
            _hits("nid", "Normalized Indel similarity of the text, by DP-Bench's rule."),
            _hits("bag_f1", "F1 of the bags of syllables: what was read, whatever its order."),
            # Blocks of a page.
            _errors("page_edit", "Edit distance of a page's text in reading order, by OmniDocBench's normalisation."),
            _errors("order_edit", "Edit distance of the reading order over the blocks that were found."),
            _errors("table_edit", "Edit distance of the tables' HTML by OmniDocBench's normalisation.", True),
            _hits(
                "layout_precision",
                "Share of the regions that are a block of the same kind at IoU 0.5, mean over pages.",
            ),
            _hits(
                "layout_recall", "Share of the blocks that are a region of the same kind at IoU 0.5, mean over pages."
            ),
            _hits("layout_f1", "Harmonic mean of precision and recall at IoU 0.5, mean over pages."),
            _hits("layout_map", "COCO mean average precision of the regions, over all pages."),
            # Tables and formulas; those of a page are pooled, so that each table counts the same.
            _hits("teds", "Similarity of the table's tree with the text of its cells.", True),
            _hits("teds_s", "Similarity of the table's tree without the text of its cells.", True),
            _hits("cells", "Share of the cells with text that are exact and in their place, without blanks.", True),
            _hits("rows", "Share of the rows of tables in which every cell is exact.", True),
            _hits("figures", "Share of the cells with a figure that are exact, with their signs and units.", True),
            _errors("figures_silent", "Share of the cells with a figure that are wrong and not doubted.", True),
            _errors("figures_doubted", "Share of the cells with a figure that are right and doubted.", True),
            _errors("formula_edit", "Edit distance of the formulas' LaTeX by OmniDocBench's normalisation.", True),
            _hits("cdm", "Character detection matching of the drawn formulas.", True),
            _hits(
                "page_overall",
                "Mean of 1 - page_edit, teds and cdm: the form of OmniDocBench's overall, not its number.",
            ),
            # Questions and facts.
            _hits("answer_recall", "Share of the questions whose answer is in the text that was read.", True),
            _hits("answer_similarity", "Similarity of the answer and the most similar part of the text.", True),
            _hits("facts", "Share of the facts that hold.", True),
            _hits("facts_by_file", "Mean over the benchmark's files of the share of facts that hold."),
        )
    }
)
"""Every metric of every benchmark. A name always has the same meaning."""


ALL = "all"
"""The slice of all samples; other slices have names such as `language: korean`."""


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a metric over the samples of a slice.

    `low` and `high` are the 95 % interval by bootstrap over documents, or None for a metric of the whole benchmark or a
    single document. `lost` samples count with the worst value; `without_lost` is the mean of the others. `skipped`
    samples have no value and are in no mean; if all are skipped, `value` is None, and `skipped_reason` says why.
    """

    metric: str
    slice: str
    samples: int
    documents: int
    value: float | None
    low: float | None = None
    high: float | None = None
    lost: int = 0
    without_lost: float | None = None
    skipped: int = 0
    skipped_reason: str | None = None


@dataclass(frozen=True, slots=True)
class PairedChange:
    """The change of a metric over the common samples of two runs.

    `previous` is the mean of the other run. `low` and `high` are the 95 % interval of the change, paired by sample and
    drawn by document. `worse` means that the metric got significantly worse, by at least its margin.
    """

    metric: str
    slice: str
    samples: int
    documents: int
    previous: float
    value: float
    low: float
    high: float
    worse: bool

    @property
    def change(self) -> float:
        return self.value - self.previous


def means(samples: Iterable[Sample], scores: Iterable[SampleScore]) -> list[Mean]:
    """Return the means of every scored metric by slice, with `all` first."""
    by_id = {sample.id: sample for sample in samples}
    scores = list(scores)
    # A score without a sample is that of the whole benchmark at once.
    results: list[Mean] = []
    for score in scores:
        if score.sample is None:
            results.append(
                Mean(score.metric, ALL, int(score.size), 0, score.value, skipped_reason=score.skipped_reason)
            )
    for (metric, slice_), of_slice in _by_slice(by_id, scores).items():
        results.append(_mean(METRICS[metric], slice_, of_slice, by_id))
    return sorted(results, key=lambda mean: (mean.slice != ALL, mean.slice, list(METRICS).index(mean.metric)))


def changes(samples: Iterable[Sample], before: Iterable[SampleScore], now: Iterable[SampleScore]) -> list[PairedChange]:
    """Return the changes of every metric by slice, over samples valued in both runs."""
    by_id = {sample.id: sample for sample in samples}
    earlier = {(score.sample, score.metric): score for score in before if score.value is not None}
    results = []
    for (name, slice_), of_slice in _by_slice(by_id, now).items():
        metric = METRICS[name]
        pairs: list[tuple[SampleScore, SampleScore]] = []
        for score in of_slice:
            if score.value is not None and (score.sample, name) in earlier:
                pairs.append((earlier[score.sample, name], score))
        if not pairs:
            continue
        before_sums, sizes = _documents(metric, [(old.value or 0.0, score) for old, score in pairs], by_id)
        now_sums, _ = _documents(metric, [(score.value or 0.0, score) for _, score in pairs], by_id)
        gained = now_sums - before_sums
        low, high = interval(gained[:, None], sizes)[:, 0]
        total = sizes.sum()
        change = gained.sum() / total
        loss, surely = (change, low > 0) if metric.lower_is_better else (-change, high < 0)
        enough = np.count_nonzero(gained) >= FEWEST
        results.append(
            PairedChange(
                name,
                slice_,
                len(pairs),
                len(sizes),
                float(before_sums.sum() / total),
                float(now_sums.sum() / total),
                float(low),
                float(high),
                worse=bool(enough and surely and loss >= metric.margin),
            )
        )
    return sorted(results, key=lambda change: (change.slice != ALL, change.slice, list(METRICS).index(change.metric)))


def _by_slice(samples: Mapping[str, Sample], scores: Iterable[SampleScore]) -> dict[tuple[str, str], list[SampleScore]]:
    slices: defaultdict[tuple[str, str], list[SampleScore]] = defaultdict(list)
    for score in scores:
        if score.sample is None or score.sample not in samples:
            continue
        slices[score.metric, ALL].append(score)
        for name, value in sorted(samples[score.sample].slices.items()):
            if value:
                slices[score.metric, f"{name}: {value}"].append(score)
    return slices


def _mean(metric: Metric, slice_: str, scores: Sequence[SampleScore], samples: Mapping[str, Sample]) -> Mean:
    counted: list[tuple[float, SampleScore]] = []
    read: list[tuple[float, SampleScore]] = []
    reasons: Counter[str | None] = Counter()
    for score in scores:
        if score.value is None:
            reasons[score.skipped_reason] += 1
            continue
        counted.append((score.value, score))
        if not score.lost:
            read.append((score.value, score))
    # The reason of most of the skipped samples stands for all.
    reason = reasons.most_common(1)[0][0] if reasons else None
    if not counted:
        return Mean(metric.name, slice_, 0, 0, None, skipped=reasons.total(), skipped_reason=reason)
    sums, sizes = _documents(metric, counted, samples)
    low, high = interval(sums[:, None], sizes)[:, 0] if len(sums) > 1 else (None, None)
    without_lost = None
    if read:
        read_sums, read_sizes = _documents(metric, read, samples)
        without_lost = float(read_sums.sum() / read_sizes.sum())
    return Mean(
        metric.name,
        slice_,
        len(counted),
        len(sums),
        float(sums.sum() / sizes.sum()),
        None if low is None else float(low),
        None if high is None else float(high),
        lost=len(counted) - len(read),
        without_lost=without_lost,
        skipped=reasons.total(),
        skipped_reason=reason,
    )


def _documents(
    metric: Metric, values: Sequence[tuple[float, SampleScore]], samples: Mapping[str, Sample]
) -> tuple[np.ndarray, np.ndarray]:
    """Sum values and weights by document, in the order of their first samples.

    In a pooled metric, a sample of size 0 does not count, but if all have size 0, each counts once.
    """
    pooled = metric.pooled and any(score.size for _, score in values)
    sums: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for value, score in values:
        weight = score.size if pooled else 1.0
        if not weight:
            continue
        document = samples[score.sample or ""].document
        sums[document] = sums.get(document, 0.0) + value * weight
        sizes[document] = sizes.get(document, 0.0) + weight
    return np.array(list(sums.values())), np.array(list(sizes.values()))
