"""Hold the texts that readers see to docs/contributing/style.md: words, lengths of sentences, links.

    python -m scripts.prose           one line for each fault; fails if there is any
    python -m scripts.prose PATH …    the same of some files alone

A list of words finds what a list can find. A phrase that is right all the same is named in prose_exceptions.toml, with
the reason.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from scripts.prose_links import find_broken_advice, find_broken_links
from scripts.prose_texts import CODE, Passage, read_all

ROOT = Path(__file__).parents[1]
EXCEPTIONS = Path(__file__).with_name("prose_exceptions.toml")
MOST_WORDS = 35
SHORT_SENTENCES = (
    *("README.md", "SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md"),
    *("docs/tutorials/*", "docs/how-to/*"),
)
"""The files in which no sentence has more than MOST_WORDS words."""
_END_OF_SENTENCE = re.compile(r"""(?<=[.!?])["')]*\s+|\n(?=\s*[-*] )|\n\s*\n""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Words that are not used, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


def _rule(pattern: str, instead: str) -> Rule:
    # A line may be broken at any blank.
    return Rule(pattern=re.compile(pattern.replace(" ", r"\s"), re.MULTILINE), instead=instead)


_GUEST_CLUSTER = _rule(
    r"\b[Gg]uests?(?:'s?)?\b(?![ -](?:clusters?|admins?|developers?|agent|role|scan)\b)", "guest cluster"
)
RULES = (
    _rule(r"\b[Gg]iv(?:e|es|en|ing)\b|\b[Gg]ave\b", "assign, allocate, return, set"),
    _rule(r"\b[Tt]ell(?:s|ing)?\b|\b[Tt]old\b", "report, log, show"),
    _rule(r"\b[Ss]ay(?:s|ing)?\b|\b[Ss]aid\b", "report, show, name, mean"),
    _rule(
        r"\b(?:admin|guest|people|its|nobody|whose)'?s? word\b|\bword (?:of|against|for)\b", "report, value"
    ),
    _rule(
        r"\b[Ss]t(?:ands?|anding|ood) (?:in|at|on|there|behind|beside|below|above)\b",
        "is set in, is stored in",
    ),
    _rule(r"\bby (?:itself|themselves)\b|\banew\b|\bafresh\b", "automatically, again"),
    _rule(r"\b[Mm]end(?:s|ed|ing)?\b", "fix, repair"),
    _rule(
        r"\b[Ll]ook(?:s|ed|ing)? (?:at|into|after)\b|\b(?:an?|the|each|first|next|last|live) looks?\b",
        "check, scan, inspect",
    ),
    _rule(
        r"(?:^|[.;:] )Where (?![^.]*\?)[^.]*, |, where (?:it|they|that|this|there|no|nothing|none)\b", "if"
    ),
    _rule(r"\bwhat is (?:so|not so)\b", "the noun"),
    _rule(r"\b(?:is|are|was|were) to be\b", "should, must"),
    _rule(r"(?<![Tt]here )\b(?:is|are|was|were) no\b(?! longer)", "is not a"),
    _rule(r"\bmay\b", "can, is allowed to"),
    _rule(r"\b[Ss]o (?:long|many|often)\b", 'a number: "for 5 s", "up to 64", "every minute"'),
    _rule(r"\b(?:come|comes|coming|came|goes|going|went|gone) back\b", "retries, rolls back, returns"),
    _rule(r"\bin vain\b|\bas ever\b|\bcome what may\b", "nothing: delete it"),
    _rule(r"\b[Pp]eople(?:'s)?\b", "users, or you"),
    _rule(r"\b(?:[Ss]ome|[Nn]o|[Aa]ny|[Ee]very)body(?:'s|s)?\b", "the user, no owner, each client"),
    _rule(r"\b[Ww]hoever\b|(?:^|[.;:] )Who (?![^.]*\?)|\b(?:to|of|by|from|beside|those) who\b", "the noun"),
    _rule(r"\b(?:[Ww]e|[Oo]urs?|[Oo]urselves)\b", "fipop, or the noun"),
    _GUEST_CLUSTER,
    _rule(
        r"\b(?:[Aa]|[Tt]he|[Ee]ach|[Ee]very|[Nn]ext|[Ll]ast|[Oo]ne|[Ww]hole|[Qq]uiet) (?:pass|round)\b",
        "reconciliation",
    ),
    _rule(r"\bpasses over\b", "reconciles, leaves out"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """A phrase that is allowed in a file."""

    file: str
    """May have wildcards."""
    phrase: str
    reason: str

    def covers(self, fault: Fault) -> bool:
        """Whether a fault is a part of the phrase, or its sentence has the phrase."""
        if not fnmatch(fault.file, self.file):
            return False
        begin = -1
        while (begin := fault.context.find(self.phrase, begin + 1)) >= 0:
            end = begin + len(self.phrase)
            if fault.is_whole or (begin <= fault.begin and fault.end <= end):
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with a text."""

    file: str
    line: int
    message: str
    context: str = ""
    """The text around it, in one line."""
    begin: int = 0
    end: int = 0
    """Where in the context it is."""
    is_whole: bool = False
    """Whether it is the whole context."""

    def __str__(self) -> str:
        """Return the line that is printed."""
        return f"{self.file}:{self.line}: {self.message}"


def find_banned(text: str) -> list[str]:
    """Return the words of a message that are not used; a message may label an object `Guest demo`."""
    return [found[0] for rule in RULES if rule is not _GUEST_CLUSTER for found in rule.pattern.finditer(text)]


def find_words(passage: Passage) -> Iterator[Fault]:
    """Return the words of a passage that are not used."""
    context = re.sub(r"\s", " ", passage.text)
    for rule in RULES:
        for found in rule.pattern.finditer(passage.text):
            shown = " ".join(found[0].split()).replace(CODE, "`…`").strip(".;: ")
            yield Fault(
                file=passage.file,
                line=passage.line_of(found.start()),
                message=f'"{shown}": write {rule.instead}',
                context=context,
                begin=found.start(),
                end=found.end(),
            )


def find_long_sentences(passage: Passage) -> Iterator[Fault]:
    """Return the sentences of a passage that are too long, if its file is one of SHORT_SENTENCES."""
    if not any(fnmatch(passage.file, pattern) for pattern in SHORT_SENTENCES):
        return
    begin = 0
    for sentence in _END_OF_SENTENCE.split(passage.text):
        begin = passage.text.index(sentence, begin)
        words = [word for word in sentence.split() if re.search(rf"[\w{CODE}]", word)]
        if len(words) > MOST_WORDS:
            yield Fault(
                file=passage.file,
                line=passage.line_of(begin),
                message=f'a sentence has {len(words)} words, {MOST_WORDS} are allowed: "{" ".join(words[:6])} …"',
                context=" ".join(sentence.split()),
                is_whole=True,
            )


def read_exemptions(text: str) -> list[Exemption]:
    """Return the exceptions of a file of them. Raises TypeError if one lacks a field."""
    return [Exemption(**each) for each in tomllib.loads(text).get("exception", [])]


def judge(faults: Iterable[Fault], exemptions: Sequence[Exemption]) -> tuple[list[Fault], list[Exemption]]:
    """Return the faults that no exception covers, and the exceptions that cover none."""
    left = []
    used = set()
    for fault in faults:
        covering = [each for each in exemptions if each.covers(fault)]
        used.update(covering)
        if not covering:
            left.append(fault)
    return left, [each for each in exemptions if each not in used]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the faults. Return the exit code."""
    parser = argparse.ArgumentParser(description="Hold the texts that readers see to the style.")
    parser.add_argument(
        "paths", nargs="*", help="files or folders, from the root of the repository; all without"
    )
    paths = tuple(parser.parse_args(arguments).paths)
    passages = [each for each in read_all() if _is_wanted(each.file, paths)]
    faults = [fault for each in passages for fault in (*find_words(each), *find_long_sentences(each))]
    links = [each for each in (*find_broken_links(), *find_broken_advice()) if _is_wanted(each.file, paths)]
    faults.extend(Fault(file=each.file, line=each.line, message=each.message) for each in links)
    exemptions = read_exemptions(EXCEPTIONS.read_text(encoding="utf-8"))
    left, unused = judge(faults, exemptions)
    for fault in sorted(left, key=lambda each: (each.file, each.line)):
        print(fault)
    if not paths:
        for each in unused:
            print(f'{EXCEPTIONS.name}: the exception "{each.phrase}" of {each.file} is not needed')
            left.append(Fault(file=EXCEPTIONS.name, line=1, message=""))
    return 1 if left else 0


def _is_wanted(file: str, paths: tuple[str, ...]) -> bool:
    return not paths or any(file == path or file.startswith(f"{path.rstrip('/')}/") for path in paths)


if __name__ == "__main__":
    sys.exit(main())
