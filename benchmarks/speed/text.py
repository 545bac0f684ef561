"""Text above each section's tables: the cases, and the calculation of the figures."""

STEP = """\
A byte language model, 12 blocks of width 256, 8 heads, context 256, batch 8, on the text of Python's own documentation:
forward, backward and AdamW. attnlab runs a step of its own training loop, including drawing the batch and clipping the
gradient, with `machine: {matmul_precision: medium, reuse_memory: true}` as in its CPU studies. The peers run in a plain
loop, without clipping: as shipped, or with the same process settings and PyTorch's fused AdamW (equal settings). All are
pre-norm, with GELU, a feed-forward of 4 times the width, learned positions, an untied output layer and no dropout.
`attnlab, no settings` uses the default `machine` settings of a study. On CUDA, `medium` means TF32: there attnlab uses
`matmul_precision: highest` against peers as shipped, and all use TF32 with equal settings.
"""
FLOOR = """\
Rates of the step's matrix products, in GFLOP/s over the product and the two of its backward pass. A step is three times
the forward pass, whose arithmetic `torch.utils.flop_counter` counts. Its floor is the time of the products alone, in fp32
at the rates of `matmul_precision: medium` (on CUDA: TF32), which bounds the speed of any code on this machine. The last
table compares a step that only computes the products with the fastest peer.
"""
PROFILE = """\
By `torch.profiler`. Matrix products: projections, feed-forward and output layer. Attention: its batched products, mask,
softmax and copies. An operation of the backward pass is counted with the operation whose gradient it computes.
"""
XL = """\
One layer, width 256, 8 heads, segment 256, memory 256, batch 8, forward and backward: attnlab's against the port of the
authors' code in `transformers` 4.57. With the same weights their outputs differ by at most {difference}. `attention` includes
the norm and the residual connection, `layer` also the feed-forward. attnlab computes the position embeddings inside the
layer; the original receives them as an argument. With equal settings, both use attnlab's `machine: {{matmul_precision:
medium, reuse_memory: true}}`; as shipped, only attnlab does. On CUDA, where `medium` means TF32, attnlab uses `highest` as
shipped.

"""
EVALUATION = """
Evaluation by attnlab's own code, 12 blocks of width 256, fp32. `transformer_xl` reads the whole valid split in segments
of 256, in a batch of four rows (one row at the longest context), each of which starts with an empty memory. `dense` slides
a window over the same bytes and predicts one byte from each window; all windows cost the same, so only the first few are
timed.

"""
IMDB = """\
Depth 6, width 128, 8 heads, length 512, batch 32, bf16. Training steps are timed on batches spread evenly over one epoch,
which groups reviews by length, and scaled to the epoch by their tokens. The evaluation of all 25,000 reviews is measured.

"""
IMDB_BOUNDS = """\
Lower bounds on this machine: the most expensive parts, each at the rate that it reaches alone, at 256 words in bf16. Heads
are 16 wide, so that exponentiating a logit takes longer than computing it. Norms, activations, residual connections and the
optimizer are not included.

"""
READERS = """\
attnlab and peers of the same shape: pre-norm, GELU, learned positions, padding masked and not pooled, bf16. As shipped, the
peers read random batches of 32 reviews, padded to the longest review of a batch, and `test` in the order of its files, as a
plain loop would. With equal settings they read attnlab's batches of similar lengths, with its process settings and the fused
AdamW. PyTorch's fused encoder is disabled, because on a CPU it evaluates in float32 even under autocast. {count} training
steps and {count} batches of `test`, spread evenly, are timed for each peer and, in the same round, for attnlab.

"""
SPARSE = """\
Attention alone, forward and backward, batch 2, 8 heads of width 32, causal, without projections; stride near the root of the
length. Dense attention is PyTorch's `scaled_dot_product_attention`, as shipped and with attnlab's
`machine: {matmul_precision: medium, reuse_memory: true}`, which the sparse variants use in both cases. The sparse variants use
the backend `blocked` on a CPU and `xformers` on CUDA, where dense attention is restricted to FlashAttention. Saved: bytes
that autograd keeps for the backward pass; peak: the largest memory of the device.
"""
