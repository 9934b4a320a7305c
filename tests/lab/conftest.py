import pytest


@pytest.fixture(scope="session")
def code_words_tokenizer():
    from atrl_bench.lab.bases import texts
    from atrl_bench.mini.model import build_tokenizer

    return build_tokenizer(texts)
