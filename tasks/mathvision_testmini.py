"""MATH-Vision: testmini, and the whole test split.

Wang et al., "Measuring Multimodal Mathematical Reasoning with MATH-Vision Dataset", NeurIPS 2024 (datasets and
benchmarks). testmini has 304 rows, 19 of each of 16 subjects: 190 with five options, 114 free-form. It is a part of
the test split of 3,040 rows (1,532 and 1,508): scores on the two are no independent evidence.

An example, id 6: "Misty the cat has five kittens: two of them are striped, one spotty, the rest of them are absolutely
white. In which picture can we see the kittens of Misty, knowing that the ears of one of them are of different colour?
<image1>", options `A` to `E`, which stand under the five parts of the picture. Gold: `D`.

The one image of a row shows every part that the text calls `<image1>`, `<image2>` and so on. Id 59 has no options and
the gold `C`: its letters are only in the picture, so a letter is what is compared. The test split has some damaged gold
(`\\x0crac{36}{13}`, `$\\boxed{4}$`, `69{degrees}`), repaired by `repair_latex`; in testmini no row has. Numbers are
compared exactly, where lmms-eval rounds both sides to two decimal places and takes 2.004 for 2.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, column, hooks, picture, prepare, repair_latex
from atrl_bench.models.templates import with_choices

COLUMNS = ("id", "question", "options", "answer", "decoded_image")
KEPT = ("subject", "level")
BREAKDOWN = "subject"
process_docs = prepare
problem_id = column("id")  # the id of the full test split
group = problem_id  # every problem is asked once
images = picture("decoded_image")  # the one image, composed of all parts


def question(row: Row) -> str:
    return with_choices(row["question"], row["options"]) if row["options"] else row["question"]


def gold(row: Row) -> Gold:
    """The answer: a letter with its options, a letter whose options are in the image, or a value."""
    answer = repair_latex(row["answer"])
    return choice_gold(answer, row["options"]) if row["options"] or answer in list("ABCDE") else Gold(answer)


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
