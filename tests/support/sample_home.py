"""Pages of the samples, and a home with such pages, read by the engines of the cpu profile."""

from pathlib import Path

from kopub.config.settings import Settings
from kopub.doctor.self_test import Samples, read_samples
from tests.support.cpu_engines import CPU
from tests.support.harness import Platform


def sample(page_id: str) -> tuple[str, bytes]:
    """Return the id and the file of a page of the samples."""
    return next((page.page_id, bytes(page.data)) for page in read_samples().pages if page.page_id == page_id)


def first_samples(count: int) -> Samples:
    """The first `count` pages of the samples, and the queries that they answer."""
    known = read_samples()
    pages = known.pages[:count]
    ids = {page.page_id for page in pages}
    texts = {page_id: text for page_id, text in known.texts.items() if page_id in ids}
    return Samples(pages, texts, [query for query in known.queries if ids.issuperset(query.ground_truth)])


def sample_home(home: Path, pages: int, *more: str) -> Path:
    """Make the tables of the first `pages` samples up to texts, and of `more` assets."""
    content = [(page.page_id, bytes(page.data)) for page in read_samples().pages[:pages]]
    platform = Platform.of(home, [content], [])
    platform.engines = dict(Settings.of(home, CPU, "cpu").engines)
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts", *more)
    return home
