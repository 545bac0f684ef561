#!/bin/sh
# Makes the report of the study abilities-cpu again. Run it in an empty folder or a checkout.
git checkout 91e490b6cc36
mkdir -p ablations
cat > ablations/abilities-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Abilities beside the loss: the changes to attention whose loss the court of claims judges (ablations/claims/S04.yaml), trained to
# recall key-value pairs and to copy. A change can lower the loss on text and lose an ability, or the other way round.
study: abilities-cpu
question: Do changes to attention that alter the loss alter recall and copying, too?

base:
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 400, batch_size: 32, lr: 3e-3, warmup: 0.1, precision: fp32}
  evaluate: {valid_limit: 200, test_limit: 1000}
  machine: {device: cpu, threads: 1}

grid:
  task: [{name: mqar, pairs: 4, length: 32}, {name: copy, length: 8}]
  layers:
    dense: {variant: dense}
    gate: {variant: {name: dense, with: gate}}
    value_residual: {variant: {name: dense, with: value_residual}}
    short_conv: {variant: {name: dense, with: short_conv}}
    sink: {variant: {name: dense, with: sink}}
    sigmoid: {variant: {name: dense, with: sigmoid}}
    no_wo: {variant: no_wo}
    differential: {variant: differential, model.heads: 2}

seeds: 0-4
baseline: {layers: dense}
estimand: mean
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/abilities-cpu.yaml --workers 2
attnlab report abilities-cpu
