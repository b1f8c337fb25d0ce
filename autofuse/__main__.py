"""`python -m autofuse` is `autofuse`."""

from autofuse.cli.main import run

if __name__ == "__main__":
    run()
