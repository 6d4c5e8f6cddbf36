"""Every option and setting that takes a local path refuses a URL in one line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import kopub
from kopub.cli.main import app
from kopub.config.settings import Settings, read_settings
from kopub.errors import ConfigError, KopubError, SourceError
from tests.support.cpu_engines import CPU

URL = "s3://bucket/place"


@pytest.mark.parametrize(
    "command",
    [
        ["read", URL],
        ["evaluate", "lines", URL],
        ["evaluate", "lines", ".", "--html", URL],
        ["evaluate", "lines", ".", "--predictions", URL],
        ["diff", "shard_00", "--html", URL],
        ["lineage", "a_1", "--crop", URL],
        ["profile", "--out", URL],
    ],
    ids=lambda command: " ".join(word for word in command if word != URL),
)
def test_an_option_that_takes_a_path(command: list[str]):
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == f"{URL} is a URL: name a path on this machine"
    assert not Path("s3:").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "lines", ".", "--html"],
        ["diff", "shard_00", "--html"],
        ["doctor", "--full", "--out"],
        ["profile", "--out"],
    ],
    ids=lambda command: command[0],
)
def test_an_option_that_takes_a_file_refuses_a_folder_before_any_work(command: list[str], tmp_path: Path):
    done = CliRunner().invoke(app, [*command, str(tmp_path)])
    assert (type(done.exception), str(done.exception)) == (ConfigError, f"{tmp_path} is a folder: name a file")


def test_an_option_that_takes_a_folder_refuses_a_file_before_any_work():
    done = CliRunner().invoke(app, ["evaluate", "lines", ".", "--predictions", __file__])
    assert (type(done.exception), str(done.exception)) == (ConfigError, f"{__file__} is a file: name a folder")


def test_a_path_that_is_left_out_is_taken():
    done = CliRunner().invoke(app, ["evaluate", "list"])
    assert (done.exit_code, "mdpbench" in done.output) == (0, True)


@pytest.mark.parametrize("variable", ["KOPUB_HOME", "KOPUB_RUNTIME"])
def test_a_variable_that_takes_a_folder(variable: str):
    with pytest.raises(ConfigError, match=f"{variable}: '{URL}' is a URL, and must be a folder of this machine"):
        read_settings({variable: URL})


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("release", {"folder": "s3://bucket/r", "made_in": URL}),
        ("gates", {"benchmarks": {"lines": URL}}),
        ("layout", {"engine": "given", "home": URL}),
    ],
)
def test_a_setting_that_takes_a_folder(section: str, keys: dict[str, object], tmp_path: Path):
    with pytest.raises(ConfigError, match=r"is a URL, and must be a folder of this machine"):
        Settings.of(tmp_path, {**CPU, section: keys})


@pytest.mark.parametrize(("section", "key"), [("corpus", "url"), ("store", "url"), ("release", "folder")])
def test_a_setting_that_takes_a_url_names_the_wrong_ones(section: str, key: str, tmp_path: Path):
    for wrong, said in (("s4://b/x", "unknown protocol 's4'"), ("s3:bucket", "malformed: write s3://bucket")):
        with pytest.raises(ConfigError, match=rf"profile mine: {section}\.{key}: .*{said}"):
            Settings.of(tmp_path, {**CPU, section: {key: wrong}})


def test_the_home_of_a_machine_is_apart_from_what_is_shared(tmp_path: Path):
    shared = {"corpus": {"url": f"{URL}/c/", "cache_gb": 2}, "release": {"folder": f"{URL}/r"}}
    settings = Settings.of(tmp_path, {**CPU, **shared})
    assert (settings.corpus.home, settings.corpus.url, settings.corpus.cache_gb) == (str(tmp_path), f"{URL}/c", 2)
    assert (settings.release.url, settings.release.root) == (f"{URL}/r", tmp_path / "release")


def test_the_package_reads_files_of_this_machine(tmp_path: Path):
    with pytest.raises(SourceError, match="is a URL: name a file of this machine"):
        kopub.read(URL)
    with pytest.raises(KopubError, match="unknown protocol 's4'"):
        kopub.open(tmp_path, index="s4://bucket/index")


@pytest.mark.parametrize("command", [["run", "--home", ""], ["export", "--markdown", ""], ["verify", " "]])
def test_an_option_that_takes_a_path_and_gets_none(command: list[str]) -> None:
    # Otherwise an unset variable in a script would make the current folder a home, or fill it with an export.
    done = CliRunner().invoke(app, command)
    assert (type(done.exception), str(done.exception)) == (ConfigError, "a path is empty: name a folder or a file")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["index", ".", "--home", "~nobody/x"], "KOPUB_HOME: '~nobody/x' is no folder"),
        (["read", "~nobody/x.png"], "~nobody/x.png' is no file"),
        (["run"], "DAGSTER_HOME is '~nobody/x': Dagster needs an absolute path"),
    ],
)
def test_the_home_of_an_unknown_user(
    command: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr("pwd.getpwnam", unknown)
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "~nobody/x")
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, KopubError), done.exception
    assert says in str(done.exception)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["lineage", "a_1", "--region", "3"], "--region needs --crop: add it"),
        (["corrections", "--reason", "a typo"], "--reason needs --undo: add it"),
        (["mcp", "--port", "3031"], "--port needs --http: add it"),
        (["verify", ".", "--revision", "v1"], "--revision is of a repository: leave it out for a folder or a URL"),
        (["publish", "--json"], "--json needs --dry-run: add it"),
    ],
)
def test_an_option_without_the_one_it_is_for(command: list[str], says: str) -> None:
    done = CliRunner().invoke(app, command)
    assert (type(done.exception), str(done.exception)) == (ConfigError, says)
