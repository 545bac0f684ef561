#!/bin/sh
# Makes the report of the study memory again. Run it in an empty folder or a checkout.
git checkout b286a0c8e23c
cat > K09.yaml <<'END_OF_STUDY_FILE'
# A memory of earlier segments, at a length of segments that hides most of the context.
study: memory
question: Does a memory of earlier segments lower the loss of a model with short segments?
base:
  task: {name: pydocs, length: 32, sampling: contiguous}
  variant: transformer_xl
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 500, batch_size: 16, warmup: 0.1, precision: fp32}
  machine: {device: cpu, threads: 1, reuse_memory: true}
grid: {model.mem_len: [0, 64]}
sweep: {train.lr: [2.5e-3, 5e-3, 1e-2, 2e-2]}
seeds: 0-7
metric: bits_per_byte
baseline: {model.mem_len: 0}
margin: 0.02
claim:
  sentence: A memory of earlier segments lowers the loss of a model with short segments.
  source: Dai et al. 2019, arXiv:1901.02860, table 6
  published: perplexity 26.77 with recurrence and 29.02 without, relative positions, WikiText-103
  cell: {model.mem_len: 64}
  direction: better
  known: true
END_OF_STUDY_FILE
attnlab run K09.yaml
attnlab report memory
