#!/bin/sh
# Makes the report of the study linear-attention again. Run it in an empty folder or a checkout.
mkdir -p ablations/claims
cat > ablations/claims/N07-long.yaml <<'END_OF_STUDY_FILE'
# The comparison of linear and softmax attention in sparse-and-linear-attention (N06.yaml), with three times as many steps.
study: linear-attention
question: Is linear attention as good as softmax attention after a longer training of a small language model?
base:
  task: {name: pydocs, length: 128}
  variant: dense
  position: learned
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 900, batch_size: 8, warmup: 0.1, precision: fp32}
  machine: {device: cpu, threads: 1, reuse_memory: true}
grid:
  layers:
    dense: {variant: dense}
    linear: {variant: linear}
sweep: {train.lr: [5e-3, 1e-2, 2e-2]}
seeds: 0-4
baseline: {layers: dense}
metric: bits_per_byte
margin: 0.02
claim:
  sentence: After a longer training, linear attention performs like softmax attention.
  source: Katharopoulos et al. 2020, arXiv:2006.16236
  cell: {layers: linear}
  direction: equivalent
END_OF_STUDY_FILE
attnlab run ablations/claims/N07-long.yaml --workers 2
attnlab report linear-attention
