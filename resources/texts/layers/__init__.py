"""The text layers of PDFs: whether one can be believed, what it says of each region, how far it is from a reading."""
