"""From names in a study to classes: variants, components, position schemes, tasks, models, optimizers and analyses.

A class enters a registry in one of three ways: by a decorator in a file that the study imports, by a path instead of a name
(``../lab/cosine.py:Cosine`` or ``package.module:Cosine``), or by an entry point of an installed package. Built-in classes are
listed here as strings and imported on first use, so that importing attnlab stays fast.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from attnlab._util.options import check_options as check_options
from attnlab._util.options import options_of as options_of
from attnlab._util.options import source as source
from attnlab._util.options import with_defaults as with_defaults
from attnlab._util.plugins import Plugins
from attnlab._util.user_code import USER_MODULE, load_file
from attnlab.errors import UserError, nearest
from attnlab.field_names import find_ours, fold

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T", bound=Callable[..., Any])  # a class, or a function that becomes one


class Registry(Plugins):
    """A mapping from names to classes of one kind.

    Args:
        kind: singular noun for messages, for example ``"variant"``.
        group: entry-point group with which installed packages add classes.
        base: ``"module:Class"`` of the base class.
        builtin: name -> ``"module:Class"`` of attnlab's classes.
        functions: ``"module:function"`` that returns the class of a function of the user; None: classes only.
    """

    def __init__(self, kind: str, *, group: str, base: str, builtin: dict[str, str], functions: str | None = None) -> None:
        super().__init__(kind, group=group, builtin=builtin)
        self._functions = functions
        self._base = base
        self._registered: dict[str, type] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a class, or a component's function, under ``name``.

        Raises:
            UserError: the name is taken by another class.
        """

        def decorator(definition: T) -> T:
            cls = self._class_of(definition)
            if cls is None:
                raise UserError(f"the {self.kind} {name!r}: expected a class, got {definition!r}")
            registered = self._registered.get(name)
            if registered is not None and not _same_definition(registered, cls):
                raise UserError(f"the {self.kind} {name!r} is registered twice: {source(registered)} and {source(cls)}")
            if name in self._builtin:
                raise UserError(f"the {self.kind} {name!r} of {source(cls)} has the name of a built-in one: rename it")
            self._registered[name] = cls
            return definition

        return decorator

    def _class_of(self, definition: object) -> type | None:
        """Return a class itself, the class of a function where this kind has one, or None for other objects."""
        if isinstance(definition, type):
            return definition
        if self._functions is None or not inspect.isfunction(definition):
            return None
        module, _, name = self._functions.partition(":")
        return getattr(importlib.import_module(module), name)(definition)

    def names(self) -> list[str]:
        """Return all names: built-in, registered, and from entry points."""
        return list(dict.fromkeys([*self._builtin, *self._registered, *self._entry_points()]))

    def get(self, ref: str, *, relative_to: Path | None = None) -> type:
        """Return the class of a reference.

        Args:
            ref: a known name, ``path/to/file.py:Class`` or ``package.module:Class``.
            relative_to: folder that a relative file path starts from; default: the working directory.

        Raises:
            UserError: no class has this name, or importing it failed.
        """
        if ":" in ref:
            return self._from_path(ref, relative_to or Path.cwd())
        if ref.endswith(".py"):
            raise UserError(self._without_class(ref, relative_to or Path.cwd()))
        if ref in self._registered:
            return self._registered[ref]
        if ref in self._builtin or ref in self._entry_points():
            return self.load(ref)
        other = "" if find_ours(ref, self.names()) else self._other_kind(ref)
        hint = other or self._unregistered(ref) or nearest(ref, self.names(), anywhere=True)
        raise UserError(f"unknown {self.kind} {ref!r}{hint}; known: {', '.join(self.names())}")

    def has_base(self, cls: type) -> bool:
        """Return True for a subclass of this kind's base class."""
        return self._base in [f"{base.__module__}:{base.__qualname__}" for base in cls.__mro__]

    def imported(self, ref: str) -> type | None:
        """Return the class of a reference that comes from a record: no file is imported for it.

        Returns:
            None when no class of this kind has this name. A path stands for a file of the same name that is imported already,
            and for nothing if there are several.
        """
        if ":" not in ref:
            return self.get(ref) if ref in self.names() else None
        location, _, name = ref.rpartition(":")
        modules = [sys.modules[location]] if location in sys.modules else []
        if location.endswith(".py"):
            files = {
                key: getattr(module, "__file__", None) for key, module in sys.modules.items() if key.startswith(USER_MODULE)
            }
            modules = [sys.modules[key] for key, file in files.items() if file and Path(file).name == Path(location).name]
        classes = [cls for module in modules if (cls := self._class_of(getattr(module, name, None))) and self.has_base(cls)]
        return classes[0] if len(classes) == 1 else None

    def _other_kind(self, name: str) -> str:
        """Return a hint if a class of another kind has the name, in any case."""
        for other in (VARIANTS, COMPONENTS, POSITIONS, TASKS, MODELS, OPTIMIZERS):
            spellings = {fold(known): known for known in (*other._builtin, *other._registered)}
            if other is not self and (found := spellings.get(fold(name))):
                article = "an" if other.kind[0] in "aeiou" else "a"
                use = f": {{name: dense, with: [{found}]}}" if (self, other) == (VARIANTS, COMPONENTS) else ""
                return f" ({found!r} is {article} {other.kind}{use})"
        return ""

    def _unregistered(self, name: str) -> str:
        """Return a hint if an imported file of the user defines classes of this kind that are not registered."""
        modules = [module for key, module in sys.modules.items() if key.startswith(USER_MODULE)]
        classes = [
            c for module in modules for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__
        ]
        bases = {cls: {f"{base.__module__}:{base.__qualname__}" for base in cls.__mro__[1:]} for cls in classes}
        missing = [cls for cls in classes if self._base in bases[cls] and cls not in self._registered.values()]
        if not missing:
            return ""
        alike = [cls for cls in missing if nearest(name.lower(), [cls.__name__.lower()])]
        places = ", ".join(f"{cls.__name__} ({Path(source(cls)).name})" for cls in (alike or missing)[:3])
        decorator = f"@register_{self._group.removeprefix('attnlab.').removesuffix('s')}({name!r})"
        return f" (not registered: {places}; put {decorator} before the class)"

    def _load(self, point: EntryPoint) -> type:
        definition = super()._load(point)
        try:
            cls = self._class_of(definition)
        except Exception as error:
            raise UserError(f"{self.kind} {point.name!r}: importing {point.value} failed: {error}") from error
        if cls is None:
            raise UserError(f"{self.kind} {point.name!r}: expected a class, got {point.value}")
        return cls

    def _from_path(self, ref: str, folder: Path) -> type:
        location, _, name = ref.rpartition(":")
        if not location.endswith(".py"):
            try:
                module = importlib.import_module(location)
            except (Exception, SystemExit) as error:  # a third-party module may raise anything
                reason = f"{type(error).__name__}: {error}"
                raise UserError(f"{self.kind} {ref!r}: cannot import module {location!r} ({reason})") from error
        else:
            module = load_file(folder / location)
        cls = self._class_of(getattr(module, name, None))
        if cls is None and not location.endswith(".py"):
            raise UserError(f"module {location} has no class {name!r}")
        if cls is None:
            classes = _classes(module)
            raise UserError(
                f"{self.kind} {ref!r}: {location} defines no class {name!r}{nearest(name, classes)}; "
                f"it defines {', '.join(classes) or 'none'}"
            )
        return cls

    def _without_class(self, ref: str, folder: Path) -> str:
        """Return the message for a file without a class name; it lists the classes of the file."""
        refs = [f"{ref}:{name}" for name in _classes(load_file(folder / ref))]
        return f"{self.kind} {ref!r}: expected a class of the file, {' or '.join(refs) or f'{ref}:NAME'}, got the file alone"


def _classes(module: ModuleType) -> list[str]:
    """Return the names of the classes that a module defines itself."""
    return [name for name, c in vars(module).items() if isinstance(c, type) and c.__module__ == module.__name__]


def _same_definition(one: type, other: type) -> bool:
    """Return True for a class that its own file redefines, as when a notebook cell runs twice."""
    return source(one).split(":")[0] == source(other).split(":")[0] and one.__qualname__ == other.__qualname__


VARIANTS = Registry(
    "variant",
    group="attnlab.variants",
    base="attnlab.variants.base:Variant",
    builtin={
        "dense": "attnlab.variants.dense:Dense",
        "einsum": "attnlab.variants.einsum:Einsum",
        "no_wo": "attnlab.variants.no_wo:NoWo",
        "transformer_xl": "attnlab.variants.transformer_xl:TransformerXL",
        "strided_sparse": "attnlab.variants.strided_sparse:StridedSparse",
        "fixed_sparse": "attnlab.variants.fixed_sparse:FixedSparse",
        "wide": "attnlab.variants.wide:Wide",
        "narrow": "attnlab.variants.narrow:Narrow",
        "basic": "attnlab.variants.basic:Basic",
        "differential": "attnlab.variants.differential:Differential",
        "latent": "attnlab.variants.latent:Latent",
        "path": "attnlab.variants.path:Path",
        "dsa": "attnlab.variants.dsa:Dsa",
        "linear": "attnlab.variants.linear:Linear",
        "retention": "attnlab.variants.retention:Retention",
        "gated_linear": "attnlab.variants.gated_linear:GatedLinear",
        "ssd": "attnlab.variants.ssd:Ssd",
        "log_linear": "attnlab.variants.log_linear:LogLinear",
        "mamba3": "attnlab.variants.mamba3:Mamba3",
        "delta": "attnlab.variants.delta:Delta",
        "gated_delta": "attnlab.variants.gated_delta:GatedDelta",
        "kda": "attnlab.variants.kda:Kda",
        "gated_delta2": "attnlab.variants.gated_delta2:GatedDelta2",
        "delta_product": "attnlab.variants.delta_product:DeltaProduct",
        "gru": "attnlab.variants.gru:Gru",
        "lstm": "attnlab.variants.lstm:Lstm",
        "convolution": "attnlab.variants.convolution:Convolution",
        "none": "attnlab.variants.none:NoMixing",
    },
)
COMPONENTS = Registry(
    "component",
    group="attnlab.components",
    base="attnlab.components.base:Component",
    functions="attnlab.components.functions:function_component",
    builtin={
        "token_shift": "attnlab.components.token_shift:TokenShift",
        "token_shift_qkv": "attnlab.components.token_shift_qkv:TokenShiftQKV",
        "short_conv": "attnlab.components.short_conv:ShortConv",
        "narrow": "attnlab.components.narrow:Narrow",
        "kv_heads": "attnlab.components.kv_heads:KeyValueHeads",
        "qk_norm": "attnlab.components.qk_norm:QKNorm",
        "temperature": "attnlab.components.temperature:Temperature",
        "log_n": "attnlab.components.log_n:LogN",
        "value_residual": "attnlab.components.value_residual:ValueResidual",
        "value_embedding": "attnlab.components.value_embedding:ValueEmbedding",
        "forget_gate": "attnlab.components.forget_gate:ForgetGate",
        "softcap": "attnlab.components.softcap:Softcap",
        "window": "attnlab.components.window:Window",
        "moba": "attnlab.components.moba:Moba",
        "sink": "attnlab.components.sink:Sink",
        "softmax1": "attnlab.components.softmax1:Softmax1",
        "sigmoid": "attnlab.components.sigmoid:Sigmoid",
        "gate": "attnlab.components.gate:Gate",
        "exclusive": "attnlab.components.exclusive:Exclusive",
        "no_wo": "attnlab.components.no_wo:NoOutputProjection",
    },
)
POSITIONS = Registry(
    "position scheme",
    group="attnlab.positions",
    base="attnlab.positions.base:Position",
    builtin={
        "none": "attnlab.positions.none:NoPosition",
        "learned": "attnlab.positions.learned:Learned",
        "sinusoidal": "attnlab.positions.sinusoidal:Sinusoidal",
        "relative": "attnlab.positions.relative:Relative",
        "rotary": "attnlab.positions.rotary:Rotary",
        "pope": "attnlab.positions.pope:Pope",
        "alibi": "attnlab.positions.alibi:Alibi",
        "t5": "attnlab.positions.t5:T5",
        "kerple": "attnlab.positions.kerple:Kerple",
        "fire": "attnlab.positions.fire:Fire",
        "cope": "attnlab.positions.cope:Cope",
    },
)
TASKS = Registry(
    "task",
    group="attnlab.tasks",
    base="attnlab.tasks.base:Task",
    builtin={
        "imdb": "attnlab.tasks.imdb:Imdb",
        "enwik8": "attnlab.tasks.enwik8:Enwik8",
        "masked_text": "attnlab.tasks.masked_text:MaskedText",
        "pydocs": "attnlab.tasks.pydocs:PyDocs",
        "pysource": "attnlab.tasks.pysource:PySource",
        "csv": "attnlab.tasks.csv:Csv",
        "text": "attnlab.tasks.text:Text",
        "tokens": "attnlab.tasks.tokens:Tokens",
        "pixels": "attnlab.tasks.pixels:Pixels",
        "multi30k": "attnlab.tasks.multi30k:Multi30k",
        "translation": "attnlab.tasks.parallel:Parallel",
        "mqar": "attnlab.tasks.diagnostics.mqar:Mqar",
        "stacked_mqar": "attnlab.tasks.diagnostics.mqar:StackedMqar",
        "parity": "attnlab.tasks.diagnostics.parity:Parity",
        "group": "attnlab.tasks.diagnostics.group:Group",
        "flip_flop": "attnlab.tasks.diagnostics.flip_flop:FlipFlop",
        "sparse_flip_flop": "attnlab.tasks.diagnostics.flip_flop:SparseFlipFlop",
        "addition": "attnlab.tasks.diagnostics.addition:Addition",
        "listops": "attnlab.tasks.diagnostics.listops:ListOps",
        "induction": "attnlab.tasks.diagnostics.induction:Induction",
        "noisy_recall": "attnlab.tasks.diagnostics.noisy_recall:NoisyRecall",
        "fuzzy_recall": "attnlab.tasks.diagnostics.fuzzy_recall:FuzzyRecall",
        "selective_copy": "attnlab.tasks.diagnostics.selective_copy:SelectiveCopy",
        "compression": "attnlab.tasks.diagnostics.compression:Compression",
        "memorisation": "attnlab.tasks.diagnostics.memorisation:Memorisation",
        "indirect_index": "attnlab.tasks.diagnostics.indirect_index:IndirectIndex",
        "k_hop": "attnlab.tasks.diagnostics.k_hop:KHop",
        "state_recall": "attnlab.tasks.diagnostics.state_recall:StateRecall",
        "copy": "attnlab.tasks.diagnostics.copy:Copy",
    },
)
MODELS = Registry(
    "model",
    group="attnlab.models",
    base="attnlab.models.base:Model",
    builtin={
        "language_model": "attnlab.models.language_model:LanguageModel",
        "classifier": "attnlab.models.classifier:Classifier",
        "encoder_decoder": "attnlab.models.encoder_decoder:EncoderDecoder",
        "masked_language_model": "attnlab.models.masked_language_model:MaskedLanguageModel",
    },
)

BACKENDS = ("reference", "blocked", "sdpa", "xformers", "flex")  # of attnlab.nn.attention

OPTIMIZERS = Registry(
    "optimizer",
    group="attnlab.optimizers",
    base="torch.optim.optimizer:Optimizer",
    builtin={
        "adamw": "torch.optim:AdamW",
        "adam": "torch.optim:Adam",
        "adamax": "torch.optim:Adamax",
        "nadam": "torch.optim:NAdam",
        "radam": "torch.optim:RAdam",
        "sgd": "torch.optim:SGD",
        "rmsprop": "torch.optim:RMSprop",
        "adagrad": "torch.optim:Adagrad",
        "adadelta": "torch.optim:Adadelta",
        "adafactor": "torch.optim:Adafactor",
        "muon": "attnlab.training.matrix_optimizers:Muon",
        "normuon": "attnlab.training.matrix_optimizers:NorMuon",
        "soap": "attnlab.training.matrix_optimizers:SOAP",
    },
)

ANALYSES = Registry(
    "analysis",
    group="attnlab.analyses",
    base="attnlab.report.analysis:Analysis",
    builtin={
        "questions": "attnlab.report.questions:QuestionsAnalysis",
        "trend": "attnlab.report.trend:TrendAnalysis",
        "factorial": "attnlab.report.factorial:FactorialAnalysis",
        "sweep": "attnlab.report.sweep:SweepAnalysis",
        "lengths": "attnlab.report.lengths:LengthsAnalysis",
        "stages": "attnlab.report.stages:StagesAnalysis",
    },
)

ESTIMATORS = Registry(
    "estimand",
    group="attnlab.estimators",
    base="attnlab.stats.estimators:Estimator",
    builtin={
        "mean": "attnlab.stats.estimators:Mean",
        "solve_rate": "attnlab.stats.exact_estimators:SolveRate",
    },
)

ADAPTERS = Plugins(  # functions from a layer's name and options to a variant, by library
    "library",
    group="attnlab.adapters",
    builtin={
        "torch": "attnlab.extras.adapters.base:torch_attention",
        "xt": "attnlab.extras.adapters.base:xt_attention",
        "hf": "attnlab.extras.adapters.huggingface:huggingface_attention",
        "fla": "attnlab.extras.adapters.fla:fla_recurrence",
    },
)

register_analysis = ANALYSES.register
register_variant = VARIANTS.register
register_component = COMPONENTS.register
register_position = POSITIONS.register
register_task = TASKS.register
register_model = MODELS.register
register_optimizer = OPTIMIZERS.register
