"""The engines of the cpu profile, in a module that is quickly imported."""

CPU = {"layout": {"engine": "cpu"}, "recognition": {"engine": "tesseract"}, "embedding": {"engine": "hashed"}}
