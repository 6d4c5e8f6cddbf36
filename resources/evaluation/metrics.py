"""What is measured, by name: its direction, its worst value, and how a mean of it is taken. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Metric:
    """`says` is one sentence for a table's legend; values are shares of 1 unless `unit` names something else.

    A lost reading has the value `worst`. The mean of a `pooled` metric weighs each sample by the size of its score, so
    a long page counts more; of the others every sample counts the same. A change smaller than `margin` is no loss to a
    reader.
    """

    name: str
    says: str
    lower_is_better: bool
    pooled: bool = False
    margin: float = 0.01
    unit: str = "share"

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
            # Text of a page or a line. A page's error rate is at most 1: no reading is worse than none.
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
"""Every metric of every benchmark. A name means the same wherever it stands."""
