"""The daily commands, in the current environment: `nox -s quick`, `nox -s test -- tests/ir`, `nox -l` lists them.

`pip install -e '.[dev,docs]'` installs what they need. Arguments after `--` go to the tool.
"""

import nox

nox.options.default_venv_backend = "none"  # the current environment
nox.options.sessions = ["lint", "quick"]


@nox.session
def test(session: nox.Session) -> None:
    """Runs all tests in two processes."""
    session.run("python", "-m", "pytest", "-n", "2", "-q", *session.posargs)


@nox.session
def quick(session: nox.Session) -> None:
    """Runs the tests marked quick: a subset across all packages, in less than a minute."""
    session.run("python", "-m", "pytest", "-n", "2", "-q", "-m", "quick", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Checks style, formatting and the direction of imports."""
    session.run("ruff", "check", ".", *session.posargs)
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Runs the type checker over the four packages."""
    session.run("mypy", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Builds the documentation site into build/site; warnings are errors."""
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def bless(session: nox.Session) -> None:
    """Rewrites golden files and the generated parts of pages; review the diff."""
    session.run("python", "-m", "pytest", "-q", "--bless", *(session.posargs or ["tests/test_docs.py"]))


@nox.session
def bench(session: nox.Session) -> None:
    """Times the core suite of the benchmark."""
    session.run("python", "-m", "hloom", "bench", *session.posargs)
