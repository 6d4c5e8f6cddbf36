"""Good and bad answers of chat models to questions about figures."""

import json
from typing import Any

from aiohttp import web

from tests.doubles.http_double import HttpDouble, Reply, SentRequest, error, says

DESCRIPTION = "2019년부터 2021년까지 전력 사용량이 해마다 늘어난 것을 보여 주는 막대그래프이다."
NOTE: dict[str, Any] = {
    "kind": "bar_chart",
    "description": DESCRIPTION,
    "keywords": ["전력 사용량", "막대그래프", "연도별"],
    "data": [["연도", "GWh"], ["2019", "120"], ["2020", "131"]],
    "smiles": "",
}


def answer(**changes: Any) -> str:
    """Return a complete answer in the requested form."""
    return json.dumps({**NOTE, **changes}, ensure_ascii=False)


VALID = answer()
FENCED = f"다음은 그림에 대한 설명입니다.\n```json\n{json.dumps(NOTE, ensure_ascii=False, indent=2)}\n```\n"
CUT = VALID[:60]
REFUSAL = answer(kind="other", description="죄송하지만 이 이미지에 대해서는 설명할 수 없습니다.", keywords=[], data=[])
PLAIN_REFUSAL = "I'm sorry, but I can't assist with that request."
ENGLISH = answer(description="A bar chart of the electricity used from 2019 to 2021, which grows every year.")
LOOP = VALID[:40] + "전력 사용량이 늘어났다. " * 80
PROSE = "전력 사용량을 보여 주는 막대그래프입니다. 해마다 늘어났습니다."


def chat(*answers: tuple[str, str]) -> HttpDouble:
    """Return a server giving each figure `answers` (text, finish reason) in turn, repeating the last."""
    turns: dict[bytes, int] = {}

    async def reply(asked: SentRequest) -> web.StreamResponse:
        turn = turns.get(asked.image, 0)
        turns[asked.image] = turn + 1
        return says(*answers[min(turn, len(answers) - 1)])

    return HttpDouble(reply=reply)


def without_structured_outputs() -> Reply:
    """Return the reply of a server that does not support `response_format`."""

    async def reply(asked: SentRequest) -> web.StreamResponse:
        if "response_format" in asked.body:
            return error(400, "response_format is not supported")
        return says(VALID)

    return reply
