"""Linear algebra and Fourier transforms, with the arguments of torch's ``linalg`` and ``fft``."""

from __future__ import annotations

from typing import Any

from ... import functional as F


def _of_one(name: str) -> Any:
    """A transform along one axis."""
    function = getattr(F.fft, name)
    return lambda input, n=None, dim=-1, norm=None: function(input, n, dim, norm)


def _of_several(name: str) -> Any:
    function, last = getattr(F.fft, name), (-2, -1) if name.endswith("2") else None
    return lambda input, s=None, dim=last, norm=None: function(input, s, dim, norm)


def _lower(function: Any, name: str) -> Any:
    """Makes a function of matrices that reads their lower triangle."""

    def of_lower(input, UPLO="L"):
        if UPLO != "L":
            raise ValueError(f"{name}: UPLO={UPLO!r}; only the lower triangle is read")
        return function(input)

    return of_lower


def cholesky(input, upper=False):
    factor = F.linalg.cholesky(input)
    return F.swapaxes(factor, -1, -2) if upper else factor


def solve(A, B, *, left=True):
    if not left:
        raise ValueError("linalg_solve: left=False is not supported; transpose both")
    return F.linalg.solve(A, B)


FUNCTIONS = {
    **{f"fft_{name}": _of_one(name) for name in ("fft", "ifft", "rfft", "irfft")},
    **{f"fft_{name}": _of_several(name) for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")},
    "fft_fftshift": lambda input, dim=None: F.fft.fftshift(input, dim),
    "fft_ifftshift": lambda input, dim=None: F.fft.ifftshift(input, dim),
    "complex": lambda real, imag: F.complex(real, imag),
    "real": lambda input: F.real(input),
    "imag": lambda input: F.imag(input),
    "view_as_real": lambda input: F.stack([F.real(input), F.imag(input)], axis=-1),
    **dict.fromkeys(("linalg_inv", "inverse"), lambda input: F.matinv(input)),
    **dict.fromkeys(("linalg_cholesky", "cholesky"), cholesky),
    "linalg_solve": solve,
    "linalg_qr": lambda A, mode="reduced": F.linalg.qr(A, mode),
    "linalg_eigh": _lower(F.linalg.eigh, "linalg_eigh"), "linalg_eigvalsh": _lower(F.linalg.eigvalsh, "linalg_eigvalsh"),
    **dict.fromkeys(("linalg_det", "det"), lambda input: F.linalg.det(input)),
    **dict.fromkeys(("linalg_slogdet", "slogdet"), lambda input: F.linalg.slogdet(input)),
    "linalg_svd": lambda A, full_matrices=True: F.svd(A, full_matrices), "linalg_svdvals": lambda A: F.linalg.svdvals(A),
    **dict.fromkeys(("linalg_matrix_power", "matrix_power"), lambda input, n: F.linalg.matrix_power(input, n)),
}  # fmt: skip
