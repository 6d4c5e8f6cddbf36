"""One module for each kind of page that the room shows.

A view takes what was asked for, and returns a template and its values.
"""
