"""Shakespeare's complete works as speaking roles, one client per (play, speaker).

The roles follow LEAF (Caldas et al., 2018, "LEAF: A Benchmark for Federated Settings"),
which splits Project Gutenberg's #100. Its rules are kept with their side effects, since
its counts (1129 roles, 4,226,158 samples) are what papers report: stage directions that
are indented like speech stay in the speech, and a licence notice inside "The Comedy of
Errors" becomes a role of its own.
"""

import gzip
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

# The characters of the roles' texts. A role's line breaks become spaces in its samples;
# "\n" keeps its place so that codes agree with other readers of the same roles.
ALPHABET = (
    "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
)
WINDOW = 80

_BYLINE = "by William Shakespeare"
_TITLE_REACH = range(2, 8)
_FEWEST_LINES = 3


class Role(NamedTuple):
    """What one character says in one play.

    Attributes:
      user: Name of the client, e.g. `"THE_TEMPEST_PROSPERO"`.
      play: Title of the play.
      speaker: The character's name in upper case.
      text: All lines of the role, each ended by a line break.
    """

    user: str
    play: str
    speaker: str
    text: str


def read_text(path: str | Path) -> str:
    """Reads the plain text of the works, gzipped or not.

    Args:
      path: Path of a `.txt` or `.txt.gz` file in UTF-8.

    Returns:
      The text.
    """
    path = Path(path)
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return content.decode("utf-8-sig")


def plays_sha256(text: str) -> str:
    r"""SHA-256 of what the roles are made of, whatever ends the lines.

    It covers the lines from the first byline to the last one, each ended by a line
    feed: all plays. The file's header, its licence and the poem behind the last byline,
    which hold no role, may differ.

    Args:
      text: Plain text of the works.

    Returns:
      64 hexadecimal digits.

    Example:
      >>> works = "{}by William Shakespeare\r\nHamlet.\r\nby William Shakespeare"
      >>> plays_sha256(works.format("")) == plays_sha256(works.format("1994\r\n"))
      True
    """
    lines = text.splitlines()
    bylines = _bylines(lines) or [0]
    plays = "".join(f"{line}\n" for line in lines[bylines[0] : bylines[-1] + 1])
    return hashlib.sha256(plays.encode()).hexdigest()


def parse(text: str) -> list[Role]:
    r"""Splits the complete works into speaking roles, by LEAF's rules.

    A line of its own, "by William Shakespeare", starts a play; its title is the nearest
    line above, from the second on, that is not blank. A speech starts with two spaces,
    a name, a full stop; lines indented by four continue it. Names are compared in upper
    case. Dropped are: works with fewer than two speakers (the poems), roles of fewer
    than three lines, roles too short for one sample.

    Args:
      text: Plain text of the works, e.g. from `read_text`.

    Returns:
      Roles in order of first appearance.

    Example:
      >>> speech = "Hence! home, you idle creatures, get you home! " * 2
      >>> speeches = [f"  {name}. {speech}" for name in ("FLAVIUS", "Cob")] * 3
      >>> play = ["JULIUS CAESAR", "", "by William Shakespeare", "", *speeches]
      >>> [role.user for role in parse("\n".join(play))]
      ['JULIUS_CAESAR_FLAVIUS', 'JULIUS_CAESAR_COB']
    """
    lines = text.splitlines()
    starts = _bylines(lines)
    roles: list[Role] = []
    for start, stop in itertools.pairwise([*starts, len(lines)]):
        play = _title(lines, start)
        spoken: dict[str, list[str]] = {}
        for speaker, line in _spoken_lines(lines[start + 1 : stop], play):
            spoken.setdefault(speaker, []).append(line)
        if len(spoken) > 1:
            for speaker, said in spoken.items():
                user = re.sub(r"\W", "_", f"{play}_{speaker}")
                words = "".join(f"{line}\n" for line in said)
                roles.append(Role(user, play, speaker, words))
    roles = [
        role
        for role in roles
        if role.text.count("\n") >= _FEWEST_LINES and num_samples(role.text) > 0
    ]
    if not roles:
        raise ValueError(
            f"the text has {len(starts)} lines with {_BYLINE!r} and no speaking role "
            f"of {_FEWEST_LINES} lines and {WINDOW + 1} characters; give the plain "
            "text of the plays, with speeches as '  NAME. words'."
        )
    return roles


def num_samples(text: str, window: int = WINDOW) -> int:
    """Number of windows with a next character in a role's text."""
    return max(0, len(_collapsed(text)) - window)


def encode(text: str, alphabet: str = ALPHABET) -> np.ndarray:
    r"""Codes of a text, with every run of white space as one space.

    Args:
      text: Text whose characters are all in the alphabet.
      alphabet: Characters in the order of their codes.

    Returns:
      Codes, uint8 `[characters]`.

    Example:
      >>> encode("to be,\n  or").tolist() == [ALPHABET.index(c) for c in "to be, or"]
      True
    """
    if not 0 < len(alphabet) <= 256:
        raise ValueError(f"alphabet has {len(alphabet)} characters; give 1 to 256.")
    text = _collapsed(text)
    unknown = sorted(set(text) - set(alphabet))
    if unknown:
        raise ValueError(
            f"the text holds {unknown[0]!r}, which is not among the {len(alphabet)} "
            "characters of the alphabet; replace it or give an alphabet that has it."
        )
    table = str.maketrans({letter: chr(code) for code, letter in enumerate(alphabet)})
    return np.frombuffer(text.translate(table).encode("latin-1"), np.uint8)


def pack(roles: Sequence[Role]) -> dict[str, np.ndarray]:
    r"""Stores roles in plain arrays, so that the decoded cache can hold them.

    Args:
      roles: Roles to store.

    Returns:
      Their names as strings `[roles]`, all texts as one uint8 array of UTF-8 and the
      offset at which each ends.

    Example:
      >>> role = Role("HAMLET_GHOST", "HAMLET", "GHOST", "Mark me.\n")
      >>> unpack(pack([role])) == [role]
      True
    """
    texts = [role.text.encode("utf-8") for role in roles]
    names = {
        field: np.array([getattr(role, field) for role in roles], np.str_)
        for field in ("user", "play", "speaker")
    }
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return names | {"text": np.frombuffer(b"".join(texts), np.uint8), "ends": ends}


def unpack(arrays: Mapping[str, np.ndarray]) -> list[Role]:
    """The roles that `pack` stored, in their order."""
    text = arrays["text"].tobytes()
    starts = [0, *arrays["ends"][:-1]]
    texts = [
        text[start:end].decode("utf-8")
        for start, end in zip(starts, arrays["ends"], strict=True)
    ]
    names = (arrays[field].tolist() for field in ("user", "play", "speaker"))
    return [Role(*fields) for fields in zip(*names, texts, strict=True)]


# How speeches, and the lines that continue them, are set in a play.
_USUAL = re.compile(r"  ([A-Za-z][A-Za-z ]*)\. (.*)"), re.compile(r"    (.*)")
# This play is not indented, so stage directions and notices look like speech: an act's
# heading and a line that opens a notice end the speech before them.
_FLUSH = re.compile(r"([A-Za-z][A-Za-z ]*)\. (.*)"), re.compile(r"(.*)")
_FLUSH_PLAY = "THE COMEDY OF ERRORS"


def _spoken_lines(lines: Sequence[str], play: str) -> Iterator[tuple[str, str]]:
    flush = play == _FLUSH_PLAY
    begins, continues = _FLUSH if flush else _USUAL
    speaker = None
    for line in lines:
        if speech := begins.match(line):
            speaker, words = speech[1].upper(), speech[2]
            if flush and speaker.startswith("ACT "):
                speaker = None
        elif speaker and (more := continues.match(line)):
            words = more[1]
            if flush and words.startswith("<"):
                speaker = None
        else:
            continue
        if speaker:
            yield speaker, words


def _bylines(lines: Sequence[str]) -> list[int]:
    return [number for number, line in enumerate(lines) if line.strip() == _BYLINE]


def _title(lines: Sequence[str], byline: int) -> str:
    for above in _TITLE_REACH:
        if byline >= above and lines[byline - above].strip():
            return lines[byline - above].strip()
    raise ValueError(
        f"line {byline + 1} reads {_BYLINE!r} but none of the {_TITLE_REACH[-1]} lines "
        "above holds a title; put the title two lines above it."
    )


def _collapsed(text: str) -> str:
    return re.sub(r"\s+", " ", text)
