#!/bin/sh
# Makes the report of the study sparse-and-linear-attention again. Run it in an empty folder or a checkout.
git checkout b286a0c8e23c
cat > N06.yaml <<'END_OF_STUDY_FILE'
# Claims about sparse and linear attention, in the small language model of parts-of-attention (S04.yaml) but with learned
# positions, because linear attention has no logits that rotary positions could change.
study: sparse-and-linear-attention
question: Is sparse or linear attention as good as softmax attention in a small language model?
base:
  task: {name: pydocs, length: 128}
  variant: dense
  position: learned
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, warmup: 0.1, precision: fp32}
  machine: {device: cpu, threads: 1, reuse_memory: true}
grid:
  layers:
    dense: {variant: dense}
    einsum: {variant: einsum}
    strided_sparse: {variant: strided_sparse}
    linear: {variant: linear}
sweep: {train.lr: [2.5e-3, 5e-3, 1e-2, 2e-2]}
seeds: 0-7
baseline: {layers: dense}
metric: bits_per_byte
margin: 0.02
claim:
  sentence: On text, strided sparse attention is worse than dense attention.
  source: Child et al. 2019, arXiv:1904.10509
  cell: {layers: strided_sparse}
  direction: worse
END_OF_STUDY_FILE
attnlab run N06.yaml
attnlab report sparse-and-linear-attention
