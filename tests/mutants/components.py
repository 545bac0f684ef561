"""Components with one mistake each, which the contract must notice."""

from torch import Tensor

from attnlab.components import Component, ComponentConfig
from attnlab.testing.composition import ComponentSpec, compose
from tests.mutants.base import Plain


class Idle(Component):
    """Returns the logits as they are."""

    def score(self, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s


PlainWithIdle = compose(Plain, [ComponentSpec.of(Idle)])


class WiderThanDeclared(Component):
    """Shows one key more than its window has, which only backends that read the window hide."""

    roles = frozenset({"causal", "bidirectional"})
    permutation_equivariant = False

    def __init__(self, config: ComponentConfig) -> None:
        super().__init__(config)
        self.window = 40

    def visible(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() <= 40


PlainWithWiderWindow = compose(Plain, [ComponentSpec.of(WiderThanDeclared)])
