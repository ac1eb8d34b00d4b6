"""The text of the language models: the language reference that ships with Python, as characters."""

import pydoc_data.topics

import numpy as np


def load(characters=300_000):
    """(training codes, held-out codes, alphabet): the first `characters` of the reference, a tenth of them held out."""
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))[:characters]
    text = "".join(c if " " <= c <= "~" or c == "\n" else "?" for c in text)
    alphabet = sorted(set(text))
    code = {c: k for k, c in enumerate(alphabet)}
    codes = np.array([code[c] for c in text], np.int32)
    cut = len(codes) * 9 // 10
    return codes[:cut], codes[cut:], "".join(alphabet)


def windows(codes, count, length, random):
    """`count` random stretches of length + 1 characters."""
    starts = random.integers(0, len(codes) - length - 1, count)
    return codes[starts[:, None] + np.arange(length + 1)]


def bigram_bits(train, held, size):
    """Bits a character on `held` of the best model that sees one character: what a network has to beat."""
    counts = np.ones((size, size))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    probabilities = counts / counts.sum(axis=1, keepdims=True)
    return float(-np.mean(np.log2(probabilities[held[:-1], held[1:]])))
