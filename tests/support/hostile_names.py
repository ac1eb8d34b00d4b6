"""Names that strangers choose: quotes, escapes, ends of comments and lines, markup, paths, and the like."""

import random

NAMES = (
    "x??/", 'a"; int b; //', "newline\nname", "carriage\rreturn", "*/ end /*", "// comment \\", "%s%n%1000000d",
    "ünïcode", "\\", "\\n", "ends with \\", "??=define x", "??'", "<:%:%>", "a\0b", "\x1b[31m",
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&amp;&quot;", "'\"`",
    "../../../tmp/x", "/etc/passwd", "..", ".", "C:\\x", "~/x",
    "\ud800", "\udfff x", "\u202eltr", "\u2028line", "\x85next", "\ufeffbom", "\U0001f600", "e\u0301",
    "int", "class", "lambda", "None", "__import__('os')", "{0.__class__}", "{x}", "$(touch x)", "`touch x`", "a;b",
    "a b", "", " ", "0", "-1", "1e5", "NaN", "true", "null", "x" * 300, "/" * 40,
    "%entry", "ROOT %x = f32[] constant(1)", "@main", "#loc", "!", "}", "{", "]]>", '"}]}',
    "a,b=c", "a=b", "key: value", "- item", "--flag", "*", "?", "|", "tab\there", "\x7f",
)  # fmt: skip
_PIECES = (*NAMES, "x", "_", "name", "7", "\t", '"', "'", "/", "??/", "*/", "\n")


def hostile(seed: int) -> str:
    """A name of a few pieces."""
    rng = random.Random(seed)
    return "".join(rng.choice(_PIECES) for _ in range(rng.randrange(1, 5)))[:400]


def names(count: int, seed: int = 0) -> list[str]:
    """Different names: all of `NAMES`, then made ones."""
    found = dict.fromkeys(NAMES[:count])
    while len(found) < count:
        found[hostile(seed)] = None
        seed += 1
    return list(found)
