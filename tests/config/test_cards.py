"""Every reader on every card fits or is refused, and vLLM's parser accepts its flags."""

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from kopub.config.memory import demands_at_once, memory_demands, memory_sums
from kopub.config.profile_files import find_profile, known_profiles, known_readers
from kopub.config.settings import Settings, read_settings
from kopub.doctor.checks import Level
from kopub.doctor.environment import examine, managed_servers
from kopub.errors import ConfigError
from kopub.recognition.vlm.deepseek_ocr import DeepSeekOcrRecognizer
from kopub.recognition.vlm.recognizer import VlmRecognizer
from kopub.vllm.served_engine import ServedEngine
from kopub.vllm.server_fields import serve_arguments
from tests.support.servers.vllm_cpu import needs_vllm, program

CARDS = [name for name in known_profiles() if find_profile(name).card and name != "h200_korean"]
NAMES = [*CARDS, *(f"{card}+{reader}" for card in CARDS for reader in known_readers())]
TOO_LARGE = {f"rtx4060+{reader}" for reader in ("deepseek_ocr", "deepseek_pages")}


@cache
def load(name: str, **changes: str) -> Settings:
    return read_settings({"KOPUB_PROFILE": name, "KOPUB_HOME": "/nowhere"}, changes)


def test_there_is_a_card_of_every_size_that_is_sold() -> None:
    sizes = {card.memory_gb for name in CARDS if (card := find_profile(name).card)}
    assert sizes == {8, 16, 24, 48, 80, 141, 180}


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_takes_less_than_its_card_has_or_is_refused(name: str) -> None:
    if name in TOO_LARGE:
        sums = r"does not fit on RTX 4060, 8 GB: [\d.]+ GB are needed \(.*weights 6\.7, cache 0\.5, activations"
        with pytest.raises(ConfigError, match=sums):
            load(name)
        return
    settings = load(name)
    assert settings.card is not None
    total = int(settings.card.memory_gb * 1e9)
    asks = memory_demands(settings.engines, 1)
    assert sum(ask.of(total) for ask in demands_at_once(asks, total)) < total
    for ask in asks:
        assert not ask.server or ask.server.cache_is_fixed
    assert f"of {settings.card.memory_gb:g} GB at once" in memory_sums(settings.engines, settings.card)[0]


@pytest.mark.parametrize(
    ("card", "sequences", "share"), [("rtx4090", 100, 0.9), ("l4", 100, 0.9), ("rtx4060", 10, 0.75)]
)
@pytest.mark.parametrize("reader", ["deepseek_ocr", "deepseek_pages"])
def test_deepseek_has_the_limits_of_its_first_users(card: str, sequences: int, share: float, reader: str) -> None:
    small = {"recognition.server.quantization": "fp8"} if card == "rtx4060" else {}
    if small and reader == "deepseek_pages":
        small["layout.server.quantization"] = "fp8"
    settings = load(f"{card}+{reader}", **small)
    assert isinstance(settings.recognition, DeepSeekOcrRecognizer)
    server = settings.recognition.server
    assert (server.max_num_seqs, server.gpu_memory_utilization) == (sequences, share)


@pytest.mark.parametrize(
    ("device", "gpus"), [("cuda", [0]), ("cuda:1", [1]), ("cuda:0, cuda:2", [0, 2]), ("cuda:0,cpu", [0]), ("cpu", [])]
)
def test_a_layout_model_takes_memory_on_each_of_its_devices(device: str, gpus: list[int]) -> None:
    asks = memory_demands(load("h200", **{"layout.device": device}).engines, 1)
    assert [ask.gpu for ask in asks if ask.who == "layout"] == gpus


@pytest.mark.parametrize("name", ["rtx4060", "h200"])
def test_the_sums_of_a_card_are_those_of_one_card(name: str) -> None:
    """Servers on a second card take nothing of the first."""
    one, two = (load(name, **{"recognition.server.gpus": gpus}) for gpus in ("[0]", "[0, 1]"))
    assert one.card is not None
    assert memory_sums(two.engines, one.card) == memory_sums(one.engines, one.card)


def test_a_reader_of_whole_pages_shares_its_server_with_the_layout() -> None:
    settings = load("h200+deepseek_pages")
    assert isinstance(settings.layout, ServedEngine)
    assert isinstance(settings.recognition, ServedEngine)
    assert settings.layout.server == settings.recognition.server
    servers = {ask.who for ask in memory_demands(settings.engines, 1)}
    assert servers == {"layout and recognition server", "embedding server"}


def test_only_what_was_measured_is_called_so() -> None:
    measured = {name for name in NAMES if name not in TOO_LARGE and (card := load(name).card) and card.measured}
    assert measured == {"h100", "h100+glm_ocr", "h200", "h200+glm_ocr", "h200+deepseek_pages"}


def test_a_fixed_cache_smaller_than_one_longest_request_is_refused() -> None:
    line = (
        r"recognition\.server\.kv_cache_memory is 128M, and one request of max_model_len \(16384 tokens\) takes 1024M"
    )
    with pytest.raises(ConfigError, match=line):
        load("rtx4090", **{"recognition.server.kv_cache_memory": "128M"})


def test_sums_that_exceed_the_card_are_a_problem_and_never_ok() -> None:
    shares = {f"{section}.server.gpu_memory_utilization": "0.6" for section in ("recognition", "embedding")}
    settings = load("h200", **shares)
    assert settings.card is not None
    sums, fits = memory_sums(settings.engines, settings.card)
    assert not fits
    (finding,) = [each for each in examine(settings, lambda: {"problem": "no GPU"}) if each.says == sums]
    assert finding.level is Level.PROBLEM


def test_a_cache_that_the_share_leaves_no_room_for_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    server = "{kv_cache_memory: null, gpu_memory_utilization: 0.3}"
    mine.write_text(f"extends: rtx4090+deepseek_ocr\nrecognition: {{server: {server}}}\n")
    with pytest.raises(ConfigError, match="profile mine: it does not fit on RTX 4090, 24 GB"):
        load(str(mine))


def test_the_doctor_shows_the_sums_on_any_machine(tmp_path: Path) -> None:
    settings = read_settings({"KOPUB_PROFILE": "rtx4090+deepseek_ocr", "KOPUB_HOME": str(tmp_path)})
    said = {each.check: each.says for each in examine(settings, probe=lambda: {"problem": "no"})}["memory of RTX 4090"]
    assert "at most 23.2 of 24 GB at once, by arithmetic" in said
    assert "recognition server 20.3 (weights 6.7, cache 10.7, activations 2.4, CUDA 0.5)" in said


_PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for arguments in json.load(sys.stdin):
    parser.parse_args(arguments)
print("all", flush=True)
parser.parse_args([*arguments, "--no-such-flag"])
"""


@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(600)
def test_vllm_s_own_parser_takes_the_flags_of_every_reader_on_every_card() -> None:
    commands = []
    for name in NAMES:
        if name not in TOO_LARGE:
            engines = load(name).engines
            assert isinstance(engines["recognition"], VlmRecognizer)
            commands += [serve_arguments(server) for server in managed_servers(engines).values()]
    assert len(commands) >= 2 * (len(NAMES) - len(TOO_LARGE))
    found = program()
    assert found is not None
    done = subprocess.run(
        [str(found.with_name("python")), "-c", _PARSE],
        input=json.dumps(commands), capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.stdout.strip().endswith("all"), done.stderr[-2000:]
    assert done.returncode
    assert "--no-such-flag" in done.stderr
