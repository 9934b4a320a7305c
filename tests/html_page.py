"""What a browser would act on in a page, and what it would show."""

from html.parser import HTMLParser

VOID = {"meta", "input", "path", "line", "circle", "rect", "br", "img", "link"}


class Page(HTMLParser):
    """A page as a list of elements, each with its attributes and the text inside it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data
        for _, _, text in self.open:
            text.append(data)

    def all(self, *tags):
        """The attributes and the text of each element with one of these tags."""
        return [(attrs, " ".join("".join(text).split())) for tag, attrs, text in self.elements if tag in tags]

    def attributes(self, tag):
        return [attrs for attrs, _ in self.all(tag)]
