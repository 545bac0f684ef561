#!/bin/sh
# Makes the report of the study recall-cpu again. Run it in an empty folder or a checkout.
git checkout 6c584809e9da
mkdir -p ablations
cat > ablations/recall-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# A known pattern, as a test of the testbed: attention recalls any number of key-value pairs, a state of fixed size only some
# (Arora et al. 2023, arXiv:2312.04927). The same rows of 32 tokens hold 4 or 8 pairs. Where a variant stays at chance, these
# trainings were too short for it, and do not show how many pairs its state holds.
study: recall-cpu
question: Which variants recall pairs, and how many?

base:
  task: {name: mqar, length: 32}
  model: {dim: 64, depth: 2, heads: 2}
  train: {steps: 600, batch_size: 64, lr: 3e-3, warmup: 0.1, eval_every: 100, precision: fp32}
  evaluate: {valid_limit: 500, test_limit: 1000}
  machine: {device: cpu, threads: 1}

grid:
  task.pairs: [4, 8]
  variant: [{name: dense, position: rotary}, linear, lstm]

seeds: 0-2
baseline: {variant: {name: dense, position: rotary}}
estimand: mean
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/recall-cpu.yaml --workers 2
attnlab report recall-cpu
