"""The options of assets: gates, PDFs, figures and documents."""

from resources.base import ProfileResource


class GatesResource(ProfileResource):
    """Limits of the blocking checks; raise one in the Launchpad for an unusual run."""

    max_empty_jump: float
    expected_empty: float
    max_lost_share: float
    max_lost_regions_share: float
    max_doubtful_share: float
    self_test_override: str
    benchmark_samples: int
    override: str
    license_override: str


class PdfResource(ProfileResource):
    """The use of the text layers of PDF pages."""

    text_layer: str


class FiguresResource(ProfileResource):
    """The figures of a page that count, and whether they get vectors."""

    vectors: bool
    embed_notes: bool
    tables: bool
    smallest: float
    most_pixels: int


class DocumentsResource(ProfileResource):
    """The chunks of whole documents."""

    chunks: bool
    chunk_tokens: int
