#!/bin/sh
# Makes the report of the study quickstart again. Run it in an empty folder or a checkout.
git checkout e59508313361
mkdir -p ablations
cat > ablations/quickstart.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# A first look: seven attention variants on real text that needs no download (the topics behind Python's `help()`),
# small enough to train in under four minutes on two cores, and far too short to show which variant is best.
study: quickstart

base:
  task: {name: pydocs, length: 128}
  position: learned
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 250, batch_size: 16, lr: 2e-3, warmup: 25, weight_decay: 0.01, eval_every: 125}
  machine: {device: cpu}                 # the same numbers on every machine, with a GPU or without

grid:
  variant: [dense, no_wo, narrow, wide, basic, strided_sparse, fixed_sparse]

seeds: [0, 1]
baseline: {variant: dense}
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/quickstart.yaml
attnlab report quickstart
