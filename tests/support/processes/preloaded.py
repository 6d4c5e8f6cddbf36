"""What the server of `forked` imports: the platform, and what its commands would import later."""

import alembic.command  # noqa: F401
import antlr4  # noqa: F401
import bm25s  # noqa: F401
import cv2  # noqa: F401
import dagster._cli
import dagster._core.storage.event_log
import dagster._core.storage.runs
import dagster._core.storage.schedules  # noqa: F401
import dagster_dg_cli.cli  # noqa: F401
import datasets  # noqa: F401
import huggingface_hub  # noqa: F401
import imagecodecs  # noqa: F401
import ir_measures  # noqa: F401
import jinja2  # noqa: F401
import kiwipiepy  # noqa: F401
import pandas  # noqa: F401
import PIL.Image  # noqa: F401
import pyarrow.dataset  # noqa: F401
import rich.console
import rich.table  # noqa: F401
import scipy.stats  # noqa: F401
import sklearn.feature_extraction.text
import sklearn.preprocessing
import sklearn.random_projection  # noqa: F401
import tesserocr  # noqa: F401
import usearch.index  # noqa: F401

import definitions  # noqa: F401
import kopub_cli.main  # noqa: F401
import tests.support.processes.kill_child  # noqa: F401
