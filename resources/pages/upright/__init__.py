"""Pages set upright: paper on a background, skew and quarter turns are found once and taken off."""
