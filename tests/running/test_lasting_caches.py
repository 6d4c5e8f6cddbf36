"""Processes keep what they compile in lasting caches."""

import os
from pathlib import Path

import pytest

from kopub.processes import beside_program, lasting_caches


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package without compiled files and without write access."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    package = tmp_path / "site-packages" / "package"
    package.mkdir(parents=True)
    return package


def test_compiled_files_go_to_the_cache_where_a_package_is_not_writable(package: Path, tmp_path: Path) -> None:
    prefix = str(tmp_path / ".cache" / "kopub" / "bytecode")
    assert lasting_caches({}, [package])["PYTHONPYCACHEPREFIX"] == prefix
    assert "PYTHONPYCACHEPREFIX" not in lasting_caches({"PYTHONPYCACHEPREFIX": "/mine"}, [package])


def test_a_package_with_compiled_files_keeps_them(package: Path) -> None:
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "envs.cpython-311.pyc").touch()
    assert "PYTHONPYCACHEPREFIX" not in lasting_caches({}, [package])


def test_a_server_s_package_is_the_one_beside_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    program, vllm = tmp_path / "bin" / "vllm", tmp_path / "lib" / "python3.11" / "site-packages" / "vllm"
    vllm.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    prefix = str(tmp_path / ".cache" / "kopub" / "bytecode")
    assert lasting_caches({}, beside_program(program, "vllm"))["PYTHONPYCACHEPREFIX"] == prefix
    (vllm / "__pycache__").mkdir()
    (vllm / "__pycache__" / "envs.cpython-311.pyc").touch()
    assert "PYTHONPYCACHEPREFIX" not in lasting_caches({}, beside_program(program, "vllm"))


def test_what_the_model_is_compiled_to_outlives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert lasting_caches({}, [])["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / ".cache" / "kopub" / "inductor")
    assert "TORCHINDUCTOR_CACHE_DIR" not in lasting_caches({"TORCHINDUCTOR_CACHE_DIR": "/mine"}, [])
