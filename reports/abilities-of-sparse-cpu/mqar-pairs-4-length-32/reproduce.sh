#!/bin/sh
# Makes the report of the study abilities-of-sparse-cpu again. Run it in an empty folder or a checkout.
git checkout 8fa39876a607
mkdir -p ablations
cat > ablations/abilities-of-sparse-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Abilities beside the loss: sparse and linear attention with learned positions, whose loss the court of claims judges
# (ablations/claims/N06.yaml), trained to recall key-value pairs and to copy.
study: abilities-of-sparse-cpu
question: Do sparse and linear attention recall and copy as softmax attention does, under learned positions?

base:
  variant: dense
  position: learned
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 400, batch_size: 32, lr: 3e-3, warmup: 0.1, precision: fp32}
  evaluate: {valid_limit: 200, test_limit: 1000}
  machine: {device: cpu, threads: 1}

grid:
  task: [{name: mqar, pairs: 4, length: 32}, {name: copy, length: 8}]
  layers:
    dense: {variant: dense}
    strided_sparse: {variant: strided_sparse}
    linear: {variant: linear}

seeds: 0-5
baseline: {layers: dense}
estimand: mean
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/abilities-of-sparse-cpu.yaml --workers 2
attnlab report abilities-of-sparse-cpu
