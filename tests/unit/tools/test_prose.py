"""The checker of the documentation's words, sentences and links finds what it must, and accepts what is named."""

from pathlib import Path

import click
import pytest

from scripts.prose import (
    MOST_WORDS,
    Fault,
    find_long_sentences,
    find_words,
    judge,
    read_exemptions,
)
from scripts.prose_links import find_anchors, find_broken_links
from scripts.prose_texts import (
    ROOT,
    Passage,
    find_pages,
    read_command,
    read_comments,
    read_markdown,
    read_plain,
    read_values,
)

PAGE = "docs/how-to/page.md"


def words_in(text: str, file: str = PAGE) -> list[str]:
    faults = [fault for each in read_markdown(text, file) for fault in find_words(each)]
    return [fault.message.partition('"')[2].partition('"')[0] for fault in faults]


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("The range gives an address.", "gives"),
        ("The condition tells the reason.", "tells"),
        ("The condition says why.", "says"),
        ("It stands in the ConfigMap.", "stands in"),
        ("It heals by itself.", "by itself"),
        ("fipop mends the release.", "mends"),
        ("Have a look.", "a look"),
        ("fipop looks at the guest cluster.", "looks at"),
        ("Where it is full, fipop waits.", "Where it is full,"),
        ("The key is to be removed.", "is to be"),
        ("That is no address.", "is no"),
        ("You may delete it.", "may"),
        ("It waits so long.", "so long"),
        ("The guest cluster goes back.", "goes back"),
        ("It asks in vain.", "in vain"),
        ("People write this.", "People"),
        ("Nobody has it.", "Nobody"),
        ("Who asks first gets it.", "Who"),
        ("It goes to who waits.", "to who"),
        ("We assign it.", "We"),
        ("This key is ours.", "ours"),
        ("The guest answers.", "guest"),
        ("fipop makes a pass.", "a pass"),
    ],
)
def test_a_banned_word_is_found(sentence: str, word: str) -> None:
    assert words_in(sentence) == [word]


@pytest.mark.parametrize(
    "sentence",
    [
        "fipop assigns an address to the guest cluster.",
        "There is no address, and it is no longer held.",
        "Who had the address in May?",
        "Where does fipop write it?",
        "A guest admin can read it.",
        "Look the option up in the reference.",
        "Pass `--set` to helm.",
        "Run `fipop who 10.0.0.5 # who may have it` first.",
    ],
)
def test_good_english_and_code_are_accepted(sentence: str) -> None:
    assert words_in(sentence) == []


def test_a_word_is_found_in_headings_tables_and_lists_and_across_a_line_break() -> None:
    text = "# What it tells\n\n| a | b |\n|---|---|\n| c | it may |\n\n- one\n- goes\n  back\n"
    found = [fault for each in read_markdown(text, PAGE) for fault in find_words(each)]
    assert [(fault.line, fault.message.split('"')[1]) for fault in found] == [
        (1, "tells"),
        (5, "may"),
        (8, "goes back"),
    ]


def test_blocks_of_code_are_not_read() -> None:
    assert words_in("```console\n$ give nobody anything\n```\n\n    we may tell\n") == []


def test_the_texts_of_the_chart_are_read_with_their_lines() -> None:
    crd = "spec:\n  x:\n    description: >-\n      What people write.\n    pattern: we may\n"
    [described] = read_values(crd, "crds/x.yaml")
    assert [fault.line for fault in find_words(described)] == [3]
    template = '{{- $x := "a: b" }}\nsummary: Range {{ `{{ $labels.range }}` }} tells\n'
    [summary] = read_values(template, "files/alerts.yaml")
    assert [fault.message for fault in find_words(summary)] == ['"tells": write report, log, show']
    [comment] = read_comments("a: 1\n# Nobody reads\n# this.\nb: we\n", "values.yaml")
    assert (comment.line, comment.text) == (2, "Nobody reads\nthis.")
    [notes] = read_plain("It tells.\n\n  kubectl tell\n", "templates/NOTES.txt")
    assert notes.text == "It tells."


def test_the_help_of_every_command_is_read() -> None:
    @click.group(help="Above.")
    def above() -> None:
        """Nothing."""

    @above.command(help="It tells.")
    @click.option("--wait", help="So long.")
    def below(wait: str) -> None:
        """Nothing."""

    found = {(each.file, each.text) for each in read_command(above, "fipop")}
    assert {
        ("fipop --help", "Above."),
        ("fipop below --help", "It tells."),
        ("fipop below --help", "So long."),
    } <= found


def lengths(text: str, file: str) -> list[Fault]:
    return [fault for each in read_markdown(text, file) for fault in find_long_sentences(each)]


def test_a_long_sentence_is_found_in_how_tos_alone() -> None:
    fits = "Word" + " word" * (MOST_WORDS - 2) + " end. "
    long = "fipop" + " word" * MOST_WORDS + "."
    assert lengths(fits * 3, PAGE) == []
    [fault] = lengths(f"Short.\n{fits}\n{long}", PAGE)
    assert fault.line == 3
    assert lengths(long, "docs/concepts/page.md") == []


def test_code_is_one_word_of_a_sentence() -> None:
    assert lengths("word " * (MOST_WORDS - 1) + "`a b c d e`.", PAGE) == []


def test_an_exception_covers_its_phrase_in_its_files_alone_and_is_named_if_it_covers_none() -> None:
    exemptions = read_exemptions(
        '[[exception]]\nfile = "docs/*"\nphrase = "the word of a guest"\nreason = "the title of a page"\n'
        '[[exception]]\nfile = "docs/*"\nphrase = "never there"\nreason = "none"\n'
    )
    covered = Passage(file=PAGE, line=1, text="Read the word\nof a guest.")
    beside = Passage(file=PAGE, line=1, text="A guest. The word of a guest cluster.")
    elsewhere = Passage(file="README.md", line=1, text="the word of a guest")
    left, unused = judge(find_words(covered), exemptions)
    assert (left, [each.phrase for each in unused]) == ([], ["never there"])
    assert len(judge(find_words(beside), exemptions)[0]) == 2
    assert len(judge(find_words(elsewhere), exemptions)[0]) == 2


def test_an_exception_without_a_reason_is_an_error() -> None:
    with pytest.raises(TypeError):
        read_exemptions('[[exception]]\nfile = "a"\nphrase = "b"\n')


def test_links_to_files_and_headings_that_do_not_exist_are_found() -> None:
    page = ROOT / "docs" / "page.md"
    other = ROOT / "docs" / "other.md"
    text = (
        "# Page\n\n[good](other.md#two-words), [good](#page), [good](https://example.com/x#y), [good](../README.md)\n"
        "\n[bad](missing.md)\n\n[bad](other.md#three)\n\n![bad](images/none.png)\n"
    )
    found = list(find_broken_links({page: text, other: "## Two `words`\n"}))
    assert [(each.line, each.message) for each in found] == [
        (5, "the link missing.md leads to no file"),
        (7, "the link other.md#three leads to no heading of that page"),
        (9, "the link images/none.png leads to no file"),
    ]


def test_anchors_are_those_of_github() -> None:
    text = "# A range: `max`, and more\n\n## Same\n\n## Same\n\nText\n"
    assert find_anchors(text) == {"a-range-max-and-more", "same", "same-1"}


def test_the_checker_reads_what_readers_see() -> None:
    pages = find_pages()
    for name in (
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "CODE_OF_CONDUCT.md",
        "CHANGELOG.md",
        "app-readme.md",
    ):
        assert ROOT / name in pages
    assert Path("docs/concepts/overview.md") in {each.relative_to(ROOT) for each in pages}
