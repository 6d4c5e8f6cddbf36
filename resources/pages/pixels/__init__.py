"""The pixels of pages: decoding, colours, and what is drawn on them."""
