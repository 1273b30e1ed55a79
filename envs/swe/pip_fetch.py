"""Fetch source distributions with pip's own finder and session, so that the user's index, proxy and login hold.

Run as a script (`python -P pip_fetch.py FOLDER`), apart from the rest: `pip download` would run each package's build
backend only to learn its name. Standard input: JSON rows `[name, version]`; standard output: one JSON object, name and
version as in `name==version` to the file's name or to `{"error": text}`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(folder: Path, wanted: list[tuple[str, str]]) -> dict[str, Any]:
    from pip._internal.commands import create_command

    command: Any = create_command("download")
    options, _ = command.parse_args(["--quiet", "--no-binary", ":all:", "any"])
    answers: dict[str, Any] = {}
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        for name, version in wanted:
            try:
                answers[f"{name}=={version}"] = fetch(session, finder, name, version, folder)
            except Exception as error:  # whatever went wrong with one package, the others are still wanted
                answers[f"{name}=={version}"] = {"error": f"{type(error).__name__}: {error}"}
    return answers


def fetch(session: Any, finder: Any, name: str, version: str, folder: Path) -> str:
    """Put the source distribution into `folder`, whole or not at all; returns its file name."""
    found = [c for c in finder.find_all_candidates(name) if not c.link.is_wheel and str(c.version) == version]
    if not found:
        raise LookupError(f"the package index has no source distribution of {name} {version}")
    link = found[0].link
    response = session.get(link.url_without_fragment)
    response.raise_for_status()
    part = folder / f"{link.filename}.{os.getpid()}.part"
    part.write_bytes(response.content)
    part.rename(folder / link.filename)
    return str(link.filename)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.load(sys.stdin))))
