"""Hashed vectors match questions to texts and pages to similar pages; none is zero."""

import hashlib
import io
import itertools
import unicodedata
from collections.abc import Iterator
from importlib.metadata import version

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kopub.embedding.hashed import HashedEmbedder, weigh_ngrams
from kopub.pages.page import Page
from kopub.states import State

TEXTS = {
    "bounce": "탄력 키 켜기\n빨리 반복하는 키 누름을 무시하려면 탄력 키를 켭니다. 설정을 누릅니다.",
    "backup": "백업 방법\n파일과 설정을 백업하는 가장 쉬운 방법은 백업 과정을 관리하는 프로그램을 쓰는 것입니다.",
    "clock": "세계 시계 추가\n시계를 활용하여 다른 도시의 시간을 달력 아래에 나타냅니다.",
    "format": "이동식 디스크 지우기\nUSB 메모리나 외장 디스크의 모든 파일을 지우고 포맷합니다.",
    "night": "화면 색 온도 조절하기\n야간 조명은 저녁이 되면 화면의 푸른 빛을 줄입니다.",
}
QUERIES = {
    "bounce": "키를 빠르게 반복해서 누르면 무시할 수 있나요?",
    "backup": "설정과 파일을 어떻게 백업하나요?",
    "clock": "다른 도시의 시계를 보고 싶어요",
    "format": "USB 디스크를 포맷하세요",
    "night": "저녁에 화면 색이 바뀝니까?",
}
EMBEDDER = HashedEmbedder()


def vector(text: str, embedder: HashedEmbedder = EMBEDDER) -> np.ndarray:
    (made,) = embedder.embed_texts([("a", text)])
    assert made.vector is not None
    return made.vector


def drawn(seed: int) -> np.ndarray:
    """Return a page with a random layout of lines and a coloured figure."""
    random = np.random.default_rng(seed)
    pixels = np.full((700, 500, 3), 255, np.uint8)
    y = 40
    while y < 640:
        indent, length = random.integers(30, 80), random.integers(150, 400)
        cv2.rectangle(pixels, (int(indent), y), (int(indent + length), y + 8), (30, 30, 30), -1)
        y += int(random.integers(14, 40))
    corner = random.integers(50, 350, 2)
    cv2.rectangle(pixels, corner.tolist(), (corner + 120).tolist(), random.integers(0, 256, 3).tolist(), -1)
    return pixels


def png(pixels: np.ndarray, format: str = "PNG", **options: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format, **options)
    return file.getvalue()


def images(pages: dict[str, bytes], **fields: int) -> dict[str, np.ndarray]:
    made = HashedEmbedder(**fields).embed_images(Page(name, data) for name, data in pages.items())
    return {embedding.id: embedding.vector for embedding in made if embedding.vector is not None}


def nearest(vector: np.ndarray, others: dict[str, np.ndarray]) -> str:
    return max(others, key=lambda name: float(others[name] @ vector))


def test_questions_find_their_texts():
    texts = {made.id: made.vector for made in EMBEDDER.embed_texts(TEXTS.items()) if made.vector is not None}
    for made in EMBEDDER.embed_queries(QUERIES.items()):
        assert made.vector is not None
        assert nearest(made.vector, texts) == made.id


@pytest.mark.parametrize("dim", [64, 2048])
def test_vectors_are_float32_of_norm_1_and_the_width_asked_for(dim: int):
    made = vector(TEXTS["clock"], HashedEmbedder(dim=dim))
    assert made.shape == (dim,)
    assert made.dtype == np.float32
    assert np.linalg.norm(made) == pytest.approx(1, abs=1e-6)


def test_a_heading_counts_more_than_the_same_words_further_down():
    filler = "목록에서 항목을 고르고 단추를 눌러 창을 닫은 다음 처음 화면으로 돌아갑니다. " * 12
    heading, buried = vector(f"프린터 용지 걸림\n{filler}"), vector(f"{filler}\n프린터 용지 걸림")
    query = vector("프린터에 용지가 걸렸습니다")
    assert query @ heading > query @ buried + 0.05


@pytest.mark.parametrize("ending", ["합니다.", "하세요", "합니까?", "한가요?", "하십시오!"])
def test_sentence_endings_do_not_count(ending: str):
    assert weigh_ngrams(f"문서를 저장{ending}") == weigh_ngrams("문서를 저장")


def test_a_part_at_the_start_of_a_word_counts_twice():
    assert weigh_ngrams("학교") == pytest.approx({" 학": 2 / 3, " 학교": 2 / 3, "학교": 1 / 3})


def test_a_text_of_endings_alone_is_still_a_text():
    assert vector("합니다.") @ vector("합니다") == pytest.approx(1)


@pytest.mark.parametrize(
    "same", ["ＵＳＢ 디스크, 포맷!", "usb  디스크\n포맷", unicodedata.normalize("NFD", "USB 디스크 포맷")]
)
def test_spelling_variants_of_a_text_are_one(same: str):
    assert vector(same) @ vector("USB 디스크 포맷") == pytest.approx(1)


def test_particles_leave_words_alike():
    assert vector("프린터를") @ vector("프린터에서") > 0.5
    assert abs(vector("프린터를") @ vector("달력을")) < 0.2


@pytest.mark.parametrize(("text", "reason"), [("", None), (" \n\t", None), ("… — !?", "no letters or digits")])
def test_a_text_of_nothing_is_blank(text: str, reason: str | None):
    (made,) = EMBEDDER.embed_texts([("a", text)])
    assert (made.state, made.vector) == (State.BLANK, None)
    assert (reason is None) == (made.reason is None)
    assert (reason or "") in (made.reason or "")


@given(st.text(max_size=40))
def test_every_text_ends_blank_or_with_a_usable_vector(text: str):
    (made,) = EMBEDDER.embed_texts([("a", text)])
    if made.state == State.OK:
        assert made.vector is not None
        assert np.linalg.norm(made.vector.astype(np.float16).astype(float)) == pytest.approx(1, abs=1e-2)
    else:
        assert (made.state, made.vector) == (State.BLANK, None)


def test_a_text_has_the_same_vector_on_every_machine():
    made = vector("한글 문서")
    assert {int(at): float(np.sign(made[at])) for at in np.flatnonzero(made)} == {
        495: -1.0,
        744: 1.0,
        814: -1.0,
        870: -1.0,
        913: -1.0,
        979: -1.0,
    }


@pytest.mark.parametrize(
    ("text", "dim", "digest"),
    [
        ("화재가 나면 119에 신고하고, 승강기를 타지 않습니다.", 2048, "2a10d17dd42ee01b"),
        ("In 2024 sales grew by 12.5 %, to €3.4 million", 2048, "4abdd300a5bb5e85"),
        ("日本語の文書と漢字 ① ﬁ Ⅷ Ωμέγα привет 😀", 2048, "91717bacce21ba14"),
        # Many n-grams share a bucket, so that their order decides the last digit of the sum.
        (" ".join(f"{n}번째 문서의 문단은 문서를 나눈 {n * 7} 조각" for n in range(400)), 64, "69e4da5266412860"),
    ],
)
def test_vectors_are_those_of_the_first_release_to_the_bit(text: str, dim: int, digest: str):
    """Tables made before, with scikit-learn's FeatureHasher, hold these vectors."""
    assert hashlib.sha256(vector(text, HashedEmbedder(dim=dim)).tobytes()).hexdigest()[:16] == digest


def test_the_recipe_names_what_the_first_tables_name():
    assert HashedEmbedder().recipe() == {
        "engine": "hashed",
        "version": 1,
        "parameters": {"dim": 2048},
        "weights": {"opencv-python-headless": version("opencv-python-headless"), "scikit-learn": "1.9.1"},
    }


def test_texts_are_taken_as_they_are_asked_for():
    endless = ((str(number), f"글 {number}") for number in itertools.count())
    assert [made.id for made in itertools.islice(EMBEDDER.embed_texts(endless), 3)] == ["0", "1", "2"]


def test_pages_are_taken_lazily():
    taken = []

    def pages() -> Iterator[Page]:
        for number in itertools.count():
            taken.append(number)
            yield Page(str(number), png(drawn(1)))

    stream = HashedEmbedder(threads=2).embed_images(pages())
    assert next(stream).state == State.OK
    stream.close()  # type: ignore[attr-defined]
    assert len(taken) <= 5


def test_a_page_is_nearest_to_itself_however_it_was_saved():
    pages = {str(seed): drawn(seed) for seed in range(8)}
    known = images({name: png(pixels) for name, pixels in pages.items()})
    for name, pixels in pages.items():
        small = cv2.resize(pixels, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        again = images({
            "jpeg": png(pixels, "JPEG", quality=30),
            "small": png(small),
            "blurred": png(cv2.GaussianBlur(pixels, (0, 0), 2)),
            "cropped": png(pixels[20:-20, 15:-15].copy()),
        })  # fmt: skip
        for variant in again.values():
            assert nearest(variant, known) == name


def test_image_vectors_have_norm_1_whatever_the_threads():
    pages = {str(seed): png(drawn(seed)) for seed in range(5)}
    one, many = images(pages, threads=1), images(pages, threads=4)
    assert one.keys() == many.keys()
    for name, made in one.items():
        assert (made.shape, made.dtype) == ((2048,), np.float32)
        assert np.linalg.norm(made) == pytest.approx(1, abs=1e-6)
        assert np.array_equal(made, many[name])


def test_a_damaged_page_is_quarantined_and_the_others_come_out():
    pages = {"cut": png(drawn(1))[:500], "none": b"", "text": b"no image", "good": png(drawn(2))}
    made = {found.id: found for found in EMBEDDER.embed_images(Page(*item) for item in pages.items())}
    assert {name: found.state.value for name, found in made.items()} == {
        "cut": "quarantined", "none": "quarantined", "text": "quarantined", "good": "ok",
    }  # fmt: skip
    assert all(made[name].reason and made[name].vector is None for name in ("cut", "none", "text"))


@pytest.mark.parametrize("size", [(700, 500), (1, 1)])
def test_a_page_of_one_colour_is_blank(size: tuple[int, int]):
    noise = np.random.default_rng(1).integers(-2, 3, (*size, 3))
    for pixels in (np.full((*size, 3), 255, np.uint8), (240 + noise).astype(np.uint8)):
        (made,) = EMBEDDER.embed_images([Page("a", png(pixels))])
        assert (made.state, made.vector, made.reason) == (State.BLANK, None, "the page is of one colour")


def test_threads_are_no_part_of_the_recipe_and_the_width_is():
    recipe = HashedEmbedder(threads=1).recipe()
    assert recipe == HashedEmbedder(threads=8).recipe()
    assert recipe != HashedEmbedder(threads=1, dim=1024).recipe()
