"""What is made: the assets, one module each."""

import warnings

import dagster as dg

# `backfill_policy` has been in beta for years and is what a range in one run needs.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
