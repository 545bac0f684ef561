"""Plain text of the articles in a dump of Wikipedia, for example enwik8: XML and wiki markup are removed.

The rules, in order (``article_text``):

1. An article is the text of a ``<page>``, from ``<text ...>`` to ``</text>``. Redirects, and pages outside the main namespace
   (``Talk:``, ``Image:``, ``Template:`` and others), are left out. A page that the end of the dump cuts off is kept.
2. XML entities become characters, and so do the HTML entities inside the text: ``&amp;nbsp;`` is a space.
3. Comments, and the elements ``math``, ``gallery``, ``timeline``, ``ref``, ``table``, ``pre``, ``code`` and ``nowiki``, are
   removed with their content. Of other HTML tags the content is kept.
4. Templates ``{{...}}`` and tables ``{|...|}`` are removed, the innermost first.
5. A link ``[[page|label]]`` becomes its label, ``[[page]]`` the name of the page, ``[http://address label]`` its label. Images,
   categories and links to other languages are removed.
6. Bold and italic marks are removed. Headings, and lines that begin with the marks of a list, a table or an indent (``*``,
   ``#``, ``:``, ``;``, ``|``, ``!``) are left out.
7. White space becomes a single space. Lines shorter than ``MIN_CHARACTERS``, or without a letter, are left out.

Each remaining line is a paragraph.
"""

import html
import re
from collections.abc import Iterator

MIN_CHARACTERS = 20  # of a paragraph
NAMESPACES = "Talk|User|User talk|Wikipedia|Image|MediaWiki|Template|Help|Category|Portal"

_PAGE = re.compile(r"<title>(?P<title>.*?)</title>.*?<text[^>]*>(?P<text>.*?)(?:</text>|\Z)", re.DOTALL)
_OTHER_NAMESPACE = re.compile(rf"(?:{NAMESPACES})(?: talk)?:", re.IGNORECASE)
_REDIRECT = re.compile(r"\s*#\s*redirect", re.IGNORECASE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_ELEMENT = re.compile(
    r"<(math|gallery|timeline|ref|table|pre|code|nowiki)\b(?:[^>]*/>|.*?(?:</\1\s*>|\Z))", re.DOTALL | re.IGNORECASE
)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}|\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
_LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
_REMOVED_LINK = re.compile(r"\s*(?:image|file|category|media|[a-z]{2,3}(?:-[a-z-]+)?|simple)\s*:", re.IGNORECASE)
_EXTERNAL = re.compile(r"\[(?:https?|ftp|mailto|news|irc):[^\s\]]*\s*([^\]]*)\]", re.IGNORECASE)
_QUOTES = re.compile(r"'{2,}")
_LEFT_OUT = re.compile(r"\s*(?:[*#:;|!=]|\{\||\|\})")
_LETTER = re.compile(r"[^\W\d_]")


def articles(dump: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (offset, paragraphs) of each article of a dump that has any text; ``offset`` counts characters of the dump."""
    begin = dump.find("<page>")
    while begin >= 0:
        end = dump.find("<page>", begin + 1)
        page = _PAGE.search(dump[begin : end if end >= 0 else len(dump)])
        if page is not None and not _OTHER_NAMESPACE.match(page["title"]):
            paragraphs = article_text(page["text"])
            if paragraphs:
                yield begin, paragraphs
        begin = end


def article_text(source: str) -> list[str]:
    """Return the paragraphs of an article, without markup; [] of a redirect.

    Args:
        source: the wiki text as it stands in the XML of a dump.
    """
    text = html.unescape(html.unescape(source))  # the entities of the XML, then those of HTML that they spell
    if _REDIRECT.match(text):
        return []
    text = _COMMENT.sub("", text)
    text = _ELEMENT.sub(" ", text)
    text = _TAG.sub(" ", text)
    text = _replace_innermost(_TEMPLATE, lambda match: "", text)
    text = _replace_innermost(_LINK, _link_label, text)
    text = _EXTERNAL.sub(r"\1", text)
    text = _QUOTES.sub("", text)
    lines = [" ".join(line.split()) for line in text.split("\n") if not _LEFT_OUT.match(line)]
    return [line for line in lines if len(line) >= MIN_CHARACTERS and _LETTER.search(line)]


def _link_label(match: re.Match[str]) -> str:
    """Return the text that a link shows; "" of an image, a category or a link to another language."""
    target, bar, label = match[1].partition("|")
    if _REMOVED_LINK.match(target):
        return ""
    return label.rpartition("|")[2] if bar else target.lstrip(":")


def _replace_innermost(pattern: re.Pattern[str], replacement, text: str) -> str:  # noqa: ANN001
    """Replace matches until none is left: the pattern matches only what contains no match itself."""
    count = 1
    while count:
        text, count = pattern.subn(replacement, text)
    return text
