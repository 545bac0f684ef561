#!/bin/sh
# Makes the report of the study quickstart again. Run it in an empty folder or a checkout.
git checkout f1409db0ed46
mkdir -p ablations
cat > ablations/quickstart.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# A first look: seven attention variants on real text that needs no download (the topics behind Python's `help()`),
# small enough to train in a minute or two on two cores, and far too short to show which variant is best.
study: quickstart

base:
  task: {name: pydocs, length: 128}
  position: learned
  model: {dim: 64, depth: 2, heads: 4}
  # auto: the plan measures which settings are faster on this processor; all cells get the same. On the CPU, also with a GPU.
  train: {steps: 250, batch_size: 16, lr: 2e-3, warmup: 25, weight_decay: 0.01, eval_every: 125, precision: auto}
  machine: {device: cpu, matmul_precision: auto, reuse_memory: auto}

grid:
  variant: [dense, no_wo, narrow, wide, basic, strided_sparse, fixed_sparse]

seeds: [0, 1, 2]
baseline: {variant: dense}
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/quickstart.yaml
attnlab report quickstart
