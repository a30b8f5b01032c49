"""`python -m onceward`: the command, where it is not on the PATH."""

from onceward.cli import main

if __name__ == "__main__":
    main()
