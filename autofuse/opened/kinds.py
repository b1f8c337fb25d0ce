"""What the open sizes of a model are: rows of a batch or of tokens, or images and signals that windows slide over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autofuse.compiler.open_sizes.reading import read_open
from autofuse.errors import InputError
from autofuse.graph.loading.given.buckets import has_windows_behind, of_images
from autofuse.graph.loading.given.sizes import OpenSize, open_ones
from autofuse.opened.grid_job import read_images
from autofuse.values.arguments import Given


def over_images(model: Path, given: Given, sizes: Sequence[OpenSize]) -> bool:
    """Whether open sizes are those of images or signals.

    Where windows stand behind products, as in encoders of speech, the file alone does not say so: they are where the
    model mixes rows, and can be read as an image.
    """
    names = [size.name for size in open_ones(sizes)]
    if of_images(model, names) or any(size.step > 1 for size in open_ones(sizes)):
        return True
    if not has_windows_behind(model, names):
        return False
    for read, images in ((read_open, False), (read_images, True)):
        try:
            read(model, given, sizes)
        except InputError:
            continue
        return images
    return False
