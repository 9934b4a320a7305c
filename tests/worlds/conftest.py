from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def code_words_tokenizer():
    from atrl_bench.mini.model import build_tokenizer
    from atrl_bench.worlds.base import texts

    return build_tokenizer(texts)
