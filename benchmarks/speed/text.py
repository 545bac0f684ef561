"""Text above each section's tables: the cases, and the calculation of the figures."""

STEP = """\
A byte language model, 12 blocks of width 256, 8 heads, context 256, batch 8, on the text of Python's own documentation:
forward, backward and AdamW. attnlab takes the step of its own training loop, drawing the batch and clipping the gradient
included, with `machine: {matmul_precision: medium, reuse_memory: true}` as in its CPU studies. The peers run in a plain
loop, without clipping: as shipped, or with the same process settings and PyTorch's fused AdamW (equal settings). All are
pre-norm, with GELU, a feed-forward of 4 times the width, learned positions, an output layer of its own and no dropout.
`attnlab, no settings` uses the default `machine` settings of a study. On CUDA `medium` means TF32: there attnlab has
`matmul_precision: highest` next to peers as shipped, and with equal settings all have TF32.
"""
FLOOR = """\
Rates of the step's matrix products, in GFLOP/s over the product and the two of its backward pass. A step is three times
the forward pass, whose arithmetic `torch.utils.flop_counter` counts. Its floor is what the products alone would take, in
fp32 at the rates of matmul_precision medium (on CUDA: TF32). That bounds what any code can gain on this machine: the last
table says by how much a step that did nothing else would beat the fastest peer.
"""
PROFILE = """\
By `torch.profiler`. Matrix products: projections, feed-forward and output layer. Attention: its batched products, mask,
softmax and copies. Operations of the backward pass count where the operation stands whose gradient they compute.
"""
XL = """\
One layer, width 256, 8 heads, segment 256, memory 256, batch 8, forward and backward: attnlab's against the port of the
authors' code in `transformers` 4.57. With the same weights their outputs differ by {difference} at most. `attention` has
the norm and the residual connection around it, `layer` also the feed-forward. attnlab makes its position embeddings in
the layer; the original is given them. Equal settings are attnlab's `machine: {{matmul_precision: medium, reuse_memory:
true}}`, which attnlab has in both; on CUDA, where that means TF32, it has `highest` beside the original as shipped.

"""
EVALUATION = """
Evaluation by attnlab's own code, 12 blocks of width 256, fp32. `transformer_xl` reads the whole valid split in segments
of 256, four rows side by side (one at the longest context), whose memory is empty at their beginning. Of the windows that
`dense` slides over the same bytes the first few are timed: each predicts one byte, and each costs the same.

"""
IMDB = """\
Depth 6, width 128, 8 heads, length 512, batch 32, bf16. The steps are spread evenly over an epoch's real batches of like
lengths and scaled by tokens to the whole; the evaluation of all 25,000 reviews is measured.

"""
IMDB_BOUNDS = """\
What bounds them on this machine: the longest parts, each at the rate that it reaches alone, at 256 words in bf16. Heads are
16 wide, so that it takes longer to exponentiate a logit than to compute it. Nothing else is in this: no norm, activation,
residual connection, optimiser.

"""
READERS = """\
attnlab beside peers of the same shape: pre-norm, GELU, learned positions, padding masked and not pooled, bf16. As shipped
they read random batches of 32 reviews, padded to the longest of them, and `test` in the order of its files, as a plain loop
would; with equal settings attnlab's own batches of like lengths, with its process settings and the fused AdamW. PyTorch's
fused encoder, which evaluates in float32 whatever autocast says on a CPU, is off there. Of each, and of attnlab beside it,
{count} steps and {count} batches of `test` are timed, spread evenly.

"""
SPARSE = """\
Attention alone, forward and backward, batch 2, 8 heads of width 32, causal, without projections; stride near the root of the
length. Dense attention is PyTorch's `scaled_dot_product_attention`, as shipped and with attnlab's
`machine: {matmul_precision: medium, reuse_memory: true}`, which the sparse variants have in both. On a CPU these go by the
backend `blocked`; on CUDA by `xformers`, and dense attention is held to FlashAttention. Saved: what autograd keeps for the
backward pass; peak: the most that the device held.
"""
