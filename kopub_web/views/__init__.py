"""One module for each kind of page that the room shows: what was asked for in, a template and its values out."""
