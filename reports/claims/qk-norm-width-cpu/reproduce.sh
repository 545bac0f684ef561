#!/bin/sh
# Makes the report of the study qk-norm-width-cpu again. Run it in an empty folder or a checkout.
git checkout 496c19011b77
mkdir -p ablations
cat > ablations/qk-norm-width-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# What turns the sign of QK-norm: the width of a head, or the largest logit that it allows (the gain times the root of the width)?
# Rotary positions, 900 steps. In qk-norm-enwik8-cpu.yaml and qk-norm-fresh-cpu.yaml, heads of 16 features lose nothing here, and
# heads of 4 lose 0.33 bits per byte. The scores of the other twelve cells were predicted before they were run
# (reports/claims/qk-norm-width-predictions.csv): the loss follows the width, and a gain of 3 or 9 takes less than half of it away.
study: qk-norm-width-cpu
question: Does the head width or the gain decide whether normalized queries and keys help?

base:
  task: {name: enwik8, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 900, batch_size: 4, lr: 4e-3, warmup: 0.1, precision: fp32}
  evaluate: {batch_size: 32, valid_limit: 16_384, test_limit: 65_536}
  machine: {device: cpu, threads: 1, reuse_memory: true}

grid:
  model.heads: [2, 4, 8, 16]
  norm:
    none: {with: []}
    gain1: {with: [{name: qk_norm, gain: 1.0}]}
    gain3: {with: [{name: qk_norm, gain: 3.0}]}
    gain9: {with: [{name: qk_norm, gain: 9.0}]}

seeds: 20-22
baseline: {norm: none}
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/qk-norm-width-cpu.yaml --workers 2 --no-report
attnlab report qk-norm-width-cpu
