#!/bin/sh
# Makes the report of the study abilities-of-the-model-cpu again. Run it in an empty folder or a checkout.
git checkout 8fa39876a607
mkdir -p ablations
cat > ablations/abilities-of-the-model-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Abilities beside the loss: the changes to the model or its training whose loss the court of claims judges
# (ablations/claims/S01.yaml), trained to recall key-value pairs and to copy.
study: abilities-of-the-model-cpu
question: Do changes to the model that alter the loss alter recall and copying, too?

base:
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 400, batch_size: 32, lr: 3e-3, warmup: 0.1, precision: fp32}
  evaluate: {valid_limit: 200, test_limit: 1000}
  machine: {device: cpu, threads: 1}

grid:
  task: [{name: mqar, pairs: 4, length: 32}, {name: copy, length: 8}]
  change:
    plain: {model.heads: 4}
    swiglu: {model.feed_forward: swiglu}
    rms_norm: {model.norm_type: rms}
    one_head: {model.heads: 1}
    tied: {model.tie_embeddings: true}
    muon: {train.optimizer: muon}

seeds: 0-5
baseline: {change: plain}
estimand: mean
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/abilities-of-the-model-cpu.yaml --workers 2
attnlab report abilities-of-the-model-cpu
