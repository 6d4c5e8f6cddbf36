"""Page segmentation without weights."""
