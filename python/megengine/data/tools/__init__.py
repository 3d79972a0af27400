"""Place for tools around datasets. The loader moves batches between processes by itself."""
