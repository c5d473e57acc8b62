"""One game, seen: the picture, what the agent makes of it, and the value's rope.

`play` plays it, `rope` computes the bounds that the game itself gives, `scene` draws, `screens` show: a window, the
terminal, a video.
"""

from tightrope.watch.play import watch

__all__ = ["watch"]
