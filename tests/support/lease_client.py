"""A process that takes a lease on a server, says which it got, and holds it for a while."""

CLIENT = """
import json, sys, time
from resources.vllm.server import VLLMServer
with VLLMServer(**json.loads(sys.argv[1])).lease() as endpoint:
    print(endpoint.boot, endpoint.urls[0], flush=True)
    time.sleep(float(sys.argv[2]))
"""
