"""The imports of the fork server: the platform, and what its commands import later."""

import gc
import warnings
from functools import partial
from typing import Any
from unittest.mock import patch

import alembic.command  # noqa: F401
import antlr4  # noqa: F401
import cv2  # noqa: F401
import dagster._cli
import dagster._core.execution.execute_in_process
import dagster._core.instance.runs.run_domain
import dagster._core.storage.event_log
import dagster._core.storage.runs
import dagster._core.storage.schedules
import dagster._daemon.cli  # noqa: F401
import dagster_dg_cli.cli  # noqa: F401
import datasets  # noqa: F401
import huggingface_hub  # noqa: F401
import imagecodecs  # noqa: F401
import jinja2  # noqa: F401
import kiwipiepy
import lap  # noqa: F401
import mmh3  # noqa: F401
import numkong  # noqa: F401
import pandas  # noqa: F401
import PIL.Image
import pyarrow.acero
import pyarrow.dataset  # noqa: F401
import rich.console
import rich.table  # noqa: F401
import tesserocr  # noqa: F401
import upath  # noqa: F401

import kopub.api.search
import kopub.cli.commands.index
import kopub.cli.commands.plan
import kopub.cli.commands.run
import kopub.cli.main
import kopub.cli.run_display
import kopub.cli.score_lines
import kopub.doctor.checks
import kopub.embedding.hashed
import kopub.layout.cpu.detector
import kopub.layout.cpu.engine
import kopub.recognition.tesseract.recognizer
import kopub.release.verify
import kopub.weights.fetch  # noqa: F401
import kopub_assets.definitions  # noqa: F401
import tests.support.processes.kill_child  # noqa: F401
from kopub.search import morphemes
from tests.support.dagster.quick_history import make_history_quick
from tests.support.no_power_cut import wait_for_no_disk


class WithoutThreads(kiwipiepy.Kiwi):
    """A Kiwi model without threads, which do not survive a fork."""

    def __init__(self, **fields: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().__init__(num_workers=0, **fields)

    def tokenize(self, text: Any, *_: Any, **options: Any) -> Any:
        one = partial(super().tokenize, **options)
        return one(text) if isinstance(text, str) else map(one, text)


PIL.Image.init()
wait_for_no_disk()
make_history_quick()
with patch.object(kiwipiepy, "Kiwi", WithoutThreads):
    morphemes.korean_analyser()
# A garbage collection in a fork would otherwise touch, and so copy, the shared pages.
gc.collect()
gc.freeze()
