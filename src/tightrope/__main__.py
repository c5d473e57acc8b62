"""python -m tightrope"""

from tightrope.cli import main

main()
