"""Strings, which exist on the host only: these ops are run by NumPy."""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from hloom.errors import AttributeValueError
from hloom.onnx.table import op


def _each(function, *arrays) -> np.ndarray:
    arrays = np.broadcast_arrays(*arrays)
    made = [function(*values) for values in zip(*(a.ravel() for a in arrays), strict=True)]
    return np.array(made, object).reshape(arrays[0].shape)


@op("StringConcat", host=True)
def concat(a, b):
    return _each(lambda x, y: x + y, a, b)


@op("StringSplit", host=True)
def split(x, *, delimiter=None, maxsplit=None):
    parts = [text.split(delimiter or None, -1 if maxsplit is None else maxsplit) for text in x.ravel()]
    count = max(map(len, parts), default=0)
    rows = [[*row, *[""] * (count - len(row))] for row in parts]
    return (np.array(rows, object).reshape(*x.shape, count), np.array(list(map(len, parts)), np.int64).reshape(x.shape))


@op("RegexFullMatch", host=True)
def full_match(x, *, pattern):
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise AttributeValueError("RegexFullMatch", f"the pattern {pattern!r}: {error}", "use RE2's syntax") from None
    return _each(lambda text: compiled.fullmatch(text) is not None, x).astype(bool)


@op("StringNormalizer", host=True)
def normalize(x, *, case_change_action="NONE", is_case_sensitive=0, locale="en_US", stopwords=()):
    def changed(text: str) -> str:
        return {"LOWER": text.lower, "UPPER": text.upper}.get(case_change_action, lambda: text)()

    stops = set(stopwords) if is_case_sensitive else {w.lower() for w in stopwords}
    kept = [w for w in x.ravel() if (w if is_case_sensitive else w.lower()) not in stops]
    words = [changed(_plain(w)) for w in kept] or [""]
    return np.array(words, object).reshape((1, -1) if x.ndim == 2 else -1)


def _plain(text: str) -> str:
    """Without accents."""
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


@op("TfIdfVectorizer", host=True)
def tf_idf(x, *, max_gram_length, max_skip_count, min_gram_length, mode, ngram_counts, ngram_indexes, pool_int64s=None,
           pool_strings=None, weights=None):  # fmt: skip
    """Counts of n-grams, whose elements may skip others between them."""
    pool = list(pool_strings or pool_int64s or ())
    ends = [*ngram_counts[1:], len(pool)]
    columns: dict[tuple, int] = {}
    number = 0
    for size, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        for at in range(start, end, size):
            columns[tuple(pool[at : at + size])] = ngram_indexes[number]
            number += 1
    rows = np.atleast_2d(x)
    counts = np.zeros((rows.shape[0], max(ngram_indexes) + 1), np.float32)
    for row, values in zip(counts, rows.tolist(), strict=True):
        for size in range(min_gram_length, max_gram_length + 1):
            for skip in range(1, 2 if size == 1 else max_skip_count + 2):
                for at in range(len(values) - skip * (size - 1)):
                    column = columns.get(tuple(values[at : at + skip * (size - 1) + 1 : skip]))
                    if column is not None:
                        row[column] += 1
    factor = np.ones(counts.shape[1], np.float32)
    if weights:
        factor[list(ngram_indexes)] = weights
    result = {"TF": counts, "IDF": (counts > 0) * factor, "TFIDF": counts * factor}[mode].astype(np.float32)
    return result.reshape(-1) if x.ndim == 1 else result
