"""The version of the package: of both distributions, of the citation and of the changelog."""

__version__ = "0.1.0"
