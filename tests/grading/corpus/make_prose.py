r"""Write `prose.jsonl`: answers in prose with the verdict of a careful reader, from sentence frames labelled by hand.

    python tests/grading/corpus/make_prose.py

Every frame has its answer at {x} and, where it has one, something beside the answer at {y}. With the gold answer x it
is right; with y, or another value, it is wrong. Frames of nothings, refusals and cut-offs state no answer, whatever
stands in them. The causes are numbered as the kinds of prose that were once misread; 0 are boxed answers, the control.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("prose.jsonl")
Row = dict[str, Any]

YES_NO = ("Yes", "No")
MONTHS = ("April", "May", "June", "July")
COLOURS = ("Dark Violet", "Medium Mint", "Light Gold", "Web Maroon")
SHAPES = ("a square", "a rectangle", "an isosceles triangle", "a right isosceles triangle")
LINES = (
    "The upper line is longer",
    "The lower line is longer",
    "Both lines are equally long",
    "It cannot be determined",
)
LENGTHS = ("$5 \\sqrt{3}$", "10", "12 cm", "\\frac{15}{2}")
COUNTS = ("2", "3", "4", "5")
OPTIONS = (MONTHS, COLOURS, SHAPES, LINES, LENGTHS, COUNTS)
LETTERS = "ABCDE"
NUMBERS = (("3", "7"), ("12", "30"), ("48", "0"), ("2.5", "4"))  # the answer and what stands beside it
WORDS = {"2": "two", "3": "three", "4": "four", "7": "seven", "9": "nine", "12": "twelve"}

YES_NO_FRAMES = (
    "{x}, the chart does {not_}show that.",
    "{x}. The red bar is the tallest one in the chart.",
    "{x}, it is {not_}larger than the other one, as can be seen in the picture.",
    "Looking at the figure, the answer is {x}.",
    "The two lines meet at one point.\n\n{x}.",
    "**{x}**, the two triangles are {not_}similar.",
    "The bar of May is higher than that of June. Therefore, the answer is {x}.",
    "{x}, there are {not_}fewer green balls than purple ones.",
)
TEXT_FRAMES = (  # options named by their text; {y} is another option
    "The bars grow from left to right, so the wettest month is {x}.",
    "Looking at the picture, I see that it is {x}.",
    "Based on the chart, {x} has the highest value.",
    "The one with the lowest value is {x}, not {y}.",
    "{x} is higher than {y}.",
    "Both {y} and {x} are high. The highest of all is {x}.",
    "The legend shows four entries. Hence the answer should be {x}.",
    "{x}. This can be read off the right axis.",
    "Comparing the areas under the curves, it is clear that the one asked for is {x}",
    "The correct answer is **{x}**.",
)
TEXT_NOTHING = (
    "I would have to compare the value of {x} with the others first.",
    "It is not {x}.",
    "It could be {x} or {y}.",
    "Let us first look at {x} and then at {y}.",
    "To find out whether it is {x}, we need the values on the axis.",
    "If the bar of {x} were longer, the order would change.",
)
LETTER_FRAMES = (
    "The option letter is {x}.",
    "The correct option letter is {x}.",
    "{x} is the correct option.",
    "{x} is the correct answer.",
    "Therefore, the correct figure is {x}.",
    "Option {y} is too small, so the right choice is {x}.",
    "Hence, option {x} is the answer.",
    "The angle is twice as large. The correct option is **{x}**.",
    "So the correct answer is option ({x}).",
    "The answer is ({x}), since ({y}) has the wrong sign.",
    "Option {y} is incorrect. Option {x} is correct.",
    "The best choice would be {x}.",
    "The letter of the correct option is {x}.",
    "After folding, the pattern looks like the one in figure {x}. So {x} is correct.",
    "My choice is {x}.",
    "Therefore, I choose ({x}).",
)
LETTER_NOTHING = (
    "Option {x} is not correct.",
    "Neither option {x} nor option {y} fits the picture.",
    "The correct option cannot be told from the picture.",
    "Is option {x} the correct one? We have to check it.",
    "Both option {x} and option {y} could be correct.",
    "Angle {x} equals angle {y}, as the triangle is isosceles.",
)
NUMBER_FRAMES = (
    "There are {x} bars above {y}.",
    "There are {x} cubes left.",
    "There are {x} bars below {y} in the chart.",
    "the answer to the question is {x}",
    "The answer to the question in part {y} is {x}.",
    "The distance between the house and the tree is {x}.",
    "The sum of the first and the second number is {x}.",
    "The chart has {x} items with more than {y} votes.",
    "We count the red and the blue balls, and there are {x} of them in total.",
    "Adding both, we get {x}.",
    "The value is {x}, which is larger than {y}.",
    "After {y} steps, the number of balls is {x}.",
    "Each row has {y} balls. So the total number of balls is {x}.",
    "The total is {x}. This is because there are {y} rows of the same size.",
    "The missing number is {x} because every row grows by {y}.",
    "Starting from {y}, the result is {x}.",
    "The perimeter of the figure equals {x} and nothing is left over.",
    "Therefore, the length of AB is approximately {x} units.",
    "The picture shows {x} people.",
    "I can see {x} lines in it and no circle.",
)
NUMBER_NOTHING = (  # neither {x} nor {y} is stated as the answer
    "The number of balls is not {x}.",
    "There are at least {x} of them.",
    "It is either {x} or {y}.",
    "The bars above {x} have to be counted.",
    "First, look at all bars above {x}.",
    "The number is between {x} and {y}.",
)
REFUSALS = (
    "The value cannot be determined from the {x} given numbers.",
    "Please provide f({x}), so that I can help you.",
    "I'm sorry, but I cannot see the image, so I cannot tell whether it is {x}.",
    "I am unable to answer this. The question mentions {x}, but the picture is missing.",
    "It is not possible to answer the question without more information about {x}.",
    "There is not enough information to decide between {x} and {y}.",
    "To answer this, I would need to know more about {x}. Could you provide the picture?",
    "Sorry, as an AI model I can't look at images. Please describe {x}.",
    "无法确定{x}是多少。",
)
CUT_OFF = (
    "First we have a look at {x}. Then the sum of both is",
    "The side is {x} and the other one is {y}, so the area is {x} *",
    "Let us count them: {x}, {y}, and then there are the",
    "We know that the first is {x}. Adding the second one, we get (",
    "Now the answer is",
)
CHINESE = (
    "选项({x})正确",
    "故选{x}",
    "故选:{x}。",
    "因此,正确答案是{x}。",
    "所以答案为({x})。",
    "由图可知,选项{y}错误,选项{x}正确。",
    "综上所述,应选{x}。",
    "正确选项是{x}。",
    "答案:{x}",
    "根据勾股定理,选择{x}。",
)
CHINESE_NUMBERS = (
    "答案是{x}。",
    "所以AB的长为{x}厘米。",
    "答案是{x}厘米",
    "一共有{x}个。",
    "因此面积为{x}平方厘米。",
    "故答案为{x}。",
)


def row(cause: int, response: str, gold: str, label: str, choices: tuple[str, ...] = ()) -> Row:
    kind = "choice" if choices else "auto"
    return {"cause": cause, "label": label, "response": response, "gold": gold, "choices": list(choices), "kind": kind}


def letters(cause: int, frame: str, choices: tuple[str, ...], shift: int = 0) -> Iterator[Row]:
    """Yield a frame whose {x} is a letter: right for it, wrong for the letter beside it."""
    for i in range(shift % 2, len(choices), 2):
        x, y = LETTERS[i], LETTERS[(i + 1) % len(choices)]
        response = frame.format(x=x, y=y)
        yield row(cause, response, x, "right", choices)
        yield row(cause, response, y, "wrong", choices)


def texts(cause: int, frame: str, choices: tuple[str, ...], label: str = "right") -> Iterator[Row]:
    """Yield a frame whose {x} is the text of an option."""
    for i in range(len(choices)):
        j = (i + 1) % len(choices)
        response = frame.format(x=choices[i], y=choices[j])
        response = response[0].upper() + response[1:]
        if label == "right":
            yield row(cause, response, LETTERS[i], "right", choices)
            yield row(cause, response, LETTERS[j], "wrong", choices)
        else:
            yield row(cause, response, LETTERS[i], label, choices)


def prose_of_options() -> Iterator[Row]:
    for frame in YES_NO_FRAMES:
        for word, other in (YES_NO, YES_NO[::-1]):
            response = frame.format(x=word, not_="not " if word == "No" else "")
            for choices in (YES_NO, YES_NO[::-1]):
                yield row(1, response, LETTERS[choices.index(word)], "right", choices)
            yield row(1, response, LETTERS[YES_NO.index(other)], "wrong", YES_NO)
    for frame in TEXT_FRAMES:
        for choices in (MONTHS, COLOURS):
            yield from texts(1, frame, choices)
    for frame in TEXT_NOTHING:
        for choices in (MONTHS, COLOURS):
            yield from texts(1, frame, choices, "unparseable")
    for i, frame in enumerate(LETTER_FRAMES):
        yield from letters(2, frame, COUNTS, i)
        yield from letters(2, frame, MONTHS, i + 1)
    for i, frame in enumerate(LETTER_NOTHING):
        for choices in (SHAPES, COUNTS):
            yield row(2, frame.format(x="B", y="D"), "BD"[i % 2], "unparseable", choices)


def prose_of_numbers() -> Iterator[Row]:
    for i, frame in enumerate(NUMBER_FRAMES):
        for x, y in NUMBERS[:3] if i % 2 else (*NUMBERS[:2], NUMBERS[3]):
            if "." in x and any(word in frame for word in ("bars", "cubes", "people", "lines", "items", "balls")):
                continue
            response = frame.format(x=x, y=y)
            yield row(3, response, x, "right")
            yield row(3, response, y if "{y}" in frame else str(float(x) + 1), "wrong")
        for number in ("2", "4", "9"):
            response = frame.format(x=WORDS[number], y="30")
            yield row(3, response, number, "right")
            yield row(3, response, "30" if "{y}" in frame else "1", "wrong")
    for frame in NUMBER_NOTHING:
        for x, y in NUMBERS:
            yield row(3, frame.format(x=x, y=y), x, "unparseable")
    for number in ("2", "3", "4"):  # a number in words among options
        response = f"There are {WORDS[number]} cubes left."
        yield row(3, response, LETTERS[COUNTS.index(number)], "right", COUNTS)
        yield row(3, response, "D", "wrong", COUNTS)


def ratios() -> Iterator[Row]:
    same = (
        ("3/2", "3:2"),
        ("6/π", "6:π"),
        ("1:1", "1"),
        ("3:2", "3/2"),
        (r"\frac{3}{2}", "3:2"),
        ("4 : 9", r"\frac{4}{9}"),
    )
    other = (
        ("2/3", "3:2"),
        ("π/6", "6:π"),
        ("2:1", "1"),
        ("3:2", "2/3"),
        ("3", "3:2"),
        ("2", "3:2"),
        ("3", "3:00"),
        ("4/5", "4:05"),
    )
    frames = (r"\boxed{{{x}}}", "The ratio of the areas is {x}.", "Hence the answer is {x}.", "So the ratio is {x}")
    for frame in frames:
        for x, gold in same:
            yield row(4, frame.format(x=x), gold, "right")
        for x, gold in other:
            yield row(4, frame.format(x=x), gold, "wrong")


def no_answers() -> Iterator[Row]:
    for frame in (*REFUSALS, *CUT_OFF):
        for x, y in NUMBERS[:3]:
            yield row(5, frame.format(x=x, y=y), x, "unparseable")
            yield row(5, frame.format(x=x, y=y), y, "unparseable")
        for i in (1, 2):
            response = frame.format(x=MONTHS[i], y=MONTHS[0])
            yield row(5, response, LETTERS[i], "unparseable", MONTHS)
            response = frame.format(x=f"option {LETTERS[i]}", y="option A")
            yield row(5, response, LETTERS[i], "unparseable", SHAPES)
    for end in ("I need more information.", "The picture is missing."):
        yield row(5, f"The answer cannot be determined from the given choices. {end}", "C", "unparseable", COUNTS)
    for letter in "ABCD":  # where it is an option, it is an answer
        response = "It cannot be determined from the picture which one is longer."
        yield row(5, response, letter, "right" if letter == "D" else "wrong", LINES)


def long_texts() -> Iterator[Row]:
    for choices in (LINES, SHAPES):
        for i, text in enumerate(choices):
            bare = text[0].upper() + text[1:]
            for response in (bare, bare + ".", f"**{bare}**", f"Answer: {text}", f"So, {text}.", f"{bare}\n"):
                for j in (i, (i + 1) % 4):
                    yield row(6, response, LETTERS[j], "right" if i == j else "wrong", choices)


def echoes() -> Iterator[Row]:
    for choices in (MONTHS, SHAPES, COUNTS):
        lists = [
            "\n".join(f"({letter}) {text}" for letter, text in zip(LETTERS, choices, strict=False)),
            "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, choices, strict=False)),
            " ".join(f"({letter}) {text}" for letter, text in zip(LETTERS, choices, strict=False)),
        ]
        for listed in lists:
            for i in (0, 2, 3):
                yield row(7, listed, LETTERS[i], "unparseable", choices)
            yield row(7, f"Which one is it?\nChoices:\n{listed}", "D", "unparseable", choices)
            for i in (1, 2):
                for j in (i, 3):
                    label = "right" if i == j else "wrong"
                    yield row(7, f"{listed}\nThe answer is {LETTERS[i]}.", LETTERS[j], label, choices)
                    answer = f"The answer is {LETTERS[i]}.\n\nQuestion: Which one is next?\nChoices:\n{listed}"
                    yield row(7, answer, LETTERS[j], label, choices)
                    answer = f"{LETTERS[i]}\n\nQuestion: Which one is next?\nChoices:\n{listed}\nAnswer: D"
                    yield row(7, answer, LETTERS[j], label, choices)


def prefixes() -> Iterator[Row]:
    for frame in ("A: {x}", "A: {x}.", "A: The answer is {x}.", "Q: Which one?\nA: {x}"):
        for choices in (YES_NO, MONTHS, COUNTS):
            for i, text in enumerate(choices):
                for j in {i, 0 if i else 1}:
                    x = text.lower() if choices is YES_NO else text
                    yield row(8, frame.format(x=x), LETTERS[j], "right" if i == j else "wrong", choices)
        for x, y in NUMBERS[:3]:
            yield row(8, frame.format(x=x), x, "right")
            yield row(8, frame.format(x=x), y, "wrong")


def chinese() -> Iterator[Row]:
    for i, frame in enumerate(CHINESE):
        yield from letters(9, frame, SHAPES, i)
    for frame in CHINESE_NUMBERS:
        for x, y in NUMBERS[:3]:
            yield row(9, frame.format(x=x), x, "right")
            yield row(9, frame.format(x=x), y, "wrong")
    for response in ("选项B错误。", "选项(B)不正确", "题目中没有图,无法判断是否选B。", "请提供图片,才能选出B或C。"):
        for choices in (SHAPES, COUNTS):
            yield row(9, response, "B", "unparseable", choices)


def units() -> Iterator[Row]:
    frames = ("Area = {x}", "The area is {x}.", "So the area of the whole figure is {x}", "Area = 1 + {n} = {x}")
    for frame in frames:
        for n, x in (
            ("3", "3 cm^2"),
            ("7", "7 m^{2}"),
            ("5", "5 cm^3"),
            ("4", "4 Cm^2"),
            ("12", "12 CM²"),
            ("8", "8 Km^2"),
        ):
            response = frame.format(x=x, n=n)
            yield row(10, response, n, "right")
            yield row(10, response, "2" if "3" not in x[1:] else "3", "wrong")
    for frame in ("The speed is {x}.", r"\boxed{{{x}}}", "So the answer is {x}", "{x}"):
        for x in ("1.2 x 10^4", r"1.2 \times 10^4", "1.2 × 10^4", "1.2*10^4", r"1.2 \cdot 10^{4}"):
            yield row(10, frame.format(x=x), r"1.2 \times 10^{4}", "right")
            yield row(10, frame.format(x=x), "4", "wrong")
            yield row(10, frame.format(x=x), "10", "wrong")
    for x, gold in (
        ("4 Cm^2", "4 cm^2"),
        ("400 Cm", "4 m"),
        ("5 KM", "5000 m"),
        ("3 Meters", "300 cm"),
        ("2 Kg", "2000 g"),
    ):
        for frame in (r"\boxed{{{x}}}", "The answer is {x}."):
            yield row(10, frame.format(x=x), gold, "right")
            yield row(10, frame.format(x=x), gold.split()[0] + "0 " + gold.split()[1], "wrong")


def spellings() -> Iterator[Row]:
    twins = ("12", "7", "12", "9")
    for response in ("The answer is 12.", "12", r"\boxed{12}", "So it is 12 in total."):
        for letter in LETTERS[:4]:
            yield row(11, response, letter, "right" if twins["ABCD".index(letter)] == "12" else "wrong", twins)
    for i, letter in enumerate("abcd"):
        for response in (f"option {letter}", f"Option {letter}", f"The answer is option {letter}.", f"choice {letter}"):
            yield row(11, response, letter.upper(), "right", MONTHS)
            yield row(11, response, "BCDA"[i], "wrong", MONTHS)
        for response in (
            rf"\boxed{{{letter.upper()}.",
            rf"So it is \boxed{{{letter.upper()}.",
            rf"$\boxed{{{letter.upper()}.$",
        ):
            yield row(11, response, letter.upper(), "right", MONTHS)
            yield row(11, response, "BCDA"[i], "wrong", MONTHS)
        for response in (
            f"['{MONTHS[i]}']",
            f'["{MONTHS[i]}"]',
            f"The answer is ['{MONTHS[i]}'].",
            rf"\boxed{{['{MONTHS[i]}']}}",
        ):
            yield row(11, response, letter.upper(), "right", MONTHS)
            yield row(11, response, "BCDA"[i], "wrong", MONTHS)
    for x, gold in (("(0, 0)", "(u, v) = (0, 0)"), ("(u, v) = (1, 2)", "(1, 2)"), ("(1, -2)", "(x, y) = (1, -2)")):
        for frame in (r"\boxed{{{x}}}", "The answer is {x}."):
            yield row(11, frame.format(x=x), gold, "right")
            yield row(11, frame.format(x=x), gold.rpartition("(")[0] + "(2, 1)", "wrong")
    for x in ("4", "17", "350"):
        steps = f"1. Read the axis.\n2. Count the bars: there are {x} bars.\n3. Done."
        yield row(11, steps, x, "right")
        yield row(11, steps, "3", "wrong")
        yield row(11, f"The total is {x}.\n\n1) All bars are counted.\n2) No bar is left out.", x, "right")
        yield row(11, f"The total is {x}.\n\n1) All bars are counted.\n2) No bar is left out.", "2", "wrong")


def boxed() -> Iterator[Row]:
    for frame in (
        r"\boxed{{{x}}}",
        r"So there are {y} of them, and the answer is \boxed{{{x}}}.",
        "<answer>{x}</answer>",
    ):
        for x, y in NUMBERS:
            yield row(0, frame.format(x=x, y=y), x, "right")
            yield row(0, frame.format(x=x, y=y), y, "wrong")
        for choices in OPTIONS:
            yield from letters(0, frame, choices)


def rows() -> list[Row]:
    """Return the corpus, every answer once; an answer has one label only."""
    makers = (boxed, prose_of_options, prose_of_numbers, ratios, no_answers, long_texts, echoes)
    made = [row for maker in (*makers, prefixes, chinese, units, spellings) for row in maker()]
    labels: dict[str, Row] = {}
    for one in made:
        key = json.dumps([one["response"], one["gold"], one["choices"]])
        if labels.setdefault(key, one)["label"] != one["label"]:
            raise ValueError(f"two labels: {one}")
    return list(labels.values())


if __name__ == "__main__":
    FILE.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows()), "utf-8")
