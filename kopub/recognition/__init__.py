"""Read what is written in every region of a page."""
