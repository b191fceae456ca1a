"""The tests of the project, laid out as the package is; README.md beside this file has the map."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
