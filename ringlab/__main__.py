"""``python -m ringlab``, which is also what torchrun starts."""

from ringlab.cli import main

if __name__ == "__main__":
    main()
