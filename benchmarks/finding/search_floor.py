"""Count searches that match nothing well, for a corpus's questions and other topics.

    python -m benchmarks.finding.search_floor HOME ... [--floors 0.08 0.1 0.12 0.14 0.2]

Each home holds the tables of a corpus made with its profile ($KOPUB_PROFILE), and the corpus's questions. The questions
on other topics are thirty about everyday things, which no manual answers, in Korean and English. A false alarm is a
question of the corpus that is reported to match nothing well.
"""

import argparse
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kopub.cli.commands.search import searcher_of
from kopub.config.settings import read_settings
from kopub.search.options import Mode

OTHER = [
    "김치찌개 맛있게 끓이는 법",
    "내일 서울 날씨",
    "비트코인 시세 전망",
    "강아지 예방접종 시기",
    "제주도 3박 4일 여행 코스",
    "손흥민 이번 시즌 골 기록",
    "아파트 전세 대출 금리",
    "임신 초기 증상",
    "수능 수학 기출 문제",
    "코로나 백신 부작용",
    "자동차 엔진오일 교환 주기",
    "국민연금 수령 나이",
    "부산에서 가볼 만한 맛집",
    "다이어트 식단 추천",
    "퇴직금 계산 방법",
    "여권 재발급 절차",
    "주택 청약 자격 조건",
    "허리 통증에 좋은 운동",
    "조선시대 왕 계보",
    "지구 온난화의 원인은 무엇인가요?",
    "최저임금은 얼마인가요?",
    "커피 원두 보관 방법",
    "고양이가 밥을 안 먹을 때",
    "피아노 악보 보는 법",
    "태양광 발전 보조금 신청",
    "what is the capital of France",
    "best pizza in New York",
    "how to train a puppy",
    "climate change policy in Korea",
    "stock market crash 1929",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("homes", nargs="+", type=Path)
    parser.add_argument("--floors", nargs="+", type=float, default=[0.08, 0.1, 0.12, 0.14, 0.2])
    parser.add_argument("--modes", nargs="+", type=Mode, default=[Mode.BM25, Mode.FUSION])
    arguments = parser.parse_args()
    table = Table(box=None, header_style="bold")
    for column in ("home", "mode", "floor", "own questions", "false alarms", "of other topics", "told"):
        table.add_column(column, justify="left" if column in ("home", "mode") else "right")
    for home in arguments.homes:
        for floor in arguments.floors:
            settings = read_settings({**os.environ, "KOPUB_HOME": str(home), "KOPUB_SEARCH__FLOOR": str(floor)})
            searcher = searcher_of(settings)
            corpus = settings.corpus
            own = [query.query for shard in corpus.manifest.keys for query in corpus.queries(shard)]
            for mode in arguments.modes:
                alarms = [
                    sum(searcher.search(q, 1, mode).matches_well is False for q in asked) for asked in (own, OTHER)
                ]
                counts = (str(len(own)), str(alarms[0]), str(len(OTHER)), str(alarms[1]))
                table.add_row(home.name, mode, f"{floor:.2f}", *counts)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
