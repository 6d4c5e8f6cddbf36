"""The Dagster resources of a profile."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import dagster as dg

from kopub.config.profile import nested_resource
from kopub.engine import Resource
from kopub.vllm.server import VLLMServer
from resources import engines, options, storage
from resources.base import ProfileResource, launchpad_fields

OWN: Mapping[str, type[ProfileResource]] = {
    "kopub.layout.pp_doclayout.detector:PPDocLayout": engines.GpuLayoutResource,
    "kopub.layout.cpu.engine:CpuLayout": engines.CpuLayoutResource,
    "kopub.recognition.deepseek_layout.detector:DeepSeekOcrLayout": engines.DeepSeekOcrLayoutResource,
    "kopub.layout.ground_truth:GroundTruthLayout": engines.GivenLayoutResource,
    "kopub.recognition.tesseract.recognizer:TesseractRecognizer": engines.TesseractResource,
    "kopub.recognition.ppocr.recognizer:PpOcrRecognizer": engines.PpOcrResource,
    "kopub.recognition.vlm.in_process:TransformersRecognizer": engines.TransformersResource,
    "kopub.recognition.vlm.glm_ocr:GlmOcrRecognizer": engines.GlmOcrResource,
    "kopub.recognition.vlm.deepseek_ocr:DeepSeekOcrRecognizer": engines.DeepSeekOcrResource,
    "kopub.recognition.vlm.paddleocr_vl:PaddleOcrVlRecognizer": engines.PaddleOcrVlResource,
    "kopub.embedding.hashed:HashedEmbedder": engines.HashedEmbeddingResource,
    "kopub.embedding.sentence:SentenceEmbedder": engines.SentenceEmbeddingResource,
    "kopub.embedding.qwen3_vl:Qwen3VLEmbedder": engines.Qwen3VLEmbeddingResource,
    "kopub.reranking.base:NoReranking": engines.NoRerankingResource,
    "kopub.reranking.qwen3_vl:Qwen3VLReranker": engines.Qwen3VLRerankingResource,
    "kopub.sinks.base:NoSink": storage.SinkResource,
    "kopub.sinks.lancedb:LanceDbSink": storage.SinkResource,
    "kopub.sinks.pgvector:PgVectorSink": storage.SinkResource,
    "kopub.sinks.qdrant:QdrantSink": storage.SinkResource,
    "kopub.figures.figure:NoNotes": engines.NoNotesResource,
    "kopub.figures.noters:ChatNoter": engines.ChatNotesResource,
    "kopub.figures.noters:DeepSeekNoter": engines.DeepSeekNotesResource,
    "kopub.pages.corpus:Corpus": storage.CorpusResource,
    "kopub.store.table_store:ShardStore": storage.StoreResource,
    "kopub.release.local:LocalRelease": storage.ReleaseResource,
    "kopub.release.hub:HubTarget": storage.HubResource,
    "kopub.release.gates:Gates": options.GatesResource,
    "kopub.config.choices:Pdf": options.PdfResource,
    "kopub.config.choices:Figures": options.FiguresResource,
    "kopub.config.choices:Documents": options.DocumentsResource,
    "kopub.vllm.server:VLLMServer": engines.VLLMServerResource,
}
"""The resource of each class of this project, by names as in entry points, so that no other engine is imported."""


def dagster_resources(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a platform by name, as Dagster takes them.

    Values that are no resources, such as the profile's name, are passed unchanged. The model server of an engine is a
    resource of its own, `<name>_server`.
    """
    resources: dict[str, Any] = {}
    for name, part in parts.items():
        if not isinstance(part, Resource):
            resources[name] = part
            continue
        resource, servers = resource_of(type(part)), {}
        if isinstance(server := getattr(part, "server", None), VLLMServer):
            servers["server"] = resources[f"{name}_server"] = engines.VLLMServerResource.of(f"{name}_server", server)
        resources[name] = resource.of(name, part, **servers)
    return resources


@cache
def resource_of(part: type[Resource]) -> type[ProfileResource]:
    """Return the resource that makes instances of `part`.

    Only an engine of another package gets a class that is made here.
    """
    if own := OWN.get(f"{part.__module__}:{part.__qualname__}"):
        return own
    fields = launchpad_fields(part)
    if nested_resource(part, "server") is VLLMServer:
        fields["server"] = dg.ResourceDependency[VLLMServer]
    namespace = {"__annotations__": fields, "__module__": part.__module__, "__doc__": part.__doc__}
    return type(f"{part.__name__}Resource", (ProfileResource,), namespace)
