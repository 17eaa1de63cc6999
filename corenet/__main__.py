"""`python -m corenet` is the command `corenet`."""

from .cli import main

if __name__ == "__main__":
    main()
