"""The LaTeX: harmless, one float a file, and compiled as the papers that take it are set: no box sticks out."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import needs
import pytest
from table_fixtures import poisoned

from atrl_bench.report import latex as latex_module
from atrl_bench.report.latex import render_latex
from atrl_bench.report.table_model import Footnote, TableCell

CLASSES = Path(__file__).parent / "latex_classes"
# Real classes are tried where TeX has them; the stand-ins have their widths, sizes and encodings.
SETTINGS = {
    "acmart": r"\documentclass[sigconf,nonacm]{acmart}\title{T}\AtBeginDocument{\pagestyle{empty}}",
    "llncs": r"\documentclass{llncs}\usepackage{xcolor}",
    "revtex4-2": r"\documentclass[aps,preprint]{revtex4-2}\usepackage{xcolor}",
    "OT1, one column": r"\documentclass{article}\usepackage{color}",
    "T1, two columns": r"\documentclass[twocolumn]{article}\usepackage[T1]{fontenc}\usepackage{xcolor}",
    "like ICML": r"\documentclass{article}\usepackage{two_columns}\usepackage{xcolor}",
    "like NeurIPS": r"\documentclass{article}\usepackage{one_column}\usepackage{xcolor}",
    "like ACM": r"\documentclass{narrow_columns}",
    "like LNCS": r"\documentclass{article}\usepackage{xcolor}\textwidth 12.2cm \textheight 19.3cm ",
    "like REVTeX's preprint": r"\documentclass[12pt]{article}\usepackage{xcolor}\linespread{1.7}\textheight 23cm ",
}
# How much each table is shrunk, in percent, into what pdflatex says.
SHRUNK = r"""\let\shrink\resizebox\renewcommand\resizebox[3]{\setbox0\hbox{#3}%
\typeout{Shrunk to \the\numexpr 100*\linewidth/\wd0\relax.}\shrink{#1}{#2}{#3}}
"""


def compiled(folder: Path, source: str) -> str:
    """Return what pdflatex said of a document that it could compile."""
    (folder / "paper.tex").write_text(source)
    command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, said[-2000:]
    return said


def overfull(said: str) -> list[float]:
    return [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", said)]


def paper(table):
    """Return the table as if profile `paper` had run, with a verdict on each row."""
    return replace(table, profile="paper", is_comparable=True)


@needs.pdflatex
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_float_compiles_in_the_usual_kinds_of_paper_and_no_box_sticks_out(setting, table, tiny, tmp_path):
    """The whole main table, and one that is turned: eleven benchmarks of long names."""
    many = [replace(tiny.columns[0], id=f"c{i}", label=f"LongBenchmark{i}") for i in range(11)]
    rows = tuple(replace(row, cells=(row.cells[0],) * 11) for row in tiny.rows)
    turned = replace(tiny, columns=tuple(many), rows=rows, has_average=False, published=(), comparisons=(), grids=())
    floats = {f"wide{end}": source for end, source in render_latex(turned).items()}
    floats |= {f"main_7b{end}": source for end, source in render_latex(paper(table)).items()}
    names = [name for name in floats if not name.endswith("_document")]
    for name in names:
        assert floats[name].count(r"\begin{table") == 1, name
        (tmp_path / f"{name}.tex").write_text(floats[name])
    for file in CLASSES.iterdir():
        shutil.copy(file, tmp_path)
    inputs = "\n".join(rf"Words.\input{{{name}}}\clearpage" for name in names)
    body = f"\\usepackage{{booktabs,graphicx}}{SHRUNK}\\begin{{document}}\n{inputs}\n\\end{{document}}"
    [of_paper] = re.findall(r"documentclass.*?\{([\w-]+)\}", SETTINGS[setting])
    if subprocess.run(["kpsewhich", f"{of_paper}.cls"], cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip(f"TeX has no {of_paper}.cls here")
    said = compiled(tmp_path, f"{SETTINGS[setting]}{body}")
    assert len(names) == 1 + 7
    assert not overfull(said)
    assert "too large" not in said  # no float is longer than its page
    shrunk = dict(zip(names, map(int, re.findall(r"Shrunk to (\d+)\.", said)), strict=False))
    assert min(shrunk.values()) >= 65, shrunk  # of ten points six and a half


@needs.pdflatex
@pytest.mark.parametrize("third", [0, 1, 2])
@pytest.mark.parametrize("most_columns", [1, 10])
def test_the_latex_document_compiles_whatever_the_texts(tiny, tmp_path, payloads, third, most_columns, monkeypatch):
    monkeypatch.setattr(latex_module, "MOST_COLUMNS", most_columns)
    said = compiled(tmp_path, render_latex(poisoned(paper(tiny), "".join(payloads[third::3])))["_document"])
    assert "Output written on" in said


@needs.pdflatex
def test_lists_and_paths_in_latex_notes_end_inside_the_page(tiny, tmp_path):
    tasks = ",".join(f"task_number_{i}" for i in range(30))
    note = f"Only an endpoint has it: atrl-bench evaluate Qwen/Qwen2.5-VL-72B --tasks {tasks}"
    [first, *others] = tiny.rows
    unmeasured = replace(first, cells=tuple(TableCell("not measured", reason=note) for _ in first.cells))
    table = replace(tiny, notes=(note,), rows=(unmeasured, *others), footnotes=(Footnote("a", note),))
    document = render_latex(table)["_document"]
    assert max(overfull(compiled(tmp_path, document)), default=0) < 20
    assert "atrl-bench" not in document  # a command is for the page


def test_labels_are_names_that_latex_can_read_again(tiny):
    files = render_latex(replace(tiny, equal_rate=tiny.comparisons))
    labels = re.findall(r"\\label\{([^}]*)\}", "".join(files.values()))
    assert any(label.endswith(":equal-rate") for label in labels)
    assert [label for label in labels if "\\" in label] == []


def test_footnotes_in_latex_are_short(tiny):
    long = Footnote("a", "A first sentence. " + "And much more that only the page says. " * 9)
    source = render_latex(replace(tiny, footnotes=(long, Footnote("b", "Short."))))[""]
    assert "A first sentence." in source
    assert "Short." in source
    assert "much more" not in source


def test_no_text_becomes_a_command_in_latex(tiny, payload):
    source, clean = (render_latex(each)["_document"] for each in (poisoned(tiny, payload), tiny))
    for command in (r"\input", r"\write", r"\immediate", r"\catcode", r"\def"):
        assert command not in source
    assert source.count("{") - source.count(r"\{") == source.count("}") - source.count(r"\}")
    escaped = {"textbackslash", "textasciicircum", "textasciitilde", "textquoteleft"}
    escaped |= {"geq", "leq", "ldots", "shortstack"}
    assert commands(source) - escaped <= commands(clean)
    assert source.isascii()


def commands(source: str) -> set[str]:
    return set(re.findall(r"\\([a-zA-Z]+)", source))


def test_the_latex_has_the_published_numbers_as_printed(table):
    files = render_latex(table)
    assert r"\multicolumn{7}{l}{\textit{Uniform Credit Baselines}} \\" in files[""]
    assert r"GeoQA\textsubscript{test}" in files[""]
    assert "mini: GRPO + AT-RL & " in files[""]
    published = files["_published"]
    assert "GRPO & 46.86 & 41.81" in published
    assert r"{\scriptsize\quad difference} & {\scriptsize +2.81}" in published
    assert r"\textbf{SAPO + AT-RL} & \textbf{52.77} &" in published
    assert r"StepGRPO\textsuperscript{i} & 41.12" in published
    assert "mini: GRPO + AT-RL & " in files["_credit"]
    assert r"{\scriptsize\quad $-$ mini: GRPO} & {\scriptsize $\pm$" in files["_credit"]


def test_a_long_subscript_stands_in_lines_below_the_benchmark_and_what_is_not_asked_is_a_dash(tiny):
    [first, *others] = tiny.columns
    columns = (replace(first, label="GeoQA", subscript="reliance, no picture"), *others)
    rows = [replace(row, cells=(TableCell("missing", is_asked=False), *row.cells[1:])) for row in tiny.rows]
    source = render_latex(replace(tiny, columns=columns, rows=tuple(rows)))[""]
    assert r"GeoQA\\ reliance, no\\ picture} & " in source
    assert r" & \textit{--} & " in source


def test_a_table_with_many_columns_is_printed_with_its_models_as_columns(table, monkeypatch):
    monkeypatch.setattr(latex_module, "MOST_COLUMNS", 5)
    files = render_latex(table)
    for end, rows in (("", table.rows), ("_published", table.published)):
        [line] = [line for line in files[end].splitlines() if line.startswith("GeoQA")]
        assert line.count(" & ") == len(rows)
        assert r"\textbf{Benchmark} & \shortstack{" in files[end]
