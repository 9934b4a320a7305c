"""Every hyperparameter of the method, and every place where the paper leaves a choice, as one field each.

Two presets: `literal` is the paper's text wherever it can be executed, `default` the reading we can defend.
They differ in the five fields that `PRESETS` lists; docs/method.md has the table with the reasons.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args, get_type_hints

Reading = Literal["own", "predicting"]
FootprintColumns = Literal["all", "without_sinks", "visual", "prompt"]
RowsKept = Literal["exact", "sketch", "auto"]
MOST_EXACT_TOKENS = 2048
"""`rows="auto"` sketches longer responses than these."""


@dataclass(frozen=True)
class CreditConfig:
    """The settings of one credit computation; the field values here are the `default` preset."""

    # Attention rows (section 4.1, appendix "Attention Extraction").
    num_layers: int = 4
    """The last L decoder layers, averaged without weights over layers and over all heads."""
    reading: Reading = "predicting"
    """Which query is a token's row: the token's `own`, or the one a position before, which `predicting` produced it."""
    rows: RowsKept = "exact"
    """Cosines of whole rows (`exact`), or of a `sketch` (sketch.py), which needs no T x S matrix; `auto`: by length.

    On the mini bases the credit of a sketch is nearer to that of all cosines: a correlation of 0.993, `exact` 0.978.
    """

    # Bias curve b_j (appendix "Bias Correction Details"); p_j = j / S runs over all S columns of the row.
    exp_weight: float = 0.15
    """Weight of the exponential term, lambda_exp."""
    exp_decay: float = 4.0
    """Decay rate of the exponential term, gamma."""
    cosine_weight: float = 0.05
    """Amplitude of the cosine term, lambda_cos."""

    # Graph and partition (section 4.2, appendix "Graph Construction Hyperparameters").
    footprint: FootprintColumns = "without_sinks"
    """Columns of the row that enter a cosine. With an attention sink among them every cosine exceeds 0.7."""
    min_sink_share: float = 0.1
    """A text column that gets at least this share of an average row's attention is a sink."""
    min_edge_similarity: float = 0.7
    """tau_sim: two tokens are joined if the cosine of their rows is strictly greater."""
    max_neighbours: int | None = 6
    """Keep an edge only if it is among this many best ones of either end; None keeps all, as written."""
    tokens_per_cluster: int = 10
    """K = max(2, T // tokens_per_cluster) clusters."""
    max_imbalance: float | None = None
    """How much larger than the average a cluster may be, about: 0.5 for half as large again; None for METIS's own."""
    partitions: int = 1
    """The credit is the mean over the partitions of so many METIS seeds. The paper, hence `literal`, has one."""

    # Centroid denoising (appendix "Cluster Refinement").
    importance_start: Literal["maximum", "rank"] = "maximum"
    """Start of phi: connectivity divided by its maximum, or its rank scaled to (0, 1]."""
    min_centroid_similarity: float = 0.75
    """tau_cen: a token whose row is less similar to its cluster's centroid is an outlier."""
    outlier_scale: float = 0.6
    """alpha: an outlier's phi is multiplied by this."""

    # Neighbourhood propagation (appendix "Neighbourhood Expansion").
    hub_rank: Literal["importance", "degree"] = "importance"
    """What ranks the hubs: phi (the appendix) or the weighted degree in the graph (section 4.2)."""
    hub_fraction: float = 0.15
    """q: this share of the tokens, rounded up, are hubs."""
    num_neighbours: int = 4
    """R: a hub may promote this many of its most similar graph neighbours."""
    similarity_weight: float = 0.5
    """lambda_sim of the promotion score."""
    importance_weight: float = 0.5
    """lambda_imp of the promotion score."""
    min_neighbour_score: float = 0.65
    """tau_nb: a neighbour is promoted if its score is strictly greater."""
    promotion: Literal["importance", "cluster"] = "importance"
    """A promoted token takes phi = max(phi, cosine * phi of the hub), or joins the hub's cluster."""

    # Credit (section 4.3).
    cluster_mass: Literal["importance", "density"] = "importance"
    """What W(C_k) sums: the refined phi, or C as the equation has it (refinement then changes nothing)."""
    scale: Literal["mean_one", "as_written"] = "mean_one"
    """Credit rescaled to mean one over the response, or W(C_k) itself, whose mean is about tokens_per_cluster / T."""

    # The rules it is compared with (ablation tables).
    kept_fraction: float = 0.15
    """Share of tokens, rounded up, that the rules called truncation keep."""
    entropy_fraction: float = 0.2
    """Share of tokens, rounded up, that high_entropy keeps."""
    soft_share: float = 0.5
    """Share of the weight that oracle rules spread over all tokens alike: 0 is the oracle's own tokens alone."""
    black_probability: float = 0.5
    """Each patch is black with this chance where a rule asks how much a token depends on the image."""

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            value, choices = getattr(self, name), get_args(hint)
            if choices and isinstance(choices[0], str):
                if value not in choices:
                    raise ValueError(f"{name} is {value!r}; it should be one of {', '.join(choices)}.")
            elif value is None and type(None) in choices:
                continue
            elif not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{name} is {value!r}; it should be a finite number.")
            elif int in (hint, *choices) and value != int(value):
                raise ValueError(f"{name} is {value!r}; it should be a whole number.")
        _at_least(self, 1, "num_layers", "tokens_per_cluster", "max_neighbours", "partitions")
        _at_least(self, 0, "num_neighbours", "outlier_scale", "max_imbalance", "exp_decay", "min_sink_share")
        for name in ("hub_fraction", "kept_fraction", "entropy_fraction", "black_probability"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it should be above 0 and at most 1.")
        if not 0 <= self.soft_share <= 1:
            raise ValueError(f"soft_share is {self.soft_share}; it should be from 0 to 1.")
        if self.rows == "sketch" and self.max_neighbours is None:
            raise ValueError("A sketch keeps the best neighbours of each token; set max_neighbours, or rows='exact'.")

    def sketches(self, num_tokens: int) -> bool:
        """Returns whether a response of this length is known by a sketch of its rows."""
        is_long = num_tokens > MOST_EXACT_TOKENS and self.max_neighbours is not None
        return self.rows == "sketch" or (self.rows == "auto" and is_long)

    def document(self) -> dict[str, Any]:
        """Returns all fields as they enter keys: one that is younger than stored keys is left out at its default."""
        default = CreditConfig()
        fields = dataclasses.asdict(self)
        return {n: v for n, v in fields.items() if n not in _YOUNGER or v != getattr(default, n)}

    @classmethod
    def preset(cls, name: str) -> CreditConfig:
        """Returns the preset called `default` or `literal`."""
        if name not in PRESETS:
            raise ValueError(f"Unknown preset {name!r}; it should be one of {', '.join(PRESETS)}.")
        return cls(**PRESETS[name])

    def replace(self, **changes: Any) -> CreditConfig:
        """Returns a copy with these fields changed; a name that is no field is a TypeError."""
        return dataclasses.replace(self, **changes)


# The paper's symbols, which are shorter than the fields' names: as they are typed, and as a row's label has them.
SYMBOLS = {
    "num_layers": ("L", "L"),
    "exp_weight": ("lambda_exp", "λ_exp"),
    "exp_decay": ("gamma", "γ"),
    "cosine_weight": ("lambda_cos", "λ_cos"),
    "min_edge_similarity": ("tau_sim", "τ_sim"),
    "min_centroid_similarity": ("tau_cen", "τ_cen"),
    "outlier_scale": ("alpha", "α"),
    "hub_fraction": ("q", "q"),
    "num_neighbours": ("R", "R"),
    "similarity_weight": ("lambda_sim", "λ_sim"),
    "importance_weight": ("lambda_imp", "λ_imp"),
    "min_neighbour_score": ("tau_nb", "τ_nb"),
    "kept_fraction": ("topk", "kept_fraction"),
}
_YOUNGER = frozenset({"partitions", "black_probability", "soft_share", "rows"})


@functools.cache
def _hints() -> dict[str, Any]:
    return get_type_hints(CreditConfig)


def _at_least(config: CreditConfig, bound: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and value < bound:
            raise ValueError(f"{name} is {value}; it should be at least {bound}.")


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "literal": {
            "reading": "own",
            "footprint": "all",
            "max_neighbours": None,
            "cluster_mass": "density",
            "scale": "as_written",
        },
    }
)
