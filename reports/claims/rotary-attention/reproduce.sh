#!/bin/sh
# Makes the report of the study rotary-attention again. Run it in an empty folder or a checkout.
git checkout b286a0c8e23c
cat > S06.yaml <<'END_OF_STUDY_FILE'
# Claims about attention with rotary positions, in the small language model of parts-of-attention (S04.yaml).
study: rotary-attention
question: Do a forget gate or normalized queries and keys change the loss of attention with rotary positions?
base:
  task: {name: pydocs, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, warmup: 0.1, precision: fp32}
  machine: {device: cpu, threads: 1, reuse_memory: true}
grid:
  layers:
    dense: {variant: dense}
    einsum: {variant: einsum}
    forget_gate: {variant: {name: dense, with: forget_gate}}
    qk_norm: {variant: {name: dense, with: qk_norm}}
sweep: {train.lr: [2.5e-3, 5e-3, 1e-2, 2e-2]}
seeds: 0-7
baseline: {layers: dense}
metric: bits_per_byte
margin: 0.02
claim:
  sentence: A forget gate lowers the loss of attention with rotary positions.
  source: Lin et al. 2025, arXiv:2503.02130
  cell: {layers: forget_gate}
  direction: better
END_OF_STUDY_FILE
attnlab run S06.yaml
attnlab run ablations/claims/S06.yaml --only layers=dense,qk_norm --seeds 8-19 --workers 2 --no-report
attnlab run ablations/claims/S06.yaml --seeds 0-19 --only layers=dense,qk_norm --workers 2 --no-report
attnlab report rotary-attention
