"""What the package shows of itself: the reports of ``python -m megengine``, the pages that plans and graphs become, and progress of long calls."""
