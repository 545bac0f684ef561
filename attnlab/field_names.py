"""Names that the field uses for what has another name in attnlab, such as RoPE for the position scheme ``rotary``.

They are not accepted, since a study, its records and its fingerprints have one name for one thing: messages answer them with
that name.
"""

import re
from collections.abc import Iterable

# (attnlab's name, how a study states it) -> names of the field, without case and punctuation
_NAMES = {
    (
        "dense",
        "variant: dense",
    ): "mha softmax multihead multiheadattention attention selfattention softmaxattention vanilla full sdpa",
    ("transformer_xl", "variant: transformer_xl"): "xl txl xlattention relmha",
    ("strided_sparse", "variant: strided_sparse"): "sparse strided sparsetransformer sparseattention",
    ("fixed_sparse", "variant: fixed_sparse"): "fixed",
    ("differential", "variant: differential"): "diff diffattn diffattention difftransformer",
    ("latent", "variant: latent"): "mla multiheadlatentattention",
    ("path", "variant: path"): "pathattention householder",
    ("dsa", "variant: dsa"): "deepseeksparse deepseeksparseattention lightningindexer",
    ("linear", "variant: {name: linear, feature_map: taylor}"): "based",
    ("linear", "variant: linear"): "linearattention lineartransformer linattn",
    ("retention", "variant: retention"): "retnet multiscaleretention",
    ("gated_linear", "variant: gated_linear"): "gla gatedlinearattention",
    ("ssd", "variant: ssd"): "mamba2 statespaceduality",
    ("log_linear", "variant: log_linear"): "loglinearattention loglinearmamba2 fenwick",
    ("mamba3", "variant: mamba3"): "mambathree trapezoidal",
    ("delta", "variant: delta"): "deltanet deltarule",
    ("gated_delta", "variant: gated_delta"): "gateddeltanet gdn",
    ("kda", "variant: kda"): "kimi kimidelta kimideltaattention kimilinear",
    ("gated_delta2", "variant: gated_delta2"): "gateddeltanet2 gdn2",
    ("delta_product", "variant: {name: delta_product, gated: true}"): "gateddeltaproduct",
    ("delta_product", "variant: delta_product"): "householderproduct",
    ("convolution", "variant: convolution"): "conv conv1d cnn causalconv",
    ("none", "variant: none"): "noattention nomixing identity",
    ("kv_heads", "variant: {name: dense, with: [{name: kv_heads, count: 2}]}"): "gqa groupedquery groupedqueryattention",
    ("kv_heads", "variant: {name: dense, with: [{name: kv_heads, count: 1}]}"): "mqa multiquery multiqueryattention",
    ("window", "variant: {name: dense, with: [{name: window, size: 64}]}"): (
        "swa slidingwindow slidingwindowattention local localattention longformer"
    ),
    ("moba", "variant: {name: dense, with: [{name: moba, size: 64}]}"): "mixtureofblockattention blocksparse",
    ("forget_gate", "variant: {name: dense, with: [forget_gate]}"): "fox forgettingattention forgettingtransformer",
    ("value_residual", "variant: {name: dense, with: [value_residual]}"): "resformer vres",
    ("value_embedding", "variant: {name: dense, with: [value_embedding]}"): "valueembeddings valueembeds ve",
    ("log_n", "variant: {name: dense, with: [log_n]}"): "ssmax scalablesoftmax lognscaling logn",
    ("softcap", "variant: {name: dense, with: [softcap]}"): "softcapping logitsoftcap logitcap attnlogitsoftcapping",
    ("sink", "variant: {name: dense, with: [sink]}"): "sinks attentionsink attentionsinks",
    ("softmax1", "variant: {name: dense, with: [softmax1]}"): "softmaxoffbyone offbyone softmaxone softmaxplusone",
    ("sigmoid", "variant: {name: dense, with: [sigmoid]}"): "sigmoidattention sigattn",
    ("gate", "variant: {name: dense, with: [gate]}"): "gatedattention outputgate",
    ("qk_norm", "variant: {name: dense, with: [qk_norm]}"): "qknormalization querykeynorm qkln",
    ("token_shift", "variant: {name: dense, with: [token_shift]}"): "canon canonlayer shortconv",
    ("short_conv", "variant: {name: dense, with: [short_conv]}"): "primer multidconv multidconvheadattention",
    ("exclusive", "variant: {name: dense, with: [exclusive]}"): "xsa exclusiveselfattention",
    ("rotary", "position: rotary"): "rope roformer rotaryembedding rotarypositionembedding",
    ("rotary", "position: {name: rotary, scaling: yarn}"): "yarn",
    ("none", "position: none"): "nope nopos nopositions noposition",
    ("learned", "position: learned"): "ape absolute learnedabsolute wpe positionembedding",
    ("sinusoidal", "position: sinusoidal"): "sinusoid sine sincos sinpe",
    ("relative", "position: relative"): "rpe relpos relativeposition",
    ("t5", "position: t5"): "t5bias t5relativebias relativebias",
    ("rms", "model.norm_type: rms"): "rmsnorm",
    ("layer", "model.norm_type: layer"): "layernorm ln",
    ("pre", "model.norm: pre"): "prenorm preln",
    ("post", "model.norm: post"): "postnorm postln",
    ("sandwich", "model.norm: sandwich"): "sandwichnorm",
    ("after", "model.norm: after"): "reorderednorm respostnorm",
    ("dyt", "model.norm_type: dyt"): "dynamictanh",
    ("x0", "model.residual: x0"): "x0lambdas",
    ("hyper", "model.residual: hyper"): "hyperconnections hyperconnection hc mhc",
    ("attention_residuals", "model.residual: attention_residuals"): "attnres attentionresidual",
    ("swiglu", "model.feed_forward: swiglu"): "silu swish",
    ("relu2", "model.feed_forward: relu2"): "squaredrelu relusquared sqrelu",
    ("gelu_tanh", "model.feed_forward: gelu_tanh"): "gelunew gelupytorchtanh",
    ("language_model", "model.name: language_model"): "gpt decoder decoderonly causallm",
    ("masked_language_model", "model.name: masked_language_model"): "bert mlm maskedlm",
    ("encoder_decoder", "model.name: encoder_decoder"): "seq2seq transformer",
    ("mqar", "task: mqar"): "associativerecall multiqueryassociativerecall assocrecall",
    ("text", "task: {name: text, path: FILE}"): "shakespeare tinyshakespeare text8 wikitext wikitext2 wikitext103 ptb",
    ("csv", "task: {name: csv, path: FILE}"): "classification sst2 agnews",
    ("tokens", "task: {name: tokens, path: FILE, vocabulary: N}"): "tokenids pretokenized memmap",
    ("translation", "task: {name: translation, source: FILE, target: FILE}"): "wmt wmt14 iwslt iwslt14 mt",
    ("sdpa", "backend: sdpa"): "flash flashattn flashattention flashattention2 fa2 scaleddotproductattention",
    ("flex", "backend: flex"): "flexattention",
    ("reference", "backend: reference"): "eager naive math",
    ("bf16", "train.precision: bf16"): "bfloat16 amp",
    ("fp16", "train.precision: fp16"): "float16 half gradscaler lossscaling",
    ("fp32", "train.precision: fp32"): "float32 f32",
    ("dim", "model.dim"): "dmodel hiddensize hiddendim nembd embeddim modeldim width",
    ("heads", "model.heads"): "nheads nhead numheads numattentionheads",
    ("depth", "model.depth"): "nlayers nlayer numlayers numhiddenlayers nblocks",
    ("ff_mult", "model.ff_mult"): "mlpratio ffnmult dff ffdim intermediatesize",
    ("tie_embeddings", "model.tie_embeddings"): "weighttying tieweights tiewordembeddings",
    ("lr", "train.lr"): "learningrate maxlr peaklr",
    ("batch_size", "train.batch_size"): "bs batch trainbatchsize",
    ("steps", "train.steps"): "maxsteps nsteps numsteps iters iterations maxiters",
    ("epochs", "train.epochs"): "numepochs nepochs maxepochs",
    ("warmup", "train.warmup"): "warmupsteps warmupratio warmupiters",
    ("weight_decay", "train.weight_decay"): "wd",
    ("grad_clip", "train.grad_clip"): "clipnorm maxgradnorm gradientclipping gradclipnorm",
    ("gradient_accumulation", "train.gradient_accumulation"): "gradaccum gradientaccumulationsteps gradaccumsteps",
    ("length", "task: {name: NAME, length: N}"): "seqlen sequencelength contextlength ctxlen blocksize maxlength nctx",
}
_OURS: dict[str, list[tuple[str, str]]] = {}  # a name of the field -> what it can be: attnlab's name, and how a study states it
for _entry, _aliases in _NAMES.items():
    for _alias in _aliases.split():
        _OURS.setdefault(_alias, []).append(_entry)


def fold(name: str) -> str:
    """Return a name without case, spaces, hyphens and underscores, in which spellings of one name differ."""
    return re.sub(r"[-_\s]", "", name.casefold())


def find_ours(name: str, names: Iterable[str]) -> str | None:
    """Return the one of ``names``, which may be dotted, that is ``name`` in another spelling or attnlab's name for it."""
    folded, names = fold(name), list(names)
    same = [known for known in names if fold(known) == folded]
    entries = [own for own, line in _OURS.get(folded, ()) if _is_among(own, line, names)]
    ours = [known for own in entries for known in names if known.rpartition(".")[2] == own]
    return next(iter([*same, *ours]), None)


def _is_among(own: str, line: str, names: list[str]) -> bool:
    """Return False for the name of another kind, as position ``none`` among the variants, one of which is ``none``."""
    kinds: dict[str, set[str]] = {}
    for other, stated in _NAMES:
        kinds.setdefault(other, set()).add(stated.partition(":")[0])
    return len(kinds[own]) == 1 or any(line.partition(":")[0] in kinds.get(name, ()) for name in names if name != own)


def with_options(name: str, ours: str) -> str:
    """Return attnlab's name for a name of the field with its options: ``{name: linear, feature_map: taylor}`` for Based."""
    lines = [line for own, line in _OURS.get(fold(name), ()) if own == ours]
    entry = re.search(rf"\{{name: {re.escape(ours)}, [^{{}}]*\}}", lines[0]) if lines else None
    return entry[0] if entry else ours


def statements(ours: str, key: str) -> list[str]:
    """Return how studies state what has attnlab's name ``ours``, in lines that begin with a key, such as ``variant``."""
    return [line for name, line in _NAMES if name == ours and line.startswith(f"{key}: ")]


def stated_as(name: str) -> str | None:
    """Return how a study states a name of the field, as in ``position: rotary`` for ``RoPE``; None for other names."""
    return next((line for _, line in _OURS.get(fold(name), ())), None)
