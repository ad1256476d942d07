"""Words that neither prose nor messages use (docs/contributing/style.md): each with what to write instead."""

import re

BANNED = {
    r"giv(?:e|es|en|ing)|gave": "assign, allocate or return",
    r"tell|tells|told|telling": "report, log or show",
    r"says?|said|saying": "report, log or show",
    r"whoever|somebody|someone|nobody|people": "name the person: you, the requester, an admin",
    r"we|ours?|us": "fipop",
    r"stands? in|stood in|stands? there": "is set in, is stored in",
    r"by itself|by themselves|anew|afresh": "automatically, again",
    r"mend|mends|mended|mending": "fix, repair",
    r"looks? at|looked at|look at|looks? into|a look": "check, scan, inspect",
    r"where|what is|what are": "if X; the X",
    r"is to be|are to be|is no (?!longer)|are no (?!longer)|may": "should or must; is not; can",
    r"so long|so many|so often": "a number with its unit",
    r"(?:come|comes|came|go|goes|went) back": "retries, rolls back, returns",
    r"in vain|as ever|come what may": "nothing",
}
_PATTERN = re.compile(r"(?<![\w-])(?:" + "|".join(BANNED) + r")(?![\w-])", re.IGNORECASE)


def find_banned(text: str) -> list[str]:
    """Return the banned words of a text, in their order."""
    return [found[0] for found in _PATTERN.finditer(text)]
