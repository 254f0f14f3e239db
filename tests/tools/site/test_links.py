"""Links between files become links between pages, and a built site that loads or misses something is noticed."""

from tools.site.links import problems, rewritten, site_path
from tools.site.reference import PACKAGES, package_page


def test_files_of_the_project_have_a_page():
    assert site_path("README.md") == "index.md"
    assert site_path("docs/README.md") == "guides.md"
    assert site_path("SECURITY.md") == "security.md"
    assert site_path("docs/results/README.md") == "results/README.md"
    assert site_path("docs/notebooks/add_a_class.ipynb") == "notebooks/add_a_class.md"


def test_links_are_moved_and_code_is_not():
    text = "[a](docs/cli.md#exit-codes) [b](https://example.com) [c](#here) ![d](docs/demo.jpg) `[e](docs/cli.md)`"
    moved = "[a](cli.md#exit-codes) [b](https://example.com) [c](#here) ![d](demo.jpg) `[e](docs/cli.md)`"
    assert rewritten(text, "README.md") == moved
    assert rewritten("```\n[a](docs/cli.md)\n```\n", "README.md") == "```\n[a](docs/cli.md)\n```\n"


def test_links_from_folders_go_up():
    assert (
        rewritten("[a](../../SECURITY.md) [b](../cli.md)", "docs/extend/loss.md")
        == "[a](../security.md) [b](../cli.md)"
    )
    assert rewritten("[a](../README.md)", "docs/README.md") == "[a](index.md)"


def test_a_file_name_becomes_the_title_of_its_page():
    assert rewritten("- [cli.md](cli.md): options", "docs/README.md") == "- [The command line](cli.md): options"
    assert rewritten("[the page](cli.md)", "docs/README.md") == "[the page](cli.md)"


def test_a_good_site_has_no_problems(tmp_path):
    write(tmp_path, "a.html", '<h1 id="top"></h1><a href="b/c.html#x">c</a><a href="#top">a</a><img src="p.png">')
    write(tmp_path, "b/c.html", '<p id="x"></p><a href="../a.html">a</a><a href="https://example.com">e</a>')
    write(tmp_path, "p.png", "")
    write(tmp_path, "s.css", "a { background: url(p.png) }")
    assert problems(tmp_path) == []


def test_problems_are_found(tmp_path):
    write(tmp_path, "a.html", '<a href="b.html"></a><a href="#y"></a><script src="https://cdn.example/x.js"></script>')
    write(tmp_path, "s.css", "@font-face { src: url('https://fonts.example/f.woff2') }")
    assert problems(tmp_path) == [
        "a.html loads https://cdn.example/x.js",
        "a.html links to b.html, which does not exist",
        "a.html links to #y, and that page has no such anchor",
        "s.css loads https://fonts.example/f.woff2",
    ]


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_the_reference_has_every_public_name():
    for name in PACKAGES:
        page, package = package_page(name), __import__(name)
        assert sorted(line[4:] for line in page.splitlines() if line.startswith("::: ")) == sorted(
            f"{name}.{one}" for one in package.__all__
        )
