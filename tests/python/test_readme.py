"""The README's account of the sources, held against them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_architecture_shown_is_one_file_and_one_line() -> None:
    section = (ROOT / "README.md").read_text().split("## Adding an architecture")[1]
    diff = re.findall(r"```diff\n(.*?)```", section, re.S)[0]
    parts = re.split(r"^--- .*\n\+\+\+ b/(.*)\n", diff, flags=re.M)
    assert parts[0] == ""
    shown = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert all(line.startswith("+") for text in shown.values() for line in text.splitlines())
    (listed, line), (path, source) = shown.items()
    assert (ROOT / listed).read_text().splitlines().count(line[1:].rstrip("\n")) == 1
    assert "".join(line[1:] + "\n" for line in source.splitlines()) == (ROOT / path).read_text()
    # Nothing else in the sources names it.
    name = Path(path).stem
    others = (ROOT / "native/src").rglob("*")
    naming = {f.relative_to(ROOT).as_posix() for f in others if f.is_file() and name in f.read_text(errors="ignore")}
    assert naming == {listed, path}
