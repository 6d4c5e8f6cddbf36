"""An unusable profile, variable or value gives one line that names what is possible."""

import os
from pathlib import Path

import pytest
from fsspec.registry import known_implementations

from kopub.config.settings import ROOT, read_settings
from kopub.errors import ConfigError
from tests.config.conftest import CPU, Load

DEEP = 100_000
VALUE = "mine.yaml is not YAML: it holds a value that cannot be read "
LAUGHS = "l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 10)}]\n" for at in range(1, 9)
)


def layout(keys: str) -> str:
    return CPU.replace("engine: cpu", keys)


def glm(keys: str) -> str:
    return CPU.replace("engine: tesseract", f"engine: glm_ocr, {keys}")


def refusal(load: Load, *args: object, **environ: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(*args, **environ)
    assert "\n" not in str(error.value)
    return str(error.value)


SECTIONS = (
    "shards_per_run, layout, recognition, embedding, notes, reranking, sinks, figures, documents, corpus, store, "
    "release, hub, pdf, gates, upgrades"
)
PINNED = (
    "glm_ocr, deepseek_ocr, deepseek_ocr_2, paddleocr_vl_1_5, paddleocr_vl_1_6, pp_doclayout, qwen3_vl_embedding, "
    "qwen3_vl_instruct, qwen3_vl_embedding_8b, qwen3_vl_reranker, qwen3_vl_reranker_8b"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CPU + "gpu: {}", f"profile mine: there is no section 'gpu'; there are {SECTIONS}"),
        (CPU + "gate: {}", f"profile mine: there is no section 'gate' (did you mean gates?); there are {SECTIONS}"),
        (CPU + "1: 2", "profile mine: there is no section '1'; there are "),
        (
            CPU.replace("layout", "layuot"),
            "profile mine: there is no section 'layout': write layout: {engine: NAME} in place of 'layuot', with ",
        ),
        ("layout: {engine: cpu}", "profile mine: there is no section 'recognition': write recognition: {engine: NAME}"),
        ("layout: [1]", "profile mine: layout is [1], and must be a mapping, as {engine: NAME}"),
        (
            layout("threads: 1"),
            "profile mine: layout names no engine: set layout.engine to one of cpu, deepseek_ocr, given, pp_doclayout",
        ),
        (
            layout("engine: paddle"),
            "profile mine: layout.engine is 'paddle'; choose one of cpu, deepseek_ocr, given, pp_doclayout",
        ),
        (
            layout("engine: cpuu"),
            "profile mine: layout.engine is 'cpuu' (did you mean cpu?); choose one of cpu, deepseek_ocr, given",
        ),
        (
            layout("engine: [cpu]"),
            "profile mine: layout.engine is ['cpu']; choose one of cpu, deepseek_ocr, given, pp_doclayout",
        ),
        (layout("engine: cpu, colour: 1"), "profile mine: layout has no key 'colour'; it has engine, threads"),
        (
            layout("engine: cpu, thraeds: 1"),
            "profile mine: layout has no key 'thraeds' (did you mean threads?); it has engine, threads",
        ),
        (layout("engine: cpu, model: glm_ocr"), "profile mine: layout has no key 'model'; it has engine, threads"),
        (
            layout("engine: cpu, threads: many"),
            "profile mine: layout.threads is 'many', and must be a whole number, at least 0",
        ),
        (
            layout("engine: cpu, threads: -1"),
            "profile mine: layout.threads is -1, and must be a whole number, at least 0",
        ),
        (layout("engine: cpu, threads: yes"), "profile mine: layout.threads is True, and must be a whole number"),
        (
            layout("engine: cpu, threads: {a: 1}"),
            "profile mine: layout.threads is {'a': 1}, and must be a whole number",
        ),
        (
            layout("engine: pp_doclayout, model: pp_doclayuot"),
            "profile mine: layout.model is 'pp_doclayuot', which models.yaml does not pin "
            f"(did you mean pp_doclayout?); it pins {PINNED}",
        ),
        (
            layout("engine: pp_doclayout"),
            f"profile mine: layout names no model: set layout.model to one of {PINNED}, or layout.repo",
        ),
        (
            layout("engine: pp_doclayout, model: pp_doclayout, dtype: float8"),
            "profile mine: layout.dtype is 'float8', and must be one of float16, bfloat16, float32",
        ),
        (
            layout("engine: pp_doclayout, model: pp_doclayout, thresholds: {table: x}"),
            "profile mine: layout.thresholds.table is 'x', and must be a number",
        ),
        (layout("engine: pp_doclayout, repo: x/y"), "profile mine: layout.repo 'x/y' is no folder, so layout.revision"),
        (
            glm("threads: 1"),
            f"profile mine: recognition names no model: set recognition.model to one of {PINNED}, "
            "or recognition.server.model",
        ),
        (glm("model: [glm_ocr]"), "profile mine: recognition.model is ['glm_ocr'], which models.yaml does not pin"),
        (glm("model: glm_ocr, server: []"), "profile mine: recognition.server is [], and must be a mapping"),
        (
            glm("model: glm_ocr, server: {max_seqs: 3}"),
            "profile mine: recognition.server has no key 'max_seqs' (did you mean max_num_seqs?); it has model, ",
        ),
        (
            glm("model: glm_ocr, server: {version: 0.32}"),
            "profile mine: recognition.server.version is 0.32, and must be text, in quotes",
        ),
        (
            glm("model: glm_ocr, server: {mode: external}"),
            "profile mine: recognition.server.urls: an external server needs at least one URL",
        ),
        (
            glm("model: glm_ocr, request_seconds: .inf"),
            "profile mine: recognition.request_seconds is inf, and must be a number, more than 0",
        ),
        (
            glm("model: glm_ocr, prompts: {tabel: x}"),
            "profile mine: recognition.prompts: 'tabel' is not read; prompts ",
        ),
        (
            CPU.replace("hashed", "hashed, dim: 1000000000000"),
            "profile mine: embedding.dim is 1000000000000, and must be a whole number, from 64 to 16384",
        ),
        (
            CPU.replace("hashed", "qwen3_vl, model: qwen3_vl_embedding, width: 1000000000000"),
            "profile mine: embedding.width is 1000000000000, and must be a whole number, from 64 to 16384",
        ),
        (
            CPU + "shards_per_run: 0",
            "profile mine: shards_per_run is 0, and must be a whole number, at least 1, or null",
        ),
        (CPU + "shards_per_run: [1]", "profile mine: shards_per_run is [1], and must be a whole number"),
        (CPU + "store: 5", "profile mine: store is 5, and must be a mapping"),
        (
            CPU + "gates: {max_empty_jump: 2}",
            "profile mine: gates.max_empty_jump is 2, and must be a number, from 0 to 1",
        ),
        (CPU + "hub: {branch: ''}", "profile mine: hub.branch is '', and must be text, not empty"),
        (
            CPU + "upgrades: {by: sensor}",
            "profile mine: upgrades has no key 'by'; it has enabled, start, end, timezone",
        ),
        (CPU + "upgrades: {start: 25:00}", "profile mine: upgrades.start: it is no time of day; write HH:MM"),
        (CPU + "upgrades: {end: 22:00:30}", "profile mine: upgrades.end: it is no time of day; write HH:MM, without"),
        (CPU + "upgrades: {end: 24:00}", "profile mine: upgrades.end: it is no time of day; write HH:MM"),
        (CPU + "upgrades: {timezone: Asia}", "profile mine: upgrades.timezone: 'Asia' is no time zone; it is one like"),
        (CPU + "upgrades: {fresh_within_days: .inf}", "profile mine: upgrades.fresh_within_days is inf, and must be "),
        (CPU + "upgrades: {fresh_within_days: 1e-9}", "profile mine: upgrades.fresh_within_days is '1e-9', and must "),
        (CPU + "corpus: {cache_gb: .inf}", "profile mine: corpus.cache_gb is inf, and must be a number, more than 0"),
        (CPU + f"upgrades: {{timezone: {'x' * 300}}}", "profile mine: upgrades.timezone: 'xxx"),
    ],
)
def test_what_a_profile_cannot_say(text: str, line: str, load: Load):
    assert refusal(load, text).startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- a list", "mine.yaml has no sections: it is a list, not a mapping"),
        ("5", "mine.yaml has no sections: it is a number, not a mapping"),
        ("", "mine.yaml is empty: it must have the sections layout, recognition and embedding"),
        ("# nothing\n", "mine.yaml is empty: "),
        ("layout: {engine: cpu\n", "mine.yaml is not YAML in line 2: expected ',' or '}'"),
        (CPU + CPU, "mine.yaml is not YAML in line 4: the key 'layout' stands there twice"),
        (CPU.encode("utf-16"), "mine.yaml is not UTF-8: save it in that encoding"),
        ((CPU + "release: {title: Café}").encode("latin-1"), "mine.yaml is not UTF-8: save it in that encoding"),
        (CPU + "release: {title: \x00}", "mine.yaml is not YAML: it holds a value that cannot be read"),
        (CPU + "release: {title: 2026-13-01}", "mine.yaml is not YAML: it holds a value that cannot be read (month"),
        (CPU + "release: !!bool x", "mine.yaml is not YAML: it holds a value that cannot be read"),
        (CPU + "release: !!python/object:x {}", "mine.yaml is not YAML in line 4: could not determine a constructor"),
        ("[" * DEEP, "mine.yaml is nested too deeply to be read"),
        ("layout: " + "{a: " * DEEP, "mine.yaml is nested too deeply to be read"),
        (LAUGHS + "extends: *l8", VALUE + "(its aliases repeat too many values)"),
        (CPU + "gates: &g {benchmarks: {texts: *g}}", VALUE + "(Circular reference detected)"),
        ("extends: h20", "mine.yaml: extends: h20: there is no such profile (did you mean h200?); there are b200, cpu"),
        ("extends: no.yaml", "mine.yaml: extends: no.yaml: there is no such profile; there are b200, cpu, h100"),
        ("extends: [h200]", "mine.yaml: extends is ['h200'], and must be the name of a profile, as h200"),
        ("extends: mine.yaml", "mine.yaml: extends: mine.yaml extends mine.yaml in turn; take one of them out"),
        ("extends: mine.yaml+glm_ocr", "mine.yaml: extends: mine.yaml extends mine.yaml in turn; take one of them out"),
        (
            "extends: l4+glm_ocl",
            "mine.yaml: extends: l4+glm_ocl: there is no reader 'glm_ocl' (did you mean glm_ocr?); ",
        ),
        ("extends: cpu+glm_ocr", "mine.yaml: extends: cpu+glm_ocr: a reader needs the profile of a card, as rtx4090"),
        ("extends: h200\ncard: {gpu: 7}", "mine: card.gpu is 7, and must be "),
        ("extends: h200\ncard: {gb: 24}", "mine: card has no key 'gb'"),
        (
            "extends: h200\ncard: {gpu: H200, memory_gb: .inf, measured: true}",
            "mine: card.memory_gb is inf, and must be a number, more than 0",
        ),
    ],
    ids=range(26),
)
def test_a_file_that_is_no_profile(text: str | bytes, line: str, load: Load):
    assert refusal(load, text).startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("recognition: {engine: glm_ocr, server: {}}", "profile mine.yaml+glm_ocr: there is no section 'layout'"),
        (
            "layout: cpu\nrecognition: {engine: glm_ocr, server: {}}",
            "profile mine.yaml+glm_ocr: layout is 'cpu', and must be a mapping, as {engine: NAME}",
        ),
        (
            "extends: l4\ncard: {gpu: L4, memory_gb: much, measured: true}",
            "profile mine.yaml+deepseek_ocr: card.memory_gb is 'much', and must be a number, more than 0",
        ),
    ],
)
def test_a_profile_with_a_mistake_takes_no_reader(
    text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "mine.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    name = line.split()[1].removesuffix(":")
    with pytest.raises(ConfigError) as refused:
        read_settings({"KOPUB_PROFILE": name, "KOPUB_HOME": str(tmp_path)})
    assert str(refused.value).startswith(line)


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        (
            "KOPUB_EMBEDING__DIM",
            "512",
            "KOPUB_EMBEDING__DIM is no setting (did you mean KOPUB_EMBEDDING__DIM?); there are ",
        ),
        (
            "KOPUB_EMBEDDING_DIM",
            "512",
            "KOPUB_EMBEDDING_DIM is no setting (did you mean KOPUB_EMBEDDING__DIM?); there ",
        ),
        ("KOPUB_HOM", "x", "KOPUB_HOM is no setting (did you mean KOPUB_HOME?); there are KOPUB_HOME, KOPUB_PROFILE, "),
        ("KOPUB_COLOUR", "x", "KOPUB_COLOUR is no setting; there are KOPUB_HOME, "),
        (
            "KOPUB_EMBEDDING__DMI",
            "512",
            "profile mine: embedding has no key 'dmi' (did you mean dim?); it has engine, ",
        ),
        (
            "KOPUB_EMBEDDING__DIM",
            "x",
            "profile mine: embedding.dim is 'x', and must be a whole number, from 64 to 16384 (KOPUB_EMBEDDING__DIM)",
        ),
        ("KOPUB_EMBEDDING__DIM__X", "1", "profile mine: embedding.dim is {'x': 1}, and must be a whole number"),
        ("KOPUB_EMBEDDING", "512", "profile mine: embedding is 512, and must be a mapping, as {engine: NAME}"),
        ("KOPUB_EMBEDDING", "x", "KOPUB_EMBEDDING: 'x' is neither a list, as [a, b]"),
        ("KOPUB_SHARDS_PER_RUN", "many", "profile mine: shards_per_run is 'many', and must be a whole number"),
        ("KOPUB_HOME", "", "KOPUB_HOME is empty: name a folder, or unset it"),
        ("KOPUB_HOME", " ", "KOPUB_HOME is empty: name a folder, or unset it"),
        (
            "KOPUB_HOME",
            "s3://bucket",
            "KOPUB_HOME: 's3://bucket' is a URL, and must be a folder of this machine",
        ),
        ("KOPUB_HOME", __file__, f"KOPUB_HOME: {__file__!r} is a file, and must be a folder"),
        ("KOPUB_HOME", "x" * 1000, "KOPUB_HOME: 'xxxxx"),
        ("KOPUB_STORE__URL", __file__, f"profile mine: store.url: {__file__!r} is a file, and must be a folder"),
        ("KOPUB_RELEASE__FOLDER", __file__, f"profile mine: release.folder: {__file__!r} is a file, and must be a "),
        ("KOPUB_HOME", "~nobody-of-this-name/x", "KOPUB_HOME: '~nobody-of-this-name/x' is no folder"),
        ("KOPUB_PROFILE", "", "profile '': there is no such profile; there are b200, cpu, h100"),
        (
            "KOPUB_PROFILE",
            "h20",
            "profile h20: there is no such profile (did you mean h200?); there are b200, cpu, h100",
        ),
        ("KOPUB_PROFILE", "models", "profile models: there is no such profile; there are b200, cpu, h100"),
        (
            "KOPUB_PROFILE",
            "/no/such.yaml",
            "profile /no/such.yaml: there is no such profile; there are b200, cpu, h100",
        ),
    ],
)
def test_what_a_variable_cannot_say(variable: str, value: str, line: str, load: Load):
    assert refusal(load, **{variable: value}).startswith(line)


def test_variables_of_others_are_no_settings(load: Load):
    load(
        KOPUB_TEST_CORPUS="x",
        KOPUB_RUNTIME="x",
        KOPUB_GLM_OCR_ENCODER="1",
        # Kubernetes sets these for services called kopub and kopub-ui.
        KOPUB_SERVICE_HOST="10.0.0.1",
        KOPUB_UI_PORT="tcp://10.0.0.1:3000",
        KOPUB_UI_PORT_3000_TCP_ADDR="10.0.0.1",
    )


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("foo://x", "profile mine: store.url: 'foo://x' has the unknown protocol 'foo'"),
        ("s3x://b/c", "profile mine: store.url: 's3x://b/c' has the unknown protocol 's3x' (did you mean s3"),
        ("simplecache::s3x://b", "profile mine: store.url: 'simplecache::s3x://b' has the unknown protocol 's3x'"),
        ("s3:/b/c", "profile mine: store.url: 's3:/b/c' is malformed: write s3://b/c, or the path of a folder"),
        ("s3://", "profile mine: store.url: 's3://' names no bucket or folder"),
        ("://b", "profile mine: store.url: '://b' has the unknown protocol ''"),
        ("", "profile mine: store.url: '' is neither a folder nor a URL such as s3://bucket/prefix"),
        ("nowhere://b", "profile mine: store.url: 'nowhere://b' needs a package that is missing: Install nowherefs"),
    ],
)
def test_a_store_that_no_package_opens(url: str, line: str, load: Load, monkeypatch: pytest.MonkeyPatch):
    known = {"class": "no_such_package.FileSystem", "err": "Install nowherefs"}
    monkeypatch.setitem(known_implementations, "nowhere", known)
    assert refusal(load, KOPUB_STORE__URL=url).startswith(line)


@pytest.mark.parametrize("url", ["relative", "./relative", "file://relative", "local://relative"])
def test_a_relative_store_is_the_same_folder_wherever_a_command_starts(
    url: str, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    settings = load(CPU + f"store: {{url: '{url}'}}\nrelease: {{folder: mine}}\n")
    assert settings.store.url == str(tmp_path / "relative"), "beside the profile"
    assert settings.release.folder == str(tmp_path / "mine")
    assert load(CPU, KOPUB_STORE__URL=url).store.url == str(ROOT / "relative"), "below the checkout"


@pytest.mark.parametrize("url", ["memory://", "memory://x", "/tmp/x", "simplecache::memory://x", "~/x"])
def test_a_store_that_can_be_opened_is_left_as_it_is(url: str, load: Load):
    assert load(KOPUB_STORE__URL=url).store.url == os.path.expanduser(url)


def test_every_folder_and_file_of_a_profile_lies_beside_it(load: Load, tmp_path: Path):
    for folder, place in {
        "own": tmp_path / "own",
        "../own": tmp_path.parent / "own",
        "~/own": Path.home() / "own",
    }.items():
        sinks = f"sinks: {{engine: lancedb, url: {folder}}}\ndocuments: {{chunks: true}}\n"
        assert load(CPU + sinks).sinks.url == str(place)  # pyright: ignore[reportAttributeAccessIssue]
    served = CPU.replace("engine: tesseract", "engine: glm_ocr, model: glm_ocr, reuse_folder: answers")
    assert load(served).recognition.reuse_folder == str(tmp_path / "answers")  # pyright: ignore
    onnx = CPU.replace("engine: tesseract", "engine: ppocr, weights_file: weights/own.onnx")
    assert load(onnx).recognition.weights_file == str(tmp_path / "weights" / "own.onnx")  # pyright: ignore
    postgres = "sinks: {engine: pgvector, url: host=db dbname=x}\ndocuments: {chunks: true}\n"
    assert load(CPU + postgres).sinks.url == "host=db dbname=x"  # pyright: ignore[reportAttributeAccessIssue]
