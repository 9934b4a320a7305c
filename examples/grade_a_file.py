"""Grade answers of your own, from a file with a JSON object a line: `response`, `gold`, perhaps `choices`.

    python examples/grade_a_file.py examples/answers.jsonl

The command line has the same: `atrl-bench grade examples/answers.jsonl`.
"""

import sys
from pathlib import Path

from atrl_bench.grading.answer_file import grade_file


def main() -> None:
    graded = grade_file(Path(sys.argv[1]))
    for answer in graded.answers:
        print(f"{answer.state:12} {answer.extracted or '-':8} {answer.why}")
    right = sum(answer.state == "correct" for answer in graded.answers)
    print(f"{right} of {len(graded.answers)} are right.")


if __name__ == "__main__":
    main()
