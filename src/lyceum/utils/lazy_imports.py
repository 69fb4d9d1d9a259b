"""torch and transformers, loaded at their first use: a recipe is checked, and refused, before any of them is.

A module that a recipe's check imports (every slot's, since settings are beside their methods) says
``from lyceum.utils.lazy_imports import Tensor, torch`` where it would say ``import torch``. These names are this
module's own: ``import torch`` elsewhere is unaffected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import peft as peft
    import torch as torch
    import transformers as transformers
    from torch import Tensor as Tensor
    from torch import nn as nn
    from torch.nn import functional as F
else:
    import importlib

    class _Lazy:
        """A module that is imported at the first attribute access; from then on its attributes are as fast, and as
        patchable, as the module's."""

        def __init__(self, name: str) -> None:
            self.__name__ = name

        def __getattr__(self, name: str) -> Any:
            module = importlib.import_module(self.__name__)
            self.__dict__ = module.__dict__
            return getattr(module, name)  # from the module itself, which may make attributes on demand

    torch, nn, F = _Lazy("torch"), _Lazy("torch.nn"), _Lazy("torch.nn.functional")
    transformers, peft = _Lazy("transformers"), _Lazy("peft")

    class _OfTorch(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, torch.Tensor)

    class Tensor(metaclass=_OfTorch):
        """``torch.Tensor`` in an annotation or an ``isinstance``."""
