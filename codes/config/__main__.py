"""`python -m codes.config > options/README.md`"""

from .reference import schema_markdown

if __name__ == "__main__":
    print(schema_markdown(), end="")
