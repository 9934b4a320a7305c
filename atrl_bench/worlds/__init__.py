"""The worlds `perception` and `reasoning`: chatty chains over four handwritten digits, the part of each token known."""

DATASETS = ("code_words", "code_words_test")
