"""Tests of the corpora of documents: Wikipedia's markup is removed, texts are split into sentences, splits are disjoint."""

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from attnlab.tasks import archives, corpora
from attnlab.tasks.corpora import sentences

PARAGRAPH = "Anarchism is a political theory that is sceptical of authority."


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("'''Bold''' and ''italic'' text of an article", "Bold and italic text of an article"),
        ("A [[political theory|theory]] and [[anarchy]] in one line", "A theory and anarchy in one line"),
        ("See [http://example.com/a?b the site] of the authors", "See the site of the authors"),
        ("An image [[Image:A.png|thumb|a [[nested]] caption]] inside the text", "An image inside the text"),
        ("Languages [[de:Anarchismus]] and [[Category:Politics|A]] at the end", "Languages and at the end"),
        ("Text {{a template {{with another}} in it}} around templates", "Text around templates"),
        ("Before {| class=x\n|-\n| cell {| inner |} \n|} and after the table", "Before and after the table"),
        ("A &lt;!-- hidden\ncomment --&gt; comment in the text", "A comment in the text"),
        ("A formula &lt;math&gt;x^2&lt;/math&gt; stands in this line", "A formula stands in this line"),
        ("A reference&lt;ref name=a&gt;Book&lt;/ref&gt; and &lt;b&gt;bold&lt;/b&gt; words", "A reference and bold words"),
        ("An empty &lt;ref name=a/&gt; reference in the text", "An empty reference in the text"),
        ("Entities &amp;nbsp;&amp;mdash; of HTML &quot;here&quot;", 'Entities — of HTML "here"'),
        ("Unclosed [[link and {{template of an article", "Unclosed [[link and {{template of an article"),
    ],
)
def test_markup_is_removed(source: str, text: str):
    assert corpora.article_text(source) == [text]


def page(title: str, text: str) -> str:
    return f'<page>\n<title>{title}</title>\n<id>1</id><text xml:space="preserve">{text}</text>\n</page>\n'


def test_articles_of_a_dump():
    dump = page("One", PARAGRAPH) + page("Talk:One", PARAGRAPH) + page("Two", f"{PARAGRAPH}\n\n{PARAGRAPH}")
    dump += page("Empty", "#REDIRECT [[One]]") + page("Cut", PARAGRAPH).partition("</text>")[0]
    found = list(corpora.articles(dump))
    assert [len(paragraphs) for _, paragraphs in found] == [1, 2, 1]
    assert all(dump[offset:].startswith("<page>") for offset, _ in found)
    assert set(sum((paragraphs for _, paragraphs in found), [])) == {PARAGRAPH}


def test_sentences():
    assert sentences("One. Two! 3 is three? yes.") == ["One.", "Two!", "3 is three? yes."]
    assert sentences('He said "no." She left (at last). End') == ['He said "no."', "She left (at last).", "End"]
    assert sentences("a line\n\n  another  ") == ["a line", "another"]
    assert sentences("") == []
    assert sentences("a\x85b\u2028c\r\nd") == ["a\x85b\u2028c", "d"]  # line feeds alone end a line


def test_pre_training_and_classification_read_the_same_text_of_a_review():
    review = "Well\x85it is<br />a film.<br/>The end"
    assert corpora.review_text(review) == "Well it is a film. The end"
    assert sentences(corpora.review_text(review, line_break="\n")) == ["Well it is", "a film.", "The end"]


def test_articles_of_enwik8_are_split_by_their_place_in_the_dump(folders: Path, monkeypatch: pytest.MonkeyPatch):
    dump = "".join(page(f"Title {n}", f"Article number {n} begins here. It has a second sentence.") for n in range(100))
    contents = io.BytesIO()
    with zipfile.ZipFile(contents, "w") as archive:
        archive.writestr("enwik8", dump)
    (folders / "data").mkdir()
    (folders / "data" / archives.ENWIK8.file).write_bytes(contents.getvalue())
    source = replace(archives.ENWIK8, contents=hashlib.md5(dump.encode()).hexdigest())
    monkeypatch.setattr(corpora, "ENWIK8", source)
    splits = corpora.find("enwik8").read()
    assert {name: len(documents) for name, documents in splits.items()} == {"train": 91, "valid": 5, "test": 4}
    assert splits["valid"][0] == ["Article number 91 begins here.", "It has a second sentence."]
    assert source.contents in corpora.find("enwik8").identity()


def test_reviews_have_the_splits_of_the_task(small_reviews: None):
    splits, texts = corpora.find("imdb").read(), corpora.read_reviews()
    assert {name: len(documents) for name, documents in splits.items()} == corpora.review_counts()
    for name, documents in splits.items():
        assert all(document[0] in text for document, text in zip(documents, texts[name][0], strict=True))
        assert not any("<br" in sentence for document in documents for sentence in document)
    assert {len(document) for document in splits["train"]} == {2}
