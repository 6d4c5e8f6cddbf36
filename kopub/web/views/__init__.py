"""The views: a module for each kind of page that the room shows.

A view takes a request, and returns a template and its values.
"""
