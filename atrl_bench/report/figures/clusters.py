"""A case study: the clusters of one response, by their share of its credit, with the tokens they consist of."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from atrl_bench.experiments.answer_credit import TokenCredit
from atrl_bench.report.drawing import INK, ORANGE, PAGE, SOFT, FigureContent, new_figure, shortened, token_text
from atrl_bench.report.figures.sources import ReadAnswers, Source, answers

MAX_CLUSTERS = 16  # drawn; the CSV has all
MAX_TOKENS, MAX_CHARACTERS = 12, 72  # named beside a bar


@dataclass(frozen=True)
class ClusterView:
    """One cluster of a response: its shares, its tokens' mean connectivity, and these in order."""

    cluster: int
    share_of_credit: float
    share_of_tokens: float
    mean_connectivity: float
    tokens: tuple[str, ...]


def make(source: Source) -> FigureContent:
    read = answers(source)
    problem_id, repeat = case(read)
    label = f"{read.label}, problem {problem_id}, repeat {repeat}"
    return picture(views(read.credit[problem_id, repeat]), label)


def case(read: ReadAnswers) -> tuple[str, int]:
    """The answer that is looked at: the longest correct one, of equals the first; without any, the longest."""

    def rank(answer: tuple[str, int]) -> tuple[bool, int, int]:
        return (
            read.samples[answer].score == 1.0,
            len(set(read.credit[answer].cluster_T)),
            len(read.credit[answer].texts),
        )

    best = max(map(rank, read.credit))
    return next(answer for answer in read.credit if rank(answer) == best)


def views(credit: TokenCredit) -> list[ClusterView]:
    total = sum(credit.credit_T)
    views = []
    for cluster in sorted(set(credit.cluster_T)):
        positions = [t for t, of_token in enumerate(credit.cluster_T) if of_token == cluster]
        share = sum(credit.credit_T[t] for t in positions) / total
        connectivity = sum(credit.connectivity_T[t] for t in positions) / len(positions)
        tokens = tuple(token_text(credit.texts[t]) for t in positions)
        views.append(ClusterView(cluster, share, len(tokens) / len(credit.texts), connectivity, tokens))
    return sorted(views, key=lambda view: (-view.share_of_credit, view.cluster))


def picture(views: list[ClusterView], label: str) -> FigureContent:
    more = f"; {len(views) - MAX_CLUSTERS} clusters more in the CSV" if len(views) > MAX_CLUSTERS else ""
    largest = views[:MAX_CLUSTERS]
    figure, (bars, tokens) = new_figure(10.2, 2.1 + 0.5 * len(largest), ncols=2, width_ratios=[1, 1.5], sharey=True)
    names = [f"cluster {view.cluster}" for view in largest]
    shares, even_shares = (
        [100 * getattr(view, of) for view in largest] for of in ("share_of_credit", "share_of_tokens")
    )
    look = {"color": ORANGE, "edgecolor": PAGE, "hatch": "///"}
    bars.barh(names, shares, height=0.56, label="share of the credit", **look)
    ticks = {"color": INK, "markersize": 19, "markeredgewidth": 2.5}
    bars.plot(even_shares, names, "|", label="share of the tokens", **ticks)
    bars.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    bars.set_xlim(left=0)
    bars.invert_yaxis()
    bars.grid(visible=False, axis="y")
    bars.set_title("Share of the response")
    figure.suptitle(f"Measured: {shortened(label, 90)}{more}", fontsize=10, color=SOFT)
    figure.legend(loc="outside lower left", ncols=2)
    tokens.set_xlim(0, 1)
    for name, view in zip(names, largest, strict=True):
        tokens.text(0.0, name, f"{view.mean_connectivity:.3f}", va="center", fontsize=9.5)
        tokens.text(0.16, name, _listed(view.tokens), va="center", fontsize=9.5)
    tokens.set_title("Mean connectivity, and the tokens")
    tokens.grid(visible=False)
    tokens.tick_params(left=False, bottom=False, labelbottom=False)
    tokens.spines[:].set_visible(False)
    in_words = " ".join(
        f"Cluster {view.cluster}: {100 * view.share_of_credit:.1f} %, {_listed(view.tokens)}." for view in largest
    )
    description = (
        f"Bars of the share of the credit of each cluster of one response ({shortened(label, 90)}{more}). {in_words}"
    )
    rows = [asdict(view) | {"tokens": " ".join(view.tokens)} for view in views]
    return FigureContent("Importance of the clusters of one response", description, figure, rows)


def _listed(tokens: tuple[str, ...]) -> str:
    """The different tokens, spaces last because they say least, with how often each came."""
    counts = Counter(tokens)
    ordered = sorted(counts, key=lambda text: text == "␣")
    texts = [text if counts[text] == 1 else f"{text} ×{counts[text]}" for text in ordered[:MAX_TOKENS]]
    return shortened("  ".join(texts) + ("  …" if len(ordered) > MAX_TOKENS else ""), MAX_CHARACTERS)
