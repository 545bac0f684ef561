#!/bin/sh
# Makes the report of the study copying-of-norms-cpu again. Run it in an empty folder or a checkout.
git checkout ff8c1b3a46a2
mkdir -p ablations
cat > ablations/copying-of-norms-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Abilities beside the loss: queries and keys with and without a norm, in models that start small, whose heads are narrow, or whose
# logits start sharp: the interactions that the court of claims judges by loss (ablations/claims/N10-init.yaml, N10-narrow.yaml,
# N10-sharp.yaml), trained to recall key-value pairs and to copy.
study: copying-of-norms-cpu
question: What decides whether normalized queries and keys help to copy?

base:
  task: {name: copy, length: 8}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 400, batch_size: 32, lr: 3e-3, warmup: 0.1, precision: fp32}
  evaluate: {valid_limit: 200, test_limit: 1000}
  machine: {device: cpu, threads: 1}

factors:
  qk_norm: {with: [qk_norm]}
  small_init: {model.initialization: gpt2}
  narrow: {model.heads: 16}
  sharp: {with: [{name: temperature, value: 0.3333, learned: false}]}

seeds: 0-4
estimand: mean
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/copying-of-norms-cpu.yaml --workers 2
attnlab report copying-of-norms-cpu
