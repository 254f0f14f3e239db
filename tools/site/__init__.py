"""The documentation site: pages generated from the code, notebooks as pages, and links between files as links of pages.

`make docs` builds it into build/site with MkDocs, which loads `hooks.py`.
"""
